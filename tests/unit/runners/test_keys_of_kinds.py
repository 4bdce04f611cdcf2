"""Each key of `slipway:runners`, of both kinds: it has an effect on what is declared, or is refused by its name."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from components.runners.ec2 import reservation_lookup
from containers.errors import SlipwayError
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.plan import specs
from tests.helpers.every import every
from tests.unit.runners import golden_objects
from tests.unit.runners.golden_objects import ARN, GITHUB, SITE, recorded

POOL: Final = {"nodeSelector": {"acme.example/pool": "ci"}}
CLUSTER: Final[dict[str, Any]] = {"kind": "kubernetes", "github": GITHUB, **POOL}
EC2: Final[dict[str, Any]] = {
    "kind": "ec2",
    "region": "eu-west-1",
    "account": "123456789012",
    "github": {"url": "https://github.com/acme", "secret": f"{ARN}f"},
    "labels": ["gpu"],
    "instanceTypes": ["p5.48xlarge"],
}
GPUS: Final = {"profile": "eks-p5"}
AKS: Final = {"profile": "aks-ndv5"}
AMI: Final = "ami-0123456789abcdef0"
EFA: Final = {"subnets": ["subnet-0123456789abcdef0"]}
IDS: Final = {"ids": ["cr-0123456789abcdef0"]}
REGISTRY: Final = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml", "create": False}
NODES: Final = {**IDS, "region": "eu-west-1", "account": "123456789012", "nodeGroup": "p5"}
MORNING: Final = [{"minRunners": 1, "start": "08:00", "end": "18:00"}]

SHARED: Final[Mapping[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "build": ("who builds images", {}, {"build": POOL}, {}, {"build": {"instanceType": "m7i.4xlarge"}}),
    "efa": ("EFA interfaces of each runner", GPUS, {"efa": 16}, EFA, {"efa": "all"}),
    "labels": ("labels by which jobs choose them", {}, {"labels": ["a"]}, {}, {"labels": ["a"]}),
    "maxRunners": ("most runners at once", {}, {"maxRunners": 7}, {}, {"maxRunners": 7}),
    "minRunners": ("runners that wait for jobs", {}, {"minRunners": 2}, {}, {"minRunners": 2}),
    "reservation": ("reserved machines", GPUS, {"reservation": NODES}, {}, {}),
    "schedule": ("other minima by time", {}, {"schedule": MORNING}, {}, {"schedule": MORNING}),
    "sets": ("runners of several sizes", {}, {"sets": {"a": {}}}, {}, {"sets": {"a": {}}}),
}
"""Keys of both kinds, with one meaning, what else is given, and the value: in a cluster, and on EC2."""
ELSEWHERE: Final = {
    "driver": "`slipway check`: tests/unit/checks/test_drivers.py",
    "github": "each part is an object's or a function's: test_kubernetes_objects.py, test_ec2.py",
    "kind": "it says which of the two",
    "reservation": "on EC2: tests/aws/test_reservations.py",
}
"""Shared keys whose effect is not in objects, and where it is tested."""

CLUSTER_ALONE: Final[Mapping[str, tuple[dict[str, Any], Any]]] = {
    "arc": ({}, {"version": "0.14.3"}),
    "cache": ({}, "7Gi"),
    "context": ({}, "other"),
    "cpu": ({}, "3"),
    "daemon": ({"build": {**POOL, "jobs": True}}, False),
    "disk": ({}, "7Gi"),
    "dockerGpus": ({**GPUS, "dockerImage": "r.example/docker-with-nvidia-ctk:28"}, True),
    "dockerImage": ({}, "docker:28.0.0-dind"),
    "gpuClaim": (GPUS, {}),
    "gpuResource": ({**GPUS, "gpus": 1}, "nvidia.com/mig-3g.40gb"),
    "gpus": (GPUS, 4),
    "grace": ({}, 7),
    "group": ({}, "gpus"),
    "image": ({}, "ghcr.io/actions/actions-runner:2.337.0"),
    "infiniband": (AKS, 4),
    "infinibandResource": ({**AKS, "infiniband": 1}, "rdma/shared_ib"),
    "jobPods": ({}, True),
    "kubeconfig": ({}, "k"),
    "memory": ({}, "7Gi"),
    "namespace": ({}, "ci"),
    "network": ({}, {"mtu": 1400}),
    "nodeSelector": ({}, {"acme.example/pool": "other"}),
    "profile": ({}, "cpu-arm64"),
    "pullSecrets": ({}, ["mirror"]),
    "runtimeClass": ({}, "kata"),
    "shm": (GPUS, "7Gi"),
    "storageClass": ({}, "fast"),
    "tolerations": ({}, [{"key": "k", "value": "v"}]),
    "validation": (GPUS, {"image": "r.example/y:1", "command": ["/check"]}),
}
EC2_ALONE: Final[Mapping[str, tuple[dict[str, Any], Any]]] = {
    "alarm": ({}, {"minutes": 7}),
    "ami": ({}, AMI),
    "boot": ({}, 7),
    "endpoints": ({}, True),
    "groupId": ({}, 7),
    "idle": ({}, 7),
    "instanceTypes": ({}, ["p5.48xlarge", "p5e.48xlarge"]),
    "listener": ({"github": {**EC2["github"], "webhookSecret": f"{ARN}w"}}, True),
    "logDays": ({}, 7),
    "maxLifetime": ({"minRunners": 1}, 3),
    "minGpus": ({}, 4),
    "permissionsBoundary": ({}, "arn:aws:iam::123456789012:policy/x"),
    "push": ({}, ["service"]),
    "retries": ({}, 3),
    "root": ({}, 300),
    "runner": ({}, "2.337.0"),
    "spot": ({}, False),
    "spotPatience": ({}, 7),
    "subnets": ({}, ["subnet-0123456789abcdef1"]),
    "vpc": ({}, "vpc-0123456789abcdef0"),
}
OF_AWS: Final = {
    "account": "credentials of another one are refused: tests/aws/test_runners.py",
    "region": "of all that is declared: tests/aws/test_runners.py",
    "subnets": "looked up: tests/aws/test_runners.py",
    "vpc": "looked up: tests/aws/test_runners.py",
    "instanceTypes": "looked up: tests/aws/test_runners.py",
}
"""Keys of EC2 whose effect AWS's answer has, and where it is tested."""


def looked_up(config: Ec2RunnersConfig, *_: object) -> Any:
    return replace(SITE, image=config.ami or "ami-1", builders=SITE.builders if config.build else {})


def declared(values: Mapping[str, Any]) -> str:
    """Return what is declared in a cluster or at AWS, and its providers."""
    return _declared(json.dumps(values))


@functools.cache
def _declared(text: str) -> str:
    values = json.loads(text)
    more = {"registry": REGISTRY} if values["kind"] == "ec2" else {}
    with (
        patch.object(golden_objects, "_look_up", looked_up),
        patch.object(reservation_lookup, "of_nodes", return_value={}),
    ):
        resources = recorded(values, chain={}, **more).resources
    of_kinds = ("aws:", "kubernetes:", "pulumi:providers:")
    return json.dumps(
        {str(name): inputs for name, inputs in resources.items() if name[0].startswith(of_kinds)}, default=str
    )


def refused(values: Mapping[str, Any]) -> str:
    try:
        specs({"flavor": "runners", "runners": values}, "stack t")
    except SlipwayError as error:
        return str(error)
    return ""


def keys(model: Any) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_every_key_of_runners_is_in_the_table() -> None:
    cluster, ec2 = keys(KubernetesRunnersConfig), keys(Ec2RunnersConfig)
    assert cluster & ec2 == SHARED.keys() | ELSEWHERE.keys()
    assert cluster - ec2 == CLUSTER_ALONE.keys()
    assert ec2 - cluster == EC2_ALONE.keys() | {"account", "region"}


@every("key", CLUSTER_ALONE)
def test_key_of_clusters_changes_objects_and_is_refused_on_ec2(key: str) -> None:
    more, value = CLUSTER_ALONE[key]
    given = {**CLUSTER, **more}
    assert declared({**given, key: value}) != declared(given), key
    assert f"unknown key '{key}'" in refused({**EC2, key: value})


@every("key", EC2_ALONE)
def test_key_of_ec2_changes_objects_and_is_refused_in_clusters(key: str) -> None:
    more, value = EC2_ALONE[key]
    given = {**EC2, **more}
    assert f"unknown key '{key}'" in refused({**CLUSTER, key: value})
    if key not in OF_AWS:
        assert declared({**given, key: value}) != declared(given), key


def test_image_of_a_further_platform_on_ec2_is_its_ami() -> None:
    """In a cluster, `image` is that of a container."""
    other = {"instanceType": "m7g.4xlarge", "image": AMI}
    builder = {"instanceType": "m7i.4xlarge", "platforms": {"linux/arm64": other}}
    assert "unknown key 'image': here it is ami" in refused({**EC2, "build": builder})


def test_size_on_ec2_may_be_as_in_a_cluster() -> None:
    for size, expected in ((500, 500), ("500", 500), ("500Gi", 500), ("2Ti", 2048)):
        config = Ec2RunnersConfig.model_validate(
            {**EC2, "root": size, "build": {"instanceType": "m7i.4xlarge", "cache": size}}
        )
        assert config.build is not None
        assert (config.root, config.build.cache) == (expected, expected)
    for wrong in ("0Gi", "5Mi", "20Gi", "500 Gi"):
        assert "slipway:runners.root: '" in refused({**EC2, "root": wrong}), wrong


@every("key", SHARED)
def test_shared_key_changes_objects_of_both_kinds(key: str) -> None:
    _, cluster, in_cluster, ec2, on_ec2 = SHARED[key]
    assert declared({**CLUSTER, **cluster, **in_cluster}) != declared({**CLUSTER, **cluster}), key
    if key not in ELSEWHERE:
        assert declared({**EC2, **ec2, **on_ec2}) != declared({**EC2, **ec2}), key


@every("key", SHARED)
def test_shared_key_with_two_defaults_names_the_other(key: str) -> None:
    cluster, ec2 = (
        next(field for name, field in kind.model_fields.items() if key in {name, field.alias})
        for kind in (KubernetesRunnersConfig, Ec2RunnersConfig)
    )
    if cluster.get_default() != ec2.get_default():
        assert "EC2" in str(cluster.description), key
        assert "Kubernetes" in str(ec2.description), key


def test_all_interfaces_in_a_cluster_are_the_default() -> None:
    line = "efa: 'all': expected a number, as all is for EC2: leave it out for the share of the GPUs"
    assert line in refused({**CLUSTER, **GPUS, "efa": "all"})
