"""What is told of a cluster before an update, from what ``kubectl`` says of it; a script says it in its place here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from components.runners.kubernetes import cluster_health
from components.runners.kubernetes.build_daemon import service_labels
from containers.image.gpu.kubectl import not_ready
from containers.image.gpu.node_labels import GPU
from stacks.config.cluster.build_config import BuildServiceConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.plan import specs
from stacks.versions.nodes import EFA, HUGEPAGES
from tests.helpers.every import every

CONFIG = KubernetesRunnersConfig.model_validate(
    {
        "kind": "kubernetes",
        "profile": "eks-p5",
        "context": "mine",
        "github": {"url": "https://github.com/acme", "secret": "s"},
    }
)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, but for what a shell script needs."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def says(folder: Path, **items: list[Any]) -> None:
    """Have kubectl answer with ``nodes``, the runners' ``pods`` and ``runners``, those of the ``build`` service and its
    ``deployments``, the scale ``sets``, Helm's ``charts``, the ``jobs`` in pods of their own, and those ``own`` to the controller's namespace, which is among the ``namespaces``, and the stack's ``spaces``; what is not given is empty, and a kind of ``runners`` unknown then.
    """
    for name in (
        "nodes",
        "pods",
        "own",
        "runners",
        "namespaces",
        "spaces",
        "build",
        "deployments",
        "jobs",
        "sets",
        "charts",
    ):
        (folder / f"{name}.json").write_text(json.dumps({"items": items.get(name, [])}))
    (folder / "unknown").write_text('error: the server doesn\'t have a resource type "ephemeralrunners"\n')
    known = f"cat {folder}/runners.json" if "runners" in items else f"cat {folder}/unknown >&2; exit 1"
    program = folder / "kubectl"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
  *"get nodes"*) cat {folder}/nodes.json;;
  *"get secrets --namespace=slipway-runners --selector=owner=helm "*) cat {folder}/charts.json;;
  *"get secrets"*"--selector=owner=helm "* | *"arc-systems"*) echo '{{"items": []}}';;
  *"get namespaces --field-selector=metadata.name=slipway-runners-controller"*) cat {folder}/namespaces.json;;
  *"get namespaces --selector=app.kubernetes.io/part-of=slipway "*) cat {folder}/spaces.json;;
  *"get autoscalingrunnersets.actions.github.com --namespace=slipway-runners "*) cat {folder}/sets.json;;
  *"get ephemeralrunners.actions.github.com --namespace=slipway-runners "*) {known};;
  *"--namespace=slipway-runners-controller"*) cat {folder}/own.json;;
  *"get pods --namespace=slipway-runners "*) cat {folder}/pods.json;;
  *"get pods --namespace=slipway-runners-jobs "*) cat {folder}/jobs.json;;
  *"get pods --namespace=slipway-runners-build "*) cat {folder}/build.json;;
  *"get deployments.apps --namespace=slipway-runners-build "*) cat {folder}/deployments.json;;
esac
"""
    )
    program.chmod(0o755)


def node(driver: str = "", **offered: str) -> dict[str, Any]:
    labels = {"nvidia.com/cuda.driver-version.full": driver} if driver else {}
    metadata = {"name": "gpu-1", "labels": labels}
    return {"metadata": metadata, "status": {"allocatable": {GPU: "8", EFA: "32", HUGEPAGES: "10256Mi", **offered}}}


def pod(name: str, phase: str = "Running", minutes: int = 0, **status: Any) -> dict[str, Any]:
    created = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"name": name, "creationTimestamp": created}, "status": {"phase": phase, **status}}


def test_warnings_of_a_healthy_or_empty_cluster_are_none(kubectl: Path) -> None:
    says(kubectl)
    assert cluster_health.warnings(CONFIG) == []
    well = [pod("r1", minutes=60)]
    says(kubectl, nodes=[node()], pods=well, own=[pod("controller-1"), pod("x-listener")], runners=well)
    assert cluster_health.warnings(CONFIG) == []
    calls = (kubectl / "calls").read_text().splitlines()
    assert all(line.startswith("--context mine get ") for line in calls)


def test_reason_of_an_old_engine_says_what_to_do() -> None:
    """A kubelet's words of containerd 1.4.11 (home-operations/containers#1177)."""
    words = (
        'rpc error: code = Unknown desc = failed to pull and unpack image "r.example/a:1": failed to extract layer '
        "sha256:7bb2: mount callback failed on /var/lib/containerd/tmpmounts/1: archive/tar: invalid tar header: unknown"
    )
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": words}}}
    assert not_ready(pod("r1", "Pending", containerStatuses=[waiting])).endswith(
        "unknown; an engine that knows no zstd says so: update it, Docker to 23.0 or containerd to 1.5, or publish the image "
        "with slipway:compression: {kind: gzip}"
    )


def test_docker_in_jobs_on_nodes_without_a_taint_is_refused(kubectl: Path) -> None:
    """A job has the node of its Docker daemon; the profile tolerates a taint that the nodes need not have."""
    given = {"jobPods": True, "daemon": True, "nodeSelector": {"acme.example/pool": "ci"}}
    values = CONFIG.model_dump(by_alias=True, exclude_unset=True)
    config = KubernetesRunnersConfig.model_validate({**values, **given})
    taints = {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
    for labels, spec, named in (
        ({}, {}, False),
        (given["nodeSelector"], {}, True),
        (given["nodeSelector"], taints, False),
    ):
        entry = {**node(), "spec": spec, "metadata": {"name": "gpu-1", "labels": labels}}
        says(kubectl, nodes=[entry])
        lines = cluster_health.refusals(config)
        assert [line.split(": no taint keeps runners away")[0] for line in lines] == ["node gpu-1, of eks-p5"] * named
    says(kubectl, nodes=[{**node(), "metadata": {"name": "gpu-1", "labels": given["nodeSelector"]}}])
    assert cluster_health.refusals(KubernetesRunnersConfig.model_validate({**values, "jobPods": True})) == []


def test_warnings_of_a_job_without_its_runner_name_it(kubectl: Path) -> None:
    config = KubernetesRunnersConfig.model_validate(
        {**CONFIG.model_dump(by_alias=True, exclude_unset=True), "jobPods": True}
    )
    jobs = [pod("r1-workflow", minutes=60), pod("r2-workflow", minutes=60), pod("r3-workflow")]
    for job in jobs:
        job["metadata"]["labels"] = {"runner-pod": job["metadata"]["name"].removesuffix("-workflow")}
    says(kubectl, pods=[pod("r1", minutes=61)], jobs=jobs)
    (line,) = cluster_health.warnings(config)
    assert line == (
        "slipway-runners-jobs/r2-workflow keeps its devices, and its runner is gone: the sweeper ends it within three "
        "minutes, else kubectl delete pod --namespace slipway-runners-jobs r2-workflow"
    )


@pytest.mark.parametrize(
    ("runtime", "older"),
    [
        ("containerd://1.4.13", True),
        ("docker://20.10.24", True),
        ("containerd://1.5.0", False),
        ("docker://23.0.1", False),
        ("cri-o://1.20.0", False),
        ("", False),
    ],
)
def test_warnings_of_zstd_name_nodes_of_older_engines(kubectl: Path, runtime: str, *, older: bool) -> None:
    _, images = specs({"flavor": "local", "compression": {"kind": "zstd"}}, "x")
    entry = node()
    entry["status"]["nodeInfo"] = {"containerRuntimeVersion": runtime}
    says(kubectl, nodes=[entry])
    assert cluster_health.warnings(CONFIG) == []
    lines = [line for line in cluster_health.warnings(CONFIG, images) if "zstd" in line]
    assert [line.partition(" pulls")[0] for line in lines] == [f"gpu-1, of eks-p5: {runtime}"] * older


def test_warnings_without_a_device_name_its_plugin(kubectl: Path) -> None:
    says(kubectl, nodes=[node(**{EFA: "0"})] * 2)
    (line,) = cluster_health.warnings(CONFIG)
    assert line.startswith(f"no node of eks-p5 (there: 2) offers more than 0 {EFA}, and a runner asks for 32: ")
    assert "supportedInstanceLabels" in line
    says(kubectl, nodes=[node(**{HUGEPAGES: "0"}), node(**{HUGEPAGES: "2Gi"})])
    (line,) = cluster_health.warnings(CONFIG)
    assert "(there: 2) offers more than 2048Mi hugepages-2Mi, and a runner asks for 5120Mi: is EFA's driver" in line


def test_warnings_of_an_old_driver_name_images_and_nodes(kubectl: Path) -> None:
    """The stack's file says 580 of the profile; the nodes' labels say what is there."""
    images = specs({"flavor": "local"}, "stack x")[1]
    says(kubectl, nodes=[node("575.57.08"), node("580.95.05")])
    (line,) = cluster_health.warnings(CONFIG, images)
    clause = "driver 575.57.08 does not run torch with CUDA 13.0, which needs 580 or newer"
    assert line == f"node gpu-1, of eks-p5: {clause}: update the nodes' driver"
    assert cluster_health.warnings(CONFIG.model_copy(update={"gpus": 0}), images) == []
    says(kubectl, nodes=[node("580.95.05"), node()])
    assert cluster_health.warnings(CONFIG, images) == []


def test_warnings_without_a_listener_name_its_cause(kubectl: Path) -> None:
    pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    says(kubectl, own=[pod("controller-1", "Pending", containerStatuses=[pulling])])
    first, second = cluster_health.warnings(CONFIG)
    assert first == (
        "slipway-runners-controller/controller-1 does not work, so that queued jobs get no runner: ImagePullBackOff: not found"
    )
    assert second.startswith("slipway-runners-controller has no listener, so that queued jobs get no runner: ")
    reason = {"status": "False", "message": f"0/3 nodes are available: 3 Insufficient {GPU}."}
    says(kubectl, pods=[pod("r1", "Pending", 7, conditions=[reason]), pod("r2", "Pending", 1, conditions=[reason])])
    assert cluster_health.warnings(CONFIG) == [f"slipway-runners/r1 has waited 7 min: {reason['message']}"]


def test_warnings_with_a_pending_build_service_name_its_reason(kubectl: Path) -> None:
    reason = {"status": "False", "message": "0/3 nodes are available: 3 Insufficient memory."}
    says(kubectl, build=[pod("build-1", "Pending", 7, conditions=[reason])])
    assert cluster_health.warnings(CONFIG) == []  # it has none
    with_service = CONFIG.model_copy(update={"build": BuildServiceConfig()})
    assert cluster_health.warnings(with_service) == [
        f"slipway-runners-build/build-1 has waited 7 min: {reason['message']}"
    ]


def test_warnings_name_a_replica_that_does_not_work(kubectl: Path) -> None:
    def replica(number: int | str, minutes: int = 60, ready: int = 0) -> dict[str, Any]:
        named = pod(f"build-{number}", minutes=minutes)
        selector = {"matchLabels": service_labels(str(number))}
        return {**named, "spec": {"selector": selector}, "status": {"readyReplicas": ready} if ready else {}}

    def pod_of(number: int, phase: str = "Running", **status: Any) -> dict[str, Any]:
        running = pod(f"build-{number}-x", phase, 1, **status)
        return {
            **running,
            "metadata": {**running["metadata"], "labels": {**service_labels(str(number)), "pod-template-hash": "x"}},
        }

    crashed = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}
    unready = {"status": "False", "message": "containers with unready status: [daemon]"}
    says(
        kubectl,
        deployments=[replica(0, ready=1), replica(1), replica(2), replica(3), replica(4, minutes=1), replica(5)],
        build=[
            pod_of(0),
            pod_of(1, containerStatuses=[crashed]),
            pod_of(3, "Pending"),  # as any other that waits
            pod_of(5, conditions=[unready]),
        ],
    )
    several = CONFIG.model_copy(update={"build": BuildServiceConfig(replicas=6)})
    assert cluster_health.warnings(several) == [
        f"slipway-runners-build/build-{number} does not work, so that other replicas build for it: {reason}"
        for number, reason in (
            (1, "CrashLoopBackOff: back-off 5m0s"),
            (2, "it has no pod"),
            (5, "containers with unready status: [daemon]"),
        )
    ]
    assert cluster_health.warnings(CONFIG.model_copy(update={"build": BuildServiceConfig()})) == []
    # Of a service for both platforms, the daemons of the other one are reported by their own number.
    pools = {"linux/arm64": {"replicas": 2}}
    both = CONFIG.model_copy(update={"build": BuildServiceConfig.model_validate({"platforms": pools})})
    says(kubectl, deployments=[replica(0), *(replica(name) for name in ("arm64", "arm64-1"))], build=[])
    assert cluster_health.warnings(both) == [
        f"slipway-runners-build/build-{name} does not work, so that other replicas build for it: it has no pod"
        for name in ("arm64", "arm64-1")
    ]


def test_warnings_with_a_runner_without_a_pod_name_its_reason(kubectl: Path) -> None:
    why = 'Failed to create the pod: pods "r1" is forbidden: violates PodSecurity'
    failed = pod("r1", "Failed", message=why, reason="InvalidPod")
    says(
        kubectl, runners=[failed, pod("r2", "", 7), pod("r3", "Pending", 1), pod("r4", "Pending", 7)], pods=[pod("r4")]
    )
    first, second = cluster_health.warnings(CONFIG)
    assert first == (
        f"slipway-runners/r1 has failed, and takes a runner's place until it is deleted: {why}; "
        "kubectl delete --namespace slipway-runners ephemeralrunners.actions.github.com r1"
    )
    assert second.startswith("slipway-runners/r2 has waited 7 min and has no pod: kubectl logs --namespace slipway-")


def test_warnings_without_a_controller_pod_name_its_namespace(kubectl: Path) -> None:
    says(kubectl, namespaces=[{"metadata": {"name": "slipway-runners-controller"}}])
    (line,) = cluster_health.warnings(CONFIG)
    assert line.startswith("slipway-runners-controller has no pod, so that queued jobs get no runner: kubectl get ev")


def state(**of: Any) -> dict[str, Any]:
    return {"state": of}


@every(
    "phase, status, why",
    [
        (
            "Pending",
            {
                "initContainerStatuses": [
                    state(terminated={"exitCode": 0, "reason": "Completed"}),
                    state(waiting={"reason": "CrashLoopBackOff", "message": "back-off"}),
                ],
                "containerStatuses": [state(waiting={"reason": "PodInitializing"})],
            },
            "CrashLoopBackOff: back-off",
        ),
        ("Failed", {"reason": "Evicted", "message": "low on resource: memory"}, "Evicted: low on resource: memory"),
        ("Failed", {"containerStatuses": [state(terminated={"exitCode": 1, "reason": "Error"})]}, "Error"),
        ("Failed", {}, "it has failed"),
        ("Pending", {}, "it is not scheduled yet"),
        ("Running", {"initContainerStatuses": [state(terminated={"exitCode": 0, "reason": "Completed"})]}, ""),
    ],
)
def test_reason_of_a_pod_is_that_of_its_first_blocked_part(phase: str, status: dict[str, Any], why: str) -> None:
    assert not_ready(pod("r1", phase, **status)) == why


def test_warnings_after_a_timeout_are_one_line(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("containers.image.gpu.kubectl.SECONDS", 0.5)
    program = kubectl / "kubectl"
    program.write_text("#!/bin/sh\necho 'open a browser at ...' >&2\nexec sleep 60\n")
    program.chmod(0o755)
    assert cluster_health.warnings(CONFIG) == ["the cluster does not answer kubectl: open a browser at ..."]


def test_warnings_without_kubectl_or_cluster_are_one_line(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = kubectl / "kubectl"
    program.write_text("#!/bin/sh\necho 'error: context \"mine\" does not exist' >&2\nexit 1\n")
    program.chmod(0o755)
    assert cluster_health.warnings(CONFIG) == [
        'the cluster does not answer kubectl: error: context "mine" does not exist'
    ]
    monkeypatch.setenv("PATH", str(kubectl / "nothing"))
    (line,) = cluster_health.warnings(CONFIG)
    assert line.startswith("kubectl is not on PATH: ")


def test_controllers_namespace_that_is_gone_is_told(kubectl: Path) -> None:
    says(kubectl, sets=[pod("gpu")])
    assert cluster_health.warnings(CONFIG) == [
        "the namespace slipway-runners-controller is gone, so that queued jobs get no runner: run `pulumi up --refresh`"
    ]
    arc = {"controller": {"namespace": "arc-systems", "account": "arc"}}
    config = KubernetesRunnersConfig.model_validate(
        {**CONFIG.model_dump(by_alias=True, exclude_unset=True), "arc": arc}
    )
    (line,) = cluster_health.warnings(config)
    assert line == (
        "the namespace arc-systems is gone, so that queued jobs get no runner: the organization has to make its controller "
        "again"
    )


def test_chart_that_no_update_mends_is_told(kubectl: Path) -> None:
    def revision(name: str, number: int, status: str) -> dict[str, Any]:
        return {"metadata": {"labels": {"name": name, "version": str(number), "status": status}}}

    def again(name: str) -> str:
        return f"run `helm uninstall {name} --namespace slipway-runners`, then `pulumi up --refresh`"

    of_set = CONFIG.scale_set
    charts = [revision("a", 9, "failed"), revision("b", 9, "failed"), revision("b", 10, "deployed")]
    says(kubectl, charts=[*charts, revision("c", 1, "pending-upgrade"), revision(of_set, 1, "deployed")])
    why = {
        "a": "Helm's last revision of the chart is failed: if this update leaves it so",
        "c": "Helm's last revision of the chart is pending-upgrade: if this update leaves it so",
        of_set: "the scale set is gone, and Helm still has its chart, so that jobs get no runner: to have it again",
    }
    told = [f"slipway-runners/{name}: {line}, {again(name)}" for name, line in why.items()]
    assert cluster_health.warnings(CONFIG)[:3] == told
    says(kubectl, charts=[revision(of_set, 1, "deployed")], sets=[pod(of_set)])
    assert not [line for line in cluster_health.warnings(CONFIG) if "Helm" in line]


def test_namespace_that_is_being_deleted_is_refused(kubectl: Path) -> None:
    well, leaving, other = pod("slipway-runners-controller"), pod("slipway-runners"), pod("others")
    for each in (leaving, other):
        each["metadata"]["deletionTimestamp"] = "2026-11-28T09:45:02Z"
    says(kubectl, spaces=[well, leaving, other])
    line = (
        "slipway-runners: the namespace is being deleted, and takes nothing new: run `pulumi up --refresh` once kubectl get "
        "namespace slipway-runners no longer has it"
    )
    assert cluster_health.refusals(CONFIG) == [line]
    held = "Some content in the namespace has finalizers remaining: acme.example/job in 1 resource instances"
    leaving["status"] = {"conditions": [{"type": "NamespaceFinalizersRemaining", "message": held}]}
    says(kubectl, spaces=[well, leaving, other])
    assert cluster_health.refusals(CONFIG) == [f"{line}; it waits: {held}"]


def test_scale_set_that_is_being_deleted_is_told(kubectl: Path) -> None:
    """Helm takes it for the new one's, which then goes with the last job."""
    well, gone = pod("warm"), pod("h100-8")
    gone["metadata"]["deletionTimestamp"] = "2026-11-28T09:45:02Z"
    says(kubectl, sets=[well])
    assert cluster_health.refusals(CONFIG) == []
    says(kubectl, sets=[well, gone])
    (line,) = cluster_health.refusals(CONFIG)
    assert line == (
        "slipway-runners/h100-8: the scale set is being deleted, and no controller of ARC runs in "
        "slipway-runners-controller that ends it: start it again, or release the set by hand "
        "(docs/runners/kubernetes-upgrade-and-remove.md, "
        "A controller that is gone)"
    )
    says(kubectl, sets=[well, gone], own=[{**pod("controller"), "status": {"availableReplicas": 1}}])
    (line,) = cluster_health.refusals(CONFIG)
    assert line.startswith("slipway-runners/h100-8: the scale set is being deleted, and waits for the jobs")
    assert "pulumi up --refresh" in line
    for broken in (
        "exit 1",
        "echo '{\"items\": [1]}'",
        "echo 'error: the server doesn\\'t have a resource type' >&2; exit 1",
    ):
        (kubectl / "kubectl").write_text(f"#!/bin/sh\n{broken}\n")
        assert cluster_health.refusals(CONFIG) == []  # the warnings say why


def test_other_minor_release_needs_a_prepared_state(kubectl: Path) -> None:
    """Without it, the controller alone would become another, and would delete the sets that it finds."""

    def lines(present: str, wanted: str, **annotations: str) -> list[str]:
        labels = {"app.kubernetes.io/version": present}
        says(kubectl, sets=[{"metadata": {"name": "gpu", "labels": labels, "annotations": annotations}}])
        return cluster_health.refusals(
            CONFIG.model_copy(update={"arc": CONFIG.arc.model_copy(update={"version": wanted})})
        )

    (line,) = lines("0.14.2", "0.15.0")
    assert line == (
        "slipway-runners/gpu: the scale set is of ARC 0.14.2, and this release of Slipway has not updated it yet, so that "
        "a change to 0.15 would not end its jobs first: run `pulumi up` once with the charts of 0.14.2, then with those of "
        "0.15"
    )
    assert lines("0.14.2-acme", "0.15.0", **{"slipway/arc": ""})  # the state has no release to compare
    assert lines("0.14.2", "0.14.3") == []
    assert lines("0.14.2", "0.15.0", **{"slipway/arc": "0.14"}) == []
