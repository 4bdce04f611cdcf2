"""Several sets of runners in one stack: what each has of its own, and what all share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from cli.stack_checks import _room
from components.runners.kubernetes import isolation, job_pods, pod
from containers.image.gpu.node_labels import GPU
from stacks import flavors
from stacks.checks.collisions import shared_runners
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_config import StackConfig
from stacks.versions.nodes import EFA
from tests.fakes.pulumi_mocks import Recorder, run
from tests.helpers.every import every
from tests.unit.runners.test_kubernetes_runners import RELEASE, objects, plainly, validate

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
POOL = {"acme.example/pool": "ci"}
SETS: dict[str, Any] = {
    "small": {"cpu": "2", "memory": "8Gi", "maxRunners": 9, "nodeSelector": POOL},
    "h100-1": {"profile": "eks-p5", "gpus": 1, "labels": ["H100"], "group": "gpus"},
    "h100-8": {"profile": "eks-p5", "minRunners": 1, "maxRunners": 2, "disk": "900Gi", "cache": "2Ti"},
}


def values(**more: Any) -> dict[str, Any]:
    return {"kind": "kubernetes", "github": GITHUB, "sets": SETS, **more}


def runners(**more: Any) -> KubernetesRunnersConfig:
    return KubernetesRunnersConfig.model_validate(values(**more))


def declared(**more: Any) -> Recorder:
    return run(runners=values(**more))[0]


@every(
    "more", [{}, {"jobPods": True, "sets": {n: {k: v for k, v in s.items() if k != "cache"} for n, s in SETS.items()}}]
)
def test_each_set_is_a_scale_set_of_its_own(more: dict[str, Any]) -> None:
    recorder = declared(**more)
    charts = recorder.of_type(RELEASE)
    assert charts.keys() == {
        "runners-gha-runner-scale-set-controller",
        *(f"runners-gha-runner-scale-set-{n}" for n in SETS),
    }
    own = {name: charts[f"runners-gha-runner-scale-set-{name}"] for name in SETS}
    assert {each["name"] for each in own.values()} == SETS.keys()
    assert {each["namespace"] for each in own.values()} == {"slipway-runners"}
    got = {name: each["values"] for name, each in own.items()}
    assert {name: each["runnerScaleSetName"] for name, each in got.items()} == {name: name for name in SETS}
    assert [(each["minRunners"], each["maxRunners"], each["runnerGroup"]) for each in got.values()] == [
        (0, 9, "default"), (0, 4, "gpus"), (1, 2, "default"),
    ]  # fmt: skip
    assert got["h100-1"]["scaleSetLabels"] == ["h100-1", "H100"]
    assert {each["githubConfigSecret"] for each in got.values()} == {"github"}
    if not more:
        gpus = {name: _limits(each["template"]).get(GPU) for name, each in got.items()}
        assert gpus == {"small": None, "h100-1": "1", "h100-8": "8"}
        return
    for name, each in got.items():
        (volume,) = (one for one in each["template"]["spec"]["volumes"] if one["name"] == "jobs")
        files = objects(recorder)[f"ConfigMap {volume['configMap']['name']}"]["data"]
        assert json.loads(files["job.json"])["spec"]["containers"][0]["resources"]["limits"].get(GPU) == {
            "small": None, "h100-1": "1", "h100-8": "8",
        }[name]  # fmt: skip


def _limits(template: dict[str, Any]) -> dict[str, str]:
    (runner,) = template["spec"]["containers"]
    limits: dict[str, str] = runner["resources"]["limits"]
    return limits


def test_namespace_of_sets_has_room_for_all_of_them() -> None:
    config = runners()
    assert isolation.quota(config)["spec"]["hard"] == {
        "pods": "30",
        "persistentvolumeclaims": "30",
        f"requests.{GPU}": str(2 * (4 * 1 + 2 * 8)),
        f"requests.{EFA}": str(2 * (4 * 4 + 2 * 32)),
    }
    assert isolation.disruption_budget(config, config.namespace)["spec"]["minAvailable"] == 15
    limits = isolation.limit_range(config, config.namespace)["spec"]["limits"]
    assert limits[-1]["max"] == {"storage": "2Ti"}
    own = {json.dumps(pod.labels(each)) for each in (config, *config.all_sets)}
    assert len(own) == 1  # what selects runners selects those of each set
    jobs = runners(jobPods=True, sets={"a": {"profile": "eks-p5", "gpus": 2}, "b": {"maxRunners": 1}})
    (quota,) = (each for each in job_pods.guarded(jobs, ()) if each["kind"] == "ResourceQuota")
    assert quota["spec"]["hard"] == {
        "pods": "20", "persistentvolumeclaims": "0", f"requests.{GPU}": "16", f"requests.{EFA}": "64",
    }  # fmt: skip
    level = "pod-security.kubernetes.io/enforce"
    assert job_pods.namespace(jobs)["metadata"]["labels"][level] == "privileged"


@every("more", [{}, {"sets": {"a": {}, "b": {"profile": "eks-p5"}}, "jobPods": True}])
def test_objects_of_sets_are_valid_and_have_one_name(more: dict[str, Any]) -> None:
    recorder = declared(**more)
    for manifest in objects(recorder).values():
        validate(json.dumps(plainly(manifest), sort_keys=True))
    assert len(objects(recorder)) > 10


@every(
    "more, line",
    [
        ({"sets": {"a": {"profile": "eks-p5", "gpus": 9}}}, "sets.a: runners.gpus: '9' is more nvidia.com/gpu than a node of eks-p5 has; allowed: 0 to 8; rule: stacks/versions/nodes.toml"),
        ({"sets": {"a": {"minRunners": 5}}}, "sets.a: minRunners 5 is more than maxRunners 4"),
        ({"sets": {"a": {"cpu": "193", "profile": "eks-g6"}}}, "sets.a: a runner requests 197 CPUs and 32 GiB with its Docker daemon, and a node of eks-g6 has 192 and 768: give less in cpu and memory"),
        ({"sets": {"a": {"shm": "1Gi"}}}, "sets.a: shm has no effect, because runners of cpu have no GPU: leave it out"),
        ({"sets": {"a": {}, "b": {"labels": ["A"]}}}, "sets.b.labels: 'a' is the name of a set, by which jobs choose that one: give another label, or leave it out"),
        ({"sets": {"a": {"grace": 5}}}, "unknown key 'grace'"),
        ({"sets": {"a" * 46: {}}}, "expected at most 45 characters, which ARC's chart allows for a scale set's name"),
    ],
)  # fmt: skip
def test_set_that_cannot_be_is_refused_by_name(more: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        runners(**more)
    (error,) = caught.value.errors()
    assert error["msg"].removeprefix("Value error, ").startswith(line)


def test_what_a_set_leaves_out_is_as_beside_the_sets() -> None:
    config = runners(profile="eks-p5", shm="128Gi", jobPods=True, sets={"a": {"gpus": 2}, "b": {"profile": "cpu"}})
    first, second = config.all_sets
    assert (first.devices[GPU], first.shm, first.profile, first.per_node) == (2, "128Gi", "eks-p5", 4)
    assert (second.devices, second.profile) == ({}, "cpu")  # shm has no effect there, and no set has given it


def test_set_without_a_pool_for_its_daemon_is_named() -> None:
    assert runners().unpooled == ()
    sets = {"a": {}, "b": {"nodeSelector": POOL}}
    assert runners(sets=sets).unpooled == ("sets.a.nodeSelector",)


def stack(**more: Any) -> StackConfig:
    return flavors.load({"flavor": "runners", "runners": values(**more)}, "stack t")


def test_sets_of_one_name_in_two_stacks_collide() -> None:
    one = stack(namespace="one", sets={"a": {"nodeSelector": POOL}, "b": {"nodeSelector": POOL}})
    for more, line in (
        ({"sets": {"b": {"nodeSelector": POOL}}}, "both have the runner scale set b of https://github.com/acme"),
        ({"sets": {"c": {"nodeSelector": POOL}}}, ""),
        ({"sets": {"b": {"nodeSelector": POOL, "group": "other"}}}, ""),
        ({"github": {**GITHUB, "url": "https://github.com/else"}, "sets": {"b": {"nodeSelector": POOL}}}, ""),
    ):
        lines = shared_runners({"x": one, "y": stack(namespace="two", **more)})
        assert bool(lines) == bool(line), lines
        assert line in "".join(lines)
    single = flavors.load(
        {
            "flavor": "runners",
            "runners": {"kind": "kubernetes", "github": GITHUB, "namespace": "a", "nodeSelector": POOL},
        },
        "s",
    )
    assert len(shared_runners({"x": one, "y": single})) == 1


def test_check_says_how_many_of_each_set_fit_a_node() -> None:
    assert _room(runners()) == ", runners a node: 8 of h100-1, 1 of h100-8"
    assert _room(runners(sets={"a": {}})) == ""


MIG, SHARED = "nvidia.com/mig-3g.40gb", "rdma/shared_ib"


@every("more", [{}, {"jobPods": True}])
def test_parts_of_gpus_are_requested_by_their_name(more: dict[str, Any]) -> None:
    given = {"profile": "aks-ndv5", "gpus": 2, "gpuResource": MIG, "infiniband": 1, "infinibandResource": SHARED}
    config = KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, **given, **more})
    own = {MIG: "2", SHARED: "1"}
    spec = job_pods.template(config)["spec"] if more else pod.template(config, "r:1", "d:1")["spec"]
    (container,) = spec["containers"]
    assert own.items() <= container["resources"]["limits"].items()
    assert not {GPU, "rdma/ib"} & container["resources"]["limits"].keys()
    assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]
    quotas = [
        isolation.quota(config),
        *(each for each in job_pods.guarded(config, ()) if each["kind"] == "ResourceQuota"),
    ]
    assert f"requests.{MIG}" in quotas[bool(more)]["spec"]["hard"]
    assert f"requests.{GPU}" not in quotas[bool(more)]["spec"]["hard"]
    assert config.warnings == []  # how many a node has is not known


@every(
    "given, line",
    [
        ({"gpuResource": MIG, "profile": "cpu", "gpus": 1}, "gpuResource: nodes of cpu have no nvidia.com/gpu: leave it out, or give another profile"),
        ({"gpuResource": MIG, "profile": "eks-p5"}, "gpuResource: how many of them a runner gets is not known: give gpus, 1 or more"),
        ({"infinibandResource": SHARED, "profile": "eks-p5", "infiniband": 1}, "infinibandResource: nodes of eks-p5 have no rdma/ib: leave it out, or give another profile"),
        ({"gpuResource": "mig", "profile": "eks-p5", "gpus": 1}, "expected a resource of nodes, such as nvidia.com/mig-3g.40gb"),
    ],
)  # fmt: skip
def test_name_of_a_resource_that_says_nothing_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, **given})
    assert caught.value.errors()[0]["msg"].removeprefix("Value error, ") == line


def test_parts_of_gpus_may_be_more_than_the_gpus() -> None:
    config = KubernetesRunnersConfig.model_validate(
        {"kind": "kubernetes", "github": GITHUB, "profile": "eks-p5", "gpus": 14, "gpuResource": MIG, "jobPods": True}
    )
    assert config.resources == {MIG: 14}  # and no EFA: what part of a node this is, is not known
    usual = KubernetesRunnersConfig.model_validate(
        {"kind": "kubernetes", "github": GITHUB, "profile": "eks-p5", "gpuResource": GPU}
    )
    assert usual.resources == usual.devices
