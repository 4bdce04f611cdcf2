"""Stacks of runners through the real engine on a real API server: admission, quota, RBAC, scheduling, deletion."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from containers.image.gpu.node_labels import GPU
from stacks.versions.nodes import EFA, node_names
from tests.cluster.conftest import ClusterProject
from tests.cluster.control_plane import until
from tests.cluster.programs import program
from tests.fakes.kubernetes.node_pools import pool

pytestmark = pytest.mark.slow

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
SETS = "/apis/actions.github.com/v1alpha1"
POLICY = "/apis/policy/v1"


def runner_pod(project: ClusterProject, name: str) -> dict[str, Any]:
    """Make the pod that ARC would, from the scale set's template; return its path's answer."""
    (scale_set,) = project.cluster.items(project.at("autoscalingrunnersets", api=SETS))
    template = scale_set["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": template["metadata"]["labels"]},
        "spec": {"restartPolicy": "Never", **template["spec"]},
    }
    return project.cluster.call("POST", f"{project.at('pods')}?fieldValidation=Strict", pod)


def unscheduled(project: ClusterProject, name: str) -> str:
    """Return why the scheduler finds no node for a pod, as far as it has said so."""
    status = project.cluster.get(project.at("pods", name))["status"]
    return "".join(c.get("message", "") for c in status.get("conditions", []) if c["reason"] == "Unschedulable")


@pytest.mark.parametrize("profile", node_names())
def test_profile_runner_is_scheduled_and_destroy_is_complete(project: ClusterProject, profile: str) -> None:
    cluster = project.cluster
    project.configure({"profile": profile, "maxRunners": 1})
    assert "Traceback" not in project.preview().output
    with pool(cluster, profile):
        project.up()
        expected = {"kind": "kubernetes", "namespace": project.namespace, "scaleSet": project.namespace}
        assert project.outputs()["runners"] == expected
        (controller,) = cluster.items(f"/api/v1/namespaces/{project.namespace}-controller/pods")
        runner_pod(project, "first")
        until(lambda: cluster.get(project.at("pods", "first"))["status"]["phase"] == "Running")
        runner = cluster.get(project.at("pods", "first"))
        assert runner["spec"]["nodeName"] == profile
        if profile != "cpu":  # without a taint, so that others run there too
            assert controller["spec"]["nodeName"] == "plain"
        runner_pod(project, "successor")  # while the first one may still be ending

        def full() -> bool:
            status = cluster.get(project.at("resourcequotas", "runners"))["status"]
            return bool(status["used"] == status["hard"])

        until(full)
        with pytest.raises(AssertionError, match="exceeded quota: runners"):
            runner_pod(project, "third")
        assert UNCHANGED.search(project.up().output)
        for name in ("successor", "first"):
            project.cluster.call("DELETE", project.at("pods", name))
        project.destroy()
    spaces = {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}
    assert not [name for name in spaces if name.startswith(project.namespace)]
    classes = cluster.items("/apis/scheduling.k8s.io/v1/priorityclasses")
    assert not [entry for entry in classes if entry["metadata"]["name"].startswith(project.namespace)]
    until(lambda: not cluster.items("/api/v1/persistentvolumes"), description="the volumes are gone")


def reaches(state: Mapping[str, dict[str, Any]], urn: str) -> set[str]:
    """Return what a resource depends on, directly and by others."""
    direct = set(state[urn].get("dependencies", []))
    return direct.union(*(reaches(state, each) for each in direct))


def test_runners_without_a_daemon_refuse_privileged_pods(project: ClusterProject) -> None:
    project.configure({"profile": "cpu", "daemon": False, "build": {}, "maxRunners": 2})
    with pool(project.cluster, "cpu"):
        project.up()
        runner_pod(project, "first")
        until(lambda: project.cluster.get(project.at("pods", "first"))["status"]["phase"] == "Running")
        # Runners, and the service that waits for them, end before their certificate and their way to it do.
        state = {each["urn"]: each for each in json.loads(project.exported())["deployment"]["resources"]}
        named = {urn.rpartition("::")[2]: urn for urn in state}
        clients = {named["runners-secret-build-client"], named["runners-networkpolicy-build-clients"]}
        for each in ("runners-deployment-build", "runners-gha-runner-scale-set"):
            assert clients <= reaches(state, named[each]), each
        container = {"name": "c", "image": "r.example/c:1", "securityContext": {"privileged": True}}
        pod = {"metadata": {"name": "second"}, "spec": {"containers": [container]}}
        with pytest.raises(AssertionError, match="violates PodSecurity .{1,2}baseline:latest.*privileged=true"):
            project.cluster.call("POST", project.at("pods"), pod)
        assert UNCHANGED.search(project.up().output)
        project.cluster.call("DELETE", project.at("pods", "first"))
        project.destroy()
    spaces = {entry["metadata"]["name"] for entry in project.cluster.items("/api/v1/namespaces")}
    assert not [name for name in spaces if name.startswith(project.namespace)]


def test_runners_claim_the_gpus_that_they_select(project: ClusterProject) -> None:
    """By the API server's own CEL, the controller that makes claims, the scheduler that grants them, and the quota."""
    cluster, claims = project.cluster, "/apis/resource.k8s.io/v1"
    small = {"profile": "eks-p5", "maxRunners": 1}
    project.configure({**small, "gpus": 2, "gpuClaim": {"mig": "3g.40gb"}})
    driver = "gpu.nvidia.com"
    of_mig = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'mig'"
    class_of_mig = {"metadata": {"name": "mig.nvidia.com"}, "spec": {"selectors": [{"cel": {"expression": of_mig}}]}}
    parts = {"small": "1g.10gb", **{f"half-{number}": "3g.40gb" for number in range(3)}}
    devices = [
        {"name": name, "attributes": {"type": {"string": "mig"}, "profile": {"string": profile}}}
        for name, profile in parts.items()
    ]
    node_pool = {"name": "eks-p5", "generation": 1, "resourceSliceCount": 1}
    offered = {"nodeName": "eks-p5", "driver": driver, "pool": node_pool, "devices": devices}
    with pool(cluster, "eks-p5"):
        cluster.call("POST", f"{claims}/deviceclasses", class_of_mig)
        cluster.call("POST", f"{claims}/resourceslices", {"metadata": {"name": "eks-p5"}, "spec": offered})
        project.up()
        runner_pod(project, "first")
        until(lambda: cluster.get(project.at("pods", "first"))["spec"].get("nodeName") == "eks-p5")
        (claim,) = cluster.items(project.at("resourceclaims", api=claims))
        granted = [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]
        assert [parts[name] for name in granted] == ["3g.40gb"] * 2
        runner_pod(project, "second")
        until(lambda: "cannot allocate all claims" in unscheduled(project, "second"))
        quota = "mig.nvidia.com.deviceclass.resource.k8s.io/devices"
        until(lambda: cluster.get(project.at("resourcequotas", "runners"))["status"]["used"].get(quota) == "4")
        # The template cannot be changed in place.
        project.configure({**small, "gpus": 1, "gpuClaim": {"mig": "1g.10gb"}})
        project.up()
        (template,) = cluster.items(project.at("resourceclaimtemplates", api=claims))
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == 1
        for name in ("first", "second"):
            cluster.call("DELETE", project.at("pods", name))
        project.destroy()
        for each in ("deviceclasses/mig.nvidia.com", "resourceslices/eks-p5"):
            cluster.call("DELETE", f"{claims}/{each}")


def test_runner_without_a_fitting_node_waits_with_its_reason(project: ClusterProject) -> None:
    project.configure({"profile": "eks-p4d"})
    with pool(project.cluster, "eks-p4d", **{GPU: "8", "hugepages-2Mi": "5120Mi"}):
        project.up()
        runner_pod(project, "waits")
        until(lambda: f"Insufficient {EFA}" in unscheduled(project, "waits"))


def test_runner_that_builds_is_not_evicted(project: ClusterProject) -> None:
    project.configure({"profile": "cpu"})
    with pool(project.cluster, "cpu"):
        project.up()
        runner_pod(project, "builds")
        until(lambda: project.cluster.get(project.at("pods", "builds"))["status"]["phase"] == "Running")
        budget = project.at("poddisruptionbudgets", "runners", api=POLICY)
        until(lambda: project.cluster.get(budget).get("status", {}).get("currentHealthy") == 1)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "builds"}}
        with pytest.raises(AssertionError, match="Cannot evict pod as it would violate the pod's disruption budget"):
            project.cluster.call("POST", f"{project.at('pods', 'builds')}/eviction", eviction)


def test_gpu_checks_are_an_output_or_fail_the_update(
    project: ClusterProject,
) -> None:
    def checks(command: str, minutes: int = 1) -> dict[str, Any]:
        validation = {"image": "r.example/torch:1", "command": [command], "minutes": minutes}
        return {"profile": "eks-p5", "validation": validation}

    project.configure(checks("true"))
    with pool(project.cluster, "eks-p5"):
        project.up()
        assert project.outputs()["runners"]["validation"] == {"image": "r.example/torch:1", "passed": True}
        project.configure(checks("false"))
        failed = project.up(check=False)
        assert failed.returncode != 0
        assert "gpu-checks" in failed.output
        assert "Job has reached the specified backoff limit" in failed.output, failed.output
    with pool(project.cluster, "eks-p5", **{GPU: "8", "hugepages-2Mi": "5120Mi"}):
        project.configure(checks("other"))
        failed = project.up(check=False)
        assert failed.returncode != 0
        assert f"no node of eks-p5 (there: 1) offers more than 0 {EFA}" in failed.output, failed.output
    with pool(project.cluster, "eks-p5"):  # mended, and nothing of the stack is changed
        project.up()
        assert project.outputs()["runners"]["validation"] == {"image": "r.example/torch:1", "passed": True}
        assert UNCHANGED.search(project.up().output)


def test_gpu_checks_outlive_a_disruption(project: ClusterProject) -> None:
    checks = {"image": "r.example/torch:1", "command": ["true"], "minutes": 5}
    project.configure({"profile": "eks-p5", "validation": checks})
    cluster, pods = project.cluster, f"{project.at('pods')}?labelSelector=app.kubernetes.io/component=gpu-checks"
    with pool(cluster, "eks-p5", **{GPU: "0"}):
        update = project.start("up", "-s", "t", "--yes", "--skip-preview")
        until(lambda: len(cluster.items(pods)) == 1)
        (first,) = (each["metadata"]["name"] for each in cluster.items(pods))
        disrupted = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": "drained",
        }
        status = {"status": {"phase": "Failed", "conditions": [disrupted]}}
        merge = {"Content-Type": "application/merge-patch+json"}
        cluster.call("PATCH", f"{project.at('pods', first)}/status", status, headers=merge)
        until(lambda: {each["metadata"]["name"] for each in cluster.items(pods)} - {first})
    with pool(cluster, "eks-p5"):
        output, _ = update.communicate()
        assert update.returncode == 0, output
        assert project.outputs()["runners"]["validation"] == {"image": "r.example/torch:1", "passed": True}


def test_runners_and_controller_have_few_permissions(project: ClusterProject) -> None:
    project.configure({"profile": "cpu", "build": {}})
    with pool(project.cluster, "cpu"):
        project.up()
    cluster, space = project.cluster, project.namespace
    runner, service = f"system:serviceaccount:{space}:runner", f"system:serviceaccount:{space}-build:build"
    controller = f"system:serviceaccount:{space}-controller:controller"
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        for resource in ("pods", "secrets", "pods/exec", "serviceaccounts/token", "configmaps", "nodes", "namespaces"):
            for who, where in product((runner, service), (space, f"{space}-build", "kube-system", "")):
                assert not cluster.can(who, verb, resource, namespace=where), (who, verb, resource, where)
        assert not cluster.can(controller, verb, "secrets", namespace="kube-system")
        assert not cluster.can(controller, verb, "secrets")
        assert not cluster.can(controller, verb, "clusterroles", group="rbac.authorization.k8s.io")
    assert cluster.can(controller, "create", "pods", namespace=space)  # so that the question is the right one


def test_credentials_are_in_the_cluster_alone(project: ClusterProject) -> None:
    project.environment |= {"SLIPWAY_REGISTRY_USERNAME": "u", "SLIPWAY_REGISTRY_PASSWORD": "hunter2"}
    project.configure(
        {
            "profile": "cpu",
            "github": {"url": "https://github.com/acme"},
            "validation": {"image": "r.example/torch:1", "command": ["true"]},
        },
        registry={"kind": "generic", "repository": "r.example/x"},
    )
    project.pulumi("config", "set", "-s", "t", "--secret", "--path", "slipway:runners.github.token", "hunter2")
    with pool(project.cluster, "cpu"):
        outputs = [project.preview("--diff").output, project.up().output, project.exported()]
    secret = project.cluster.get(project.at("secrets", "github"))["data"]
    assert base64.b64decode(secret["github_token"]) == b"hunter2"
    pulled = project.cluster.get(project.at("secrets", "gpu-checks"))
    assert pulled["type"] == "kubernetes.io/dockerconfigjson"
    assert base64.b64encode(b"u:hunter2") in base64.b64decode(pulled["data"][".dockerconfigjson"])
    job = project.cluster.get(project.at("jobs", "gpu-checks", api="/apis/batch/v1"))
    assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "gpu-checks"}]
    secrets = ["hunter2", *(base64.b64encode(clear).decode() for clear in (b"hunter2", b"u:hunter2"))]
    assert not [word for word in secrets for text in outputs if word in text]
    (scale_set,) = project.cluster.items(project.at("autoscalingrunnersets", api=SETS))
    assert scale_set["spec"]["githubConfigSecret"] == "github"


def test_clear_text_token_or_missing_context_is_one_line(project: ClusterProject) -> None:
    project.configure({"github": {"url": "https://github.com/acme", "token": "hunter2"}})
    failed = project.preview(check=False)
    assert failed.returncode != 0
    assert "slipway:runners.github.token: is in clear text in the stack's file" in failed.output
    assert "hunter2" not in failed.output
    project.configure({"context": "elsewhere"})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert 'context "elsewhere" does not exist' in failed.output
    assert "Traceback" not in failed.output


def scale_set(project: ClusterProject) -> str:
    """Return the path of the project's scale set."""
    return project.at("autoscalingrunnersets", project.namespace, SETS)


@contextmanager
def busy_set(project: ClusterProject) -> Iterator[Callable[[], None]]:
    """Deploy a scale set that is not gone before its job, as ARC has it; yield what ends the job and waits for that."""
    cluster = project.cluster

    def finalizers(names: list[str] | None) -> None:
        merge = {"Content-Type": "application/merge-patch+json"}
        cluster.call("PATCH", scale_set(project), {"metadata": {"finalizers": names}}, headers=merge)

    def end_job() -> None:
        finalizers(None)
        until(lambda: not cluster.items(project.at("autoscalingrunnersets", api=SETS)))

    project.configure({"profile": "cpu"})
    with pool(cluster, "cpu"):
        project.up()
        finalizers(["acme.example/job"])
        yield end_job


def test_given_up_deletion_takes_no_new_scale_set_with_it(project: ClusterProject) -> None:
    """ARC ends a scale set with the last job of its runners; Helm forgets the release, and would take the rest for the new one."""
    cluster, path = project.cluster, scale_set(project)
    with busy_set(project) as end_job:
        of_set = ["--namespace", project.namespace, "--kubeconfig", str(cluster.kubeconfig)]
        given_up = subprocess.run(
            [program("helm"), "uninstall", project.namespace, "--wait", "--timeout", "2s", *of_set],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "context deadline exceeded" in given_up.stderr
        project.configure({"profile": "cpu", "labels": ["new"]})
        refused = project.up(check=False)
        assert refused.returncode != 0
        assert f"{project.namespace}/{project.namespace}: the scale set is being deleted, and waits" in refused.output
        end_job()
        project.pulumi("up", "-s", "t", "--yes", "--skip-preview", "--refresh")
        assert "deletionTimestamp" not in cluster.get(path)["metadata"]
        assert UNCHANGED.search(project.up().output)
        project.destroy()


def test_interrupted_destroy_goes_on_with_a_refresh(project: ClusterProject) -> None:
    cluster, path = project.cluster, scale_set(project)
    with busy_set(project) as end_job:
        destroy = project.start("destroy", "-s", "t", "--yes", "--skip-preview")
        until(lambda: cluster.get(path)["metadata"].get("deletionTimestamp"))
        os.killpg(destroy.pid, signal.SIGKILL)  # as when its machine is lost; an interrupt waits for Helm
        destroy.communicate()
        project.pulumi("cancel", "-s", "t", "--yes")
        assert cluster.items(project.at("pods", of="-controller"))
        end_job()
        project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview", "--refresh")
    spaces = {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}
    assert not [name for name in spaces if name.startswith(project.namespace)]


def test_missing_devices_and_waiting_runners_warn(project: ClusterProject) -> None:
    project.configure({"profile": "eks-p4d"})
    with pool(project.cluster, "eks-p4d", **{GPU: "8", "hugepages-2Mi": "5120Mi"}):
        output = project.up().output
        warning = f"warning: no node of eks-p4d (there: 1) offers more than 0 {EFA}, and a runner asks for 4: is the"
        assert warning in output, output
        assert f"more than 0 {GPU}" not in output
        output = project.up().output
        assert f"{project.namespace}-controller has no listener, so that queued jobs get no runner" in output
