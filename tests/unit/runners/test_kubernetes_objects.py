"""Runners on Kubernetes: what a configuration may say, and the objects that it becomes."""

from __future__ import annotations

import contextlib
import gzip
import json
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import moto
import pulumi
import pytest
from cryptography import x509
from pydantic import ValidationError

from components.runners.kubernetes import build_service, certificates, gpu_validation, isolation, pod
from components.runners.kubernetes.objects import declaration
from containers.errors import SlipwayError
from containers.image.gpu.node_labels import GPU
from stacks import plan
from stacks.checks.secrets import check_clear_text
from stacks.config.cluster.arc_config import ARC_CHARTS
from stacks.config.cluster.validation_config import ValidationConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_config import StackConfig
from stacks.versions.nodes import EFA, INFINIBAND, node, node_names
from tests.helpers.every import every

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
POOL = {"acme.example/pool": "ci"}
RUNNER, DOCKER = "r.example/runner:1", "r.example/docker:1"


def runners(**values: Any) -> KubernetesRunnersConfig:
    return KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        runners(**values)
    (error,) = caught.value.errors()
    return f"{'.'.join(map(str, error['loc']))}: {error['msg'].removeprefix('Value error, ')}"


@every(
    "values, line",
    [
        ({"profile": "eks-p6"}, "profile: runners.profile: 'eks-p6' is not a known profile (did you mean 'eks-p"),
        ({"profile": "eks-p5", "gpus": 9}, ": runners.gpus: '9' is more nvidia.com/gpu than a node of eks-p5 has; allowed: 0 to 8"),
        ({"profile": "eks-p4d", "efa": 5}, ": runners.efa: '5' is more vpc.amazonaws.com/efa than a node of eks-p4d has"),
        ({"profile": "aks-ndv5", "efa": 1}, ": runners.efa: '1' is more vpc.amazonaws.com/efa than a node of aks-ndv5 has; allowed: 0; rule: "),
        ({"gpus": 1}, ": runners.gpus: '1' is more nvidia.com/gpu than a node of cpu has; allowed: 0; rule: "),
        ({"profile": "eks-p5", "gpus": 0, "efa": 4}, ": gpus is 0, and EFA and InfiniBand are for GPUs"),
        ({"profile": "eks-g6", "nodeSelector": {"node.kubernetes.io/instance-type": "g6.xlarge"}}, ": nodeSelector.node.kubernetes.io/instance-type: 'g6.xlarge': a node of eks-g6 is 'g6.48xlarge', and what the runners request is for that: leave it out, or give another profile"),
        ({"profile": "eks-g6", "nodeSelector": {"beta.kubernetes.io/instance-type": "g6.xlarge"}}, ": nodeSelector.beta.kubernetes.io/instance-type: 'g6.xlarge': a node of eks-g6 is"),
        ({"profile": "eks-g6", "cpu": "193", "daemon": False, "build": {"jobs": True}}, ": a runner requests 193 CPUs and 16 GiB, and a node of eks-g6 has 192"),
        ({"profile": "eks-g6", "memory": "64Gi", "daemon": False, "build": {"jobs": True}}, ": shm 64Gi is in memory, and a job may use 64Gi in all"),
        ({"profile": "eks-g6", "cpu": "190"}, ": a runner requests 194 CPUs and 32 GiB with its Docker daemon, and a node of eks-g6 has 192 and 768: give less in cpu and memory"),
        ({"daemon": False, "build": {"jobs": True}, "cache": "8Gi"}, ": cache has no effect, because daemon is false: leave it out"),
        ({"daemon": False, "build": {"jobs": True}, "storageClass": "gp3"}, ": storageClass has no effect, because daemon is false"),
        ({"daemon": False, "build": {"jobs": True, "rootless": True}, "dockerImage": "docker:28"}, ": dockerImage has no effect, because no Docker"),
        ({"shm": "8Gi"}, ": shm has no effect, because runners of cpu have no GPU: leave it out"),
        ({"profile": "eks-p5", "gpus": 0, "driver": "570"}, ": driver has no effect, because runners of eks-p5 have no GPU"),
        ({"minRunners": 5, "maxRunners": 2}, ": minRunners 5 is more than maxRunners 2"),
        ({"daemon": False}, ": daemon is false and there is no build service: set build.jobs: true, or leave daemon out"),
        ({"minRunners": -1}, "minRunners: Input should be greater than or equal to 0"),
        ({"cache": "200"}, "cache: a size needs a unit: 200Gi?"),
        ({"cache": "200 GB"}, "cache: expected a size such as 200Gi, with one of Ki, Mi, Gi, Ti"),
        ({"namespace": "Slip way"}, "namespace: expected 1 to 63 lower-case letters, digits and -"),
        ({"github": {"url": "https://github.com/acme"}}, "github: no credentials for GitHub: give app, token"),
        ({"github": {**GITHUB, "token": "hunter2"}}, "github: token and secret are given: keep one"),
        ({"github": {"url": GITHUB["url"], "token": ""}}, "github.token: is empty: give a value, or leave it out"),
        ({"github": {"url": GITHUB["url"], "app": {"id": "1", "installation": "", "privateKey": "hunter2"}}}, "github.app.installation: is empty"),
        ({"github": {"url": GITHUB["url"], "app": {"id": " ", "installation": "2", "privateKey": "hunter2"}}}, "github.app.id: is empty"),
        ({"github": {"url": GITHUB["url"], "app": {"id": "1", "installation": "2", "privateKey": "\n"}}}, "github.app.privateKey: is empty"),
        ({"github": {"url": "github.com/acme", "secret": "s"}}, "github.url: expected https://github.com/<organization>"),
        ({"github": {"url": "https://www.github.com/acme", "secret": "s"}}, "github.url: expected https://github.com/<organization>"),
        ({"github": {"url": "https://github.com/acme/x.git", "secret": "s"}}, "github.url: expected https://github.com/<organization>"),
        ({"github": {"url": "https://gitlab.com/acme", "secret": "s"}}, "github.url: is no address of GitHub, whose runners"),
        ({"build": {"cache": "500"}}, "build.cache: a size needs a unit: 500Gi?"),
        ({"build": {"address": "tcp://a:1"}}, "build.address: expected host:port"),
        ({"validation": {"image": "r.example/torch", "command": ["x"]}}, "validation.image: expected an image reference with a tag"),
        ({"validation": {"image": "r.example/torch:1"}}, "validation: an image's reference needs a command"),
        ({"namespace": "n" * 46}, "namespace: expected at most 45 characters"),
        ({"namespace": "default"}, "namespace: belongs to the cluster: choose a namespace for the runners alone"),
        ({"namespace": "kube-system"}, "namespace: belongs to the cluster: choose a namespace for the runners alone"),
        ({"namespace": "ci-build"}, "namespace: ends with -build, -controller or -jobs, as namespaces of build services"),
        ({"namespace": "ci-controller"}, "namespace: ends with -build, -controller or -jobs, as namespaces of build services"),
        ({"arc": {"version": "0.9.0 --x"}}, "arc.version: String should match pattern"),
        ({"arc": {"version": "0.9.3"}}, "arc.version: is too old: before 0.14.0 the charts ignore labels"),
        ({"arc": {"version": "0.13.1"}}, "arc.version: is too old: before 0.14.0 the charts ignore labels"),
        ({"arc": {"version": "0.14.1", "charts": "charts"}}, "arc: version 0.14.1: the charts in charts are of a version of their own"),
        ({"arc": {"charts": ""}}, "arc.charts: is empty: give a value, or leave it out"),
        ({"validation": {"image": "torch"}}, ": validation: runners of cpu have no GPU, which an image's own checks need"),
        ({"profile": "eks-p5", "gpus": 0, "validation": {"image": "torch"}}, ": validation: runners of eks-p5 have no GPU, which"),
        ({"group": "ml", "github": {"url": "https://github.com/acme/images", "secret": "s"}}, ": group 'ml': a repository has no runner groups"),
        ({"build": {"address": "builds.example"}}, "build.address: expected host:port, such as builds.acme.internal:2376"),
        ({"build": {"replicas": 2, "address": ["a.example:1", "b"]}}, "build.address: expected host:port, such as builds.acme.internal:2376"),
        ({"build": {"replicas": 2, "address": "a.example:1"}}, "build: address: 'a.example:1': expected 2 different ones, one for each of replicas; or leave address out"),
        ({"build": {"replicas": 2, "address": ["a.example:1"] * 2}}, "build: address: 'a.example:1, a.example:1': expected 2 different ones, one for"),
        ({"build": {"address": ["a.example:1", "b.example:1"]}}, "build: address: 'a.example:1, b.example:1': expected 1, one for each of replicas;"),
        ({"build": {"address": []}}, "build: address: '': expected 1, one for each of replicas; or leave address out if Pulumi runs in the cluster"),
        ({"build": {"replicas": 2, "jobs": True}}, "build: replicas 2 share the stack's images with buildOn: runners, and a job knows one address: leave out replicas, or jobs"),
        ({"build": {"replicas": 3, "rootless": True}}, "build: replicas 3 share the stack's images with buildOn: runners, and a job knows one address: leave out replicas, or rootless"),
        ({"build": {"replicas": 0}}, "build.replicas: Input should be greater than or equal to 1"),
        ({"build": {"replicas": 65}}, "build.replicas: Input should be less than or equal to 64"),
        ({"nodeSelector": {"a b": "c"}}, "nodeSelector.a b.[key]: expected a node's label, such as acme.example/pool"),
        ({"tolerations": [{"key": "a"}]}, "tolerations.0: give a value with the operator Equal, and none with Exists"),
        ({"runtimeClass": "Kata!"}, "runtimeClass: expected 1 to 253 lower-case letters, digits, - and ."),
        ({"disk": "100"}, "disk: a size needs a unit: 100Gi?"),
        ({"proflie": "cpu"}, ": unknown key 'proflie' (did you mean 'profile'?)"),
    ],
)  # fmt: skip
def test_kubernetes_config_invalid_is_refused_in_one_line(values: dict[str, Any], line: str) -> None:
    message = refusal(**values)
    assert message.startswith(line), message
    assert "\n" not in message
    assert "hunter2" not in message


@every("profile, instance", [("eks-p4d", "p4d.24xlarge"), ("eks-p5", "p5.48xlarge")])
def test_eks_profile_has_the_instance_type_of_its_name(profile: str, instance: str) -> None:
    """By the answers of EC2 that moto carries."""
    table = Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz"
    described = json.loads(gzip.decompress(table.read_bytes()))[instance]
    row = node(profile)
    assert row.selector == {"node.kubernetes.io/instance-type": instance}
    assert row.most(GPU) == sum(gpu["Count"] for gpu in described["GpuInfo"]["Gpus"])
    assert row.most(EFA) == described["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"]
    assert row.cores == described["VCpuInfo"]["DefaultVCpus"]
    assert row.memory == described["MemoryInfo"]["SizeInMiB"] // 1024


@every(
    "values, limits",
    [
        ({"profile": "cpu"}, {}),
        ({"profile": "eks-p5"}, {GPU: "8", EFA: "32", "hugepages-2Mi": "5120Mi"}),
        ({"profile": "eks-p4d", "gpus": 2, "efa": 0}, {GPU: "2"}),
        ({"profile": "eks-p4d", "gpus": 1}, {GPU: "1"}),
        ({"profile": "eks-p5", "gpus": 1}, {GPU: "1", EFA: "4", "hugepages-2Mi": "640Mi"}),
        ({"profile": "aks-ndv5", "gpus": 4}, {GPU: "4", INFINIBAND: "4"}),
        ({"profile": "eks-p5", "gpus": 0}, {}),
        ({"profile": "aks-ndv5", "infiniband": 4}, {GPU: "8", INFINIBAND: "4"}),
    ],
)
def test_runner_of_a_profile_requests_its_devices(values: dict[str, Any], limits: dict[str, str]) -> None:
    config = runners(**values)
    assert pod.devices(config) == limits
    (runner,) = pod.template(config, RUNNER, DOCKER)["spec"]["containers"]
    assert runner["resources"]["limits"] == {**limits, "ephemeral-storage": "100Gi"}
    assert bool(limits) == ("cpu" in runner["resources"]["requests"])  # huge pages are refused without
    pinned = bool({EFA, INFINIBAND} & limits.keys())
    assert runner["securityContext"]["capabilities"].get("add", []) == (["IPC_LOCK"] if pinned else [])
    checked = gpu_validation.job(config, ValidationConfig(image="torch"))["spec"]["template"]["spec"]["containers"][0]
    rights = checked["securityContext"]
    assert (rights["capabilities"].get("add"), rights.get("runAsUser")) == (
        (["IPC_LOCK"], 0) if pinned else (None, None)
    )
    shared = any(mount["mountPath"] == "/dev/shm" for mount in runner["volumeMounts"])
    assert shared == bool(limits)
    assert any(e["name"] == "NVIDIA_VISIBLE_DEVICES" and e["value"] == "void" for e in runner["env"]) != bool(limits)


@every(
    "values, requests, limit",
    [
        ({"profile": "eks-p5", "gpus": 1, "cpu": "22", "memory": "225Gi"}, ("22", "225Gi"), "225Gi"),
        ({"profile": "eks-p5", "gpus": 1, "cpu": "22"}, ("22", "16Gi"), None),
        ({"profile": "cpu", "cpu": "2"}, ("2", "1Gi"), None),
        ({"profile": "cpu"}, (None, None), None),  # the namespace's default
    ],
)
def test_runner_without_a_daemon_has_the_size_of_its_keys(
    values: dict[str, Any], requests: tuple[str | None, str | None], limit: str | None
) -> None:
    config = runners(daemon=False, build={"jobs": True, "nodeSelector": POOL}, **values)
    (runner,) = pod.template(config, RUNNER, DOCKER)["spec"]["containers"]
    asked = runner["resources"]["requests"]
    assert (asked.get("cpu"), asked.get("memory")) == requests
    assert runner["resources"]["limits"].get("memory") == limit
    assert config.per_node == {"22": 8, "2": None, None: None}[requests[0]]


@every("profile", node_names())
def test_pod_with_a_daemon_starts_it_before_the_runner(profile: str) -> None:
    config = runners(profile=profile, cache="300Gi", storageClass="gp3", grace=90)
    template = pod.template(config, RUNNER, DOCKER)
    spec = template["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    containers = spec["initContainers"] + spec["containers"]
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == volumes
    externals, daemon = spec["initContainers"]
    assert (externals["image"], daemon["image"]) == (RUNNER, DOCKER)
    assert daemon["restartPolicy"] == "Always"  # what makes it a sidecar
    assert [c["name"] for c in containers if c.get("securityContext", {}).get("privileged")] == ["dind"]
    assert spec["terminationGracePeriodSeconds"] > 90 * 60  # a job that is not over is cancelled in the rest
    assert spec["automountServiceAccountToken"] is False
    assert spec["nodeSelector"] == node(profile).selector
    (layers,) = [v["ephemeral"]["volumeClaimTemplate"]["spec"] for v in spec["volumes"] if v["name"] == "layers"]
    assert layers["resources"] == {"requests": {"storage": "300Gi"}}
    assert layers["storageClassName"] == "gp3"
    assert not {"topologySpreadConstraints", "affinity"} & spec.keys()  # small runners share a node
    assert json.loads(json.dumps(template)) == template


@every("profile", [name for name in node_names() if node(name).most(GPU)])
def test_runners_of_one_gpu_use_all_gpus_of_a_node(profile: str) -> None:
    row, config = node(profile), runners(profile=profile, gpus=1)
    used = pod.template(config, RUNNER, DOCKER)["spec"]["containers"][0]["resources"]["limits"]
    assert all(int(used.get(name, 0)) * row.most(GPU) <= most for name, most in row.limits.items())
    assert config.per_node == row.most(GPU)
    assert config.warnings == []
    for interfaces in range(1, row.most(EFA) + 1):  # whatever `efa` is, the huge pages of a node last for its runners
        config = runners(profile=profile, efa=interfaces, gpus=1)
        pages = int(pod.devices(config)["hugepages-2Mi"].removesuffix("Mi"))
        assert 110 < pages == pages // 2 * 2 <= int(str(row.hugepages).removesuffix("Mi")) // (config.per_node or 0)


@every(
    "values, most, warning",
    [
        ({"profile": "cpu"}, None, None),
        ({"profile": "eks-p5"}, 1, None),
        ({"profile": "eks-p5", "gpus": 2}, 4, None),
        (
            {"profile": "eks-p5", "gpus": 3},
            2,
            "2 of the 8 GPUs of a node of eks-p5 stay idle: it has room for 2 of these",
        ),
        ({"profile": "eks-p5", "gpus": 1, "efa": 32}, 1, "7 of the 8 GPUs of a node of eks-p5 stay idle"),
        ({"profile": "eks-p5", "gpus": 1, "memory": "500Gi"}, 3, "5 of the 8 GPUs of a node of eks-p5 stay idle"),
        ({"profile": "eks-p5", "gpus": 1, "cpu": "44000m"}, 4, "4 of the 8 GPUs of a node of eks-p5 stay idle"),
        ({"profile": "eks-p5", "gpus": 1, "daemon": False, "build": {"jobs": True}}, 8, None),
    ],
)
def test_runners_that_a_node_has_room_for_are_counted(
    values: dict[str, Any], most: int | None, warning: str | None
) -> None:
    config = runners(**values)
    assert config.per_node == most
    assert [(warning or "") in line for line in config.warnings] == [True] * (warning is not None)
    stack = StackConfig.model_validate(
        {"flavor": "runners", "registry": {"kind": "ghcr", "repository": "ghcr.io/acme/x"}, "runners": config}
    )
    assert stack.warnings == config.warnings


@every("build, variable", [({}, "DOCKER_HOST"), ({"rootless": True}, "BUILDKIT_HOST")])
def test_pod_without_a_daemon_is_unprivileged(build: dict[str, Any], variable: str) -> None:
    config = runners(daemon=False, build=build, maxRunners=3)
    assert config.build
    spec = pod.template(config, RUNNER, DOCKER, build_service.client(config, config.build))["spec"]
    (runner,) = spec["containers"]
    assert "initContainers" not in spec
    assert runner["securityContext"]["privileged"] is False
    assert {mount["name"] for mount in runner["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    env = {entry["name"]: entry["value"] for entry in runner["env"]}
    assert env[variable] == f"tcp://{build_service.cluster_address(config, config.build, config.replicas[0])}"
    assert "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS" not in env  # the runner would wait for a socket that nobody makes
    assert isolation.quota(config)["spec"]["hard"]["persistentvolumeclaims"] == "0"


@every("release, taken", [("0.9.3", False), ("0.13.1", False), ("0.14.0", True), ("1.0.0", True)])
def test_old_charts_of_the_checkout_are_refused(tmp_path: Path, release: str, taken: bool) -> None:
    for chart in ARC_CHARTS:
        (tmp_path / "charts" / chart).mkdir(parents=True)
        (tmp_path / "charts" / chart / "Chart.yaml").write_text(f'name: {chart}\nappVersion: "{release}"\n')
    values = {"flavor": "runners", "runners": {**FLAVOR["runners"], "arc": {"charts": "charts"}}}
    if taken:
        plan.specs(values, "stack x", tmp_path)
        return
    with pytest.raises(SlipwayError, match=f"gha-runner-scale-set/Chart.yaml: {release} is too old: before 0.14.0"):
        plan.specs(values, "stack x", tmp_path)


FLAVOR: dict[str, Any] = {"flavor": "runners", "runners": {"kind": "kubernetes", "profile": "eks-p5", "github": GITHUB}}


def test_guards_are_in_the_namespace_and_select_its_pods() -> None:
    config = runners(profile="eks-p5", maxRunners=3, namespace="gpu")
    budget, account, quota = (
        isolation.disruption_budget(config, config.namespace),
        isolation.service_account(config),
        isolation.quota(config),
    )
    policies = isolation.network_policies(config, (), "gpu")
    assert {m["metadata"]["namespace"] for m in (budget, account, quota, *policies)} == {"gpu"}
    assert isolation.namespace(config)["metadata"]["name"] == "gpu"
    labels = pod.template(config, RUNNER, DOCKER)["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert account["metadata"]["name"] == pod.template(config, RUNNER, DOCKER)["spec"]["serviceAccountName"]
    priority = isolation.builds_priority(config)["metadata"]["name"]
    assert priority == pod.template(config, RUNNER, DOCKER)["spec"]["priorityClassName"]
    assert quota["spec"]["hard"] == {
        "pods": "6",
        "persistentvolumeclaims": "6",
        "requests.nvidia.com/gpu": "48",
        "requests.vpc.amazonaws.com/efa": "192",
    }


def test_priority_class_is_low_and_replaced_on_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priority = isolation.builds_priority(runners())
    assert -10 <= priority["value"] < 0  # below -10 Cluster Autoscaler starts no node, and ends pods with theirs
    options: dict[str, Any] = {}
    kind = "pulumi_kubernetes.scheduling.v1.PriorityClass"
    monkeypatch.setattr(kind, lambda _, opts, **body: options.update(body, opts=opts))
    declaration.declare("runners", priority, pulumi.ResourceOptions())
    assert set(options["opts"].replace_on_changes) == {"value", "preemptionPolicy"}  # the API server changes neither
    assert options["opts"].delete_before_replace


def test_network_policies_close_ingress_and_node_credentials() -> None:
    closed, build = isolation.network_policies(runners(), (), "ci")
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}  # no rule: nothing may
    assert "ingress" not in build["spec"]
    web = build["spec"]["egress"][1]
    assert web["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16", "168.63.129.16/32"]}}]
    assert [port["port"] for port in web["ports"]] == [80, 443]


def test_namespace_has_its_pod_security_labels() -> None:
    controllers = isolation.controller_namespace(runners())["metadata"]["labels"]
    assert controllers["pod-security.kubernetes.io/enforce"] == "restricted"
    service: dict[str, Any] = {"daemon": False, "build": {}}
    for values, level in (
        ({}, "privileged"),
        (service, "baseline"),
        ({**service, "profile": "eks-p5"}, "privileged"),  # IPC_LOCK
        ({**service, "profile": "eks-p5", "efa": 0}, "baseline"),
    ):
        labels = isolation.namespace(runners(**values))["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == level, values
        assert labels["pod-security.kubernetes.io/warn"] == "restricted"
    namespace = build_service.namespace(runners(build={}))["metadata"]
    assert (namespace["name"], namespace["labels"]["pod-security.kubernetes.io/enforce"]) == (
        "slipway-runners-build",
        "privileged",
    )


REMOTE = {"kind": "generic", "repository": "r.example/x"}


def stack(root: Path, **keys: Any) -> str:
    """Resolve a stack with runners; return what is said of it."""
    block = {"kind": "kubernetes", "github": GITHUB, "nodeSelector": POOL, **keys.pop("runners", {})}
    with pytest.raises(SlipwayError) as caught:
        plan.specs({"flavor": "local", "runners": block, **keys}, "stack t", root)
    return str(caught.value)


@every(
    "keys, line",
    [
        (
            {"buildOn": "runners"},
            "slipway:buildOn: 'runners': the stack has no build service: set runners.build",
        ),
        (
            {"buildOn": "runners", "runners": {"build": {"rootless": True}}},
            "slipway:buildOn: 'runners': runners.build.rootless has no Docker API, which builds need: leave one of the two out",
        ),
        (
            {"runners": {"arc": {"charts": "charts"}}},
            "slipway:runners.arc.charts: 'charts': the checkout has no charts/gha-runner-scale-set-controller/Chart.yaml and no charts/gha-runner-scale-set/Chart.yaml: unpack both charts there, or leave it out",
        ),
        (
            {"runners": {"validation": {"image": "torhc", "command": ["x"]}}},
            "slipway:runners.validation.image: the stack builds no image 'torhc' (did you mean 'torch'?); it builds: torch; or give a reference with a tag or a digest",
        ),
        (
            {"publish": False, "runners": {"validation": {"image": "torch", "command": ["x"]}}},
            "slipway:runners.validation.image: 'torch': slipway:publish is false, and no cluster can pull what is not pushed: leave out validation or publish: false, or give a reference with a tag or a digest",
        ),
        (
            {
                "platform": "linux/arm64",
                "buildOn": "runners",
                "runners": {"build": {"nodeSelector": POOL}, "profile": "eks-p5"},
            },
            "slipway:buildOn: 'runners': nodes of eks-p5 are linux/amd64, and the stack's images are for linux/arm64: give slipway:runners.build.platforms a pool for linux/arm64, or slipway:engines an engine, or leave linux/arm64 out",
        ),
        (
            {
                "buildOn": "runners",
                "registry": REMOTE,
                "runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {"nodeSelector": POOL}}}},
            },
            "slipway:buildOn: 'runners': runners.build.platforms.linux/arm64: the stack has linux/amd64: leave it out",
        ),
        (
            {
                "platforms": ["linux/amd64", "linux/arm64"],
                "engines": {"linux/arm64": "ssh://arm"},
                "buildOn": "runners",
                "registry": REMOTE,
                "runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {"nodeSelector": POOL}}}},
            },
            "slipway:buildOn: 'runners': runners.build.platforms.linux/arm64: slipway:engines.linux/arm64 builds these images: leave one of the two out",
        ),
        (
            {"runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/amd64": {"nodeSelector": POOL}}}}},
            "slipway:runners: build.platforms.linux/amd64: nodes of cpu are linux/amd64 themselves: give build.replicas, or leave it out",
        ),
        (
            {"runners": {"build": {"nodeSelector": POOL, "jobs": True, "platforms": {"linux/arm64": {}}}}},
            "slipway:runners.build: platforms share the stack's images with buildOn: runners, and a job knows one address: leave out platforms, or jobs",
        ),
        (
            {"runners": {"build": {"nodeSelector": POOL, "rootless": True, "platforms": {"linux/arm64": {}}}}},
            "slipway:runners.build: platforms share the stack's images with buildOn: runners, and a job knows one address: leave out platforms, or rootless",
        ),
        (
            {"runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {"address": ["a:1", "b:1"]}}}}},
            "slipway:runners.build.platforms.linux/arm64: address: 'a:1, b:1': expected 1, one for each of replicas; or leave address out if Pulumi runs in the cluster",
        ),
        (
            {"runners": {"build": {"address": "a:1", "platforms": {"linux/arm64": {"address": "a:1"}}}}},
            "slipway:runners.build: address 'a:1' is given twice: each daemon has its own",
        ),
        (
            {
                "platforms": ["linux/amd64", "linux/arm64"],
                "buildOn": "runners",
                "registry": REMOTE,
                "runners": {"daemon": False, "build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {}}}},
            },
            "slipway:runners.build.platforms.linux/arm64.nodeSelector: the build service is privileged, and would run on any node: give the labels of a pool for it alone, such as {acme.example/pool: builds}",
        ),
        (
            {
                "platforms": ["linux/amd64", "linux/arm64"],
                "engines": {"linux/amd64": "ssh://amd"},
                "buildOn": "runners",
                "registry": REMOTE,
                "runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {"nodeSelector": POOL}}}},
            },
            "slipway:buildOn: 'runners': runners.build: slipway:engines.linux/amd64 builds these images: leave one of the two out",
        ),
        (
            {
                "platforms": ["linux/amd64", "linux/arm64/v8"],
                "buildOn": "runners",
                "registry": REMOTE,
                "engines": {"linux/arm64": "ssh://arm"},
                "runners": {"build": {"nodeSelector": POOL, "platforms": {"linux/arm64": {"nodeSelector": POOL}}}},
            },
            "slipway:platforms.1: 'linux/arm64/v8': images of linux/arm64 are for all its variants here: expected linux/arm64",
        ),
        (
            {
                "runners": {
                    "build": {"platforms": {"linux/arm64": {"nodeSelector": {**POOL, "kubernetes.io/arch": "amd64"}}}}
                }
            },
            "slipway:runners: build.platforms.linux/arm64.nodeSelector.kubernetes.io/arch: 'amd64': these pods are for linux/arm64: leave it out",
        ),
        (
            {"runners": {"nodeSelector": {**POOL, "beta.kubernetes.io/os": "windows"}}},
            "slipway:runners: nodeSelector.beta.kubernetes.io/os: 'windows': these pods are for linux/amd64: leave it out",
        ),
        (
            {
                "platforms": ["linux/arm64"],
                "registry": REMOTE,
                "runners": {"validation": {"image": "torch", "command": ["x"]}},
            },
            "slipway:runners.validation.image: 'torch': nodes of cpu are linux/amd64, and the stack's images are for linux/arm64: leave out validation",
        ),
        (
            {
                "platform": "linux/arm64",
                "registry": REMOTE,
                "runners": {"validation": {"image": "torch", "command": ["x"]}},
            },
            "slipway:runners.validation.image: 'torch': nodes of cpu are linux/amd64, and the stack's images are for linux/arm64: leave out validation",
        ),
        (
            {"registry": {"kind": "local"}, "runners": {"validation": {"image": "torch", "command": ["x"]}}},
            "slipway:runners.validation.image: 'torch' is pushed to 127.0.0.1:5000, this machine's registry, which no cluster reaches: give slipway:registry another, or leave out validation",
        ),
        (
            {"runners": {"github": {"url": "https://github.com/acme", "token": "hunter2", "secret": "s"}}},
            "slipway:runners.github: token and secret are given: keep one",
        ),
    ],
)
def test_kubernetes_stack_invalid_is_refused_in_its_plan(tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    assert stack(tmp_path, **keys) == f"stack t: {line}"


@every("platforms", [["linux/amd64", "linux/arm64"], ["linux/arm64", "linux/amd64"]])
@every("profile", ["eks-p5", "eks-p6e-gb200"])
def test_gpu_check_of_an_index_needs_one_of_its_platforms(tmp_path: Path, profile: str, platforms: list[str]) -> None:
    validation = {"image": "torch", "command": ["x"]}
    block = {"kind": "kubernetes", "github": GITHUB, "profile": profile, "validation": validation}
    keys = {"flavor": "local", "runners": block, "platforms": platforms, "registry": REMOTE}
    plan.specs(keys, "stack t", tmp_path)


@every("key", ["runners.github.token", "runners.github.app.privateKey"])
def test_github_credential_in_clear_text_is_refused(key: str) -> None:
    written: dict[str, Any] = {}
    inner = written
    *path, last = key.split(".")
    for name in path:
        inner[name] = inner = {}
    inner[last] = "hunter2"
    with pytest.raises(SlipwayError, match=f"^stack t: slipway:{key}: is in clear text in the stack's file") as caught:
        check_clear_text(written, "stack t")
    assert "hunter2" not in str(caught.value)
    inner[last] = {"secure": "AAAB"}
    check_clear_text(written, "stack t")


def test_certificates_serve_their_hosts_only() -> None:
    pems = certificates.make(["build.slipway-runners.svc", "127.0.0.1"])
    server, client = (ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    with tempfile.TemporaryDirectory() as folder:
        for context, side in ((server, "server"), (client, "client")):
            pair = Path(folder, f"{side}.pem")
            pair.write_text(pems[f"{side}_cert"] + pems[f"{side}_key"])
            context.load_cert_chain(pair)
            context.load_verify_locations(cadata=pems["ca"])
            context.verify_flags |= ssl.VERIFY_X509_STRICT
    server.verify_mode = ssl.CERT_REQUIRED
    for name in ("build.slipway-runners.svc", "127.0.0.1"):
        assert shaken(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(server, client, "elsewhere.example")
    anonymous = ssl.create_default_context(cadata=pems["ca"])
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shaken(server, anonymous, "127.0.0.1")
    for name in ("ca", "server_cert", "client_cert"):
        certificate = x509.load_pem_x509_certificate(pems[name].encode())
        now = datetime.now(UTC)
        assert timedelta(hours=1) <= now - certificate.not_valid_before_utc < timedelta(hours=1, minutes=5)
        left = certificate.not_valid_after_utc - now
        assert timedelta(days=5 * 365 - 1) < left <= timedelta(days=5 * 365)


def test_certificate_authority_is_no_side_of_a_connection() -> None:
    authority = x509.load_pem_x509_certificate(certificates.make(["build"])["ca"].encode())
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not any((usage.digital_signature, usage.key_encipherment, usage.key_agreement))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bool:
    """Have both sides shake hands in memory; whatever one has against the other is raised."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return all(side.version() for side in sides)


def test_checks_several_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    lines = stack(
        tmp_path,
        budgets={"torhc": "3 GB"},
        trust={"quay.io": {"publicKey": "awskms:///alias/a"}},
        platform="linux/arm64",
        runners={"arc": {"charts": "charts"}, "validation": {"image": "torch", "command": ["x"]}},
    ).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "slipway:budgets",
        "slipway:trust",
        "slipway:runners.arc.charts",
        "slipway:runners.validation.image",
        "slipway:runners.validation.image",
    ]
