"""Stacks of runners through the real engine on a real API server: admission, quota, RBAC, scheduling, deletion."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stacks.versions.nodes import node, node_names
from tests.cluster.conftest import ClusterProject
from tests.cluster.control_plane import Cluster, until
from tests.cluster.node import node as running_node

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
SETS = "/apis/actions.github.com/v1alpha1"
POLICY = "/apis/policy/v1"
NETWORK = "/apis/networking.k8s.io/v1"
EVERYONE = "system:serviceaccount"


def offered(profile: str) -> dict[str, str]:
    """Return what a node of a profile offers beside CPUs and memory."""
    row = node(profile)
    pages = {"hugepages-2Mi": row.hugepages} if row.hugepages else {}
    return {**{name: str(count) for name, count in row.limits.items()}, **pages}


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
    """Return why the scheduler finds no node for a pod."""

    def why() -> str:
        status = project.cluster.get(project.at("pods", name))["status"]
        return "".join(c.get("message", "") for c in status.get("conditions", []) if c["reason"] == "Unschedulable")

    message: str = until(why)
    return message


@pytest.mark.parametrize("profile", node_names())
def test_each_profile_is_admitted_its_runner_finds_its_node_and_nothing_is_left(
    project: ClusterProject, profile: str
) -> None:
    cluster = project.cluster
    project.configure({"profile": profile, "maxRunners": 1})
    with running_node(cluster, f"{profile}-1", node(profile).selector, **offered(profile)):
        if not profile.startswith(("eks", "aks")):
            assert project.preview().returncode == 0
        else:
            with running_node(cluster, "plain", {}):  # the controller needs no GPU, nor does it get one's node
                project.up()
        if profile == "cpu":
            project.up()
        assert project.outputs()["runners"] == {
            "kind": "kubernetes",
            "namespace": project.namespace,
            "scaleSet": project.namespace,
        }
        runner_pod(project, "first")
        until(lambda: cluster.get(project.at("pods", "first"))["status"]["phase"] == "Running")
        used = cluster.get(project.at("resourcequotas", "runners"))["status"]
        assert all(used["used"][name] == count for name, count in used["hard"].items() if name.startswith("requests"))
        assert UNCHANGED.search(project.up().shown)
        project.destroy()
    spaces = {entry["metadata"]["name"] for entry in cluster.items("/api/v1/namespaces")}
    assert not [name for name in spaces if name.startswith(project.namespace)]
    classes = cluster.items("/apis/scheduling.k8s.io/v1/priorityclasses")
    assert not [entry for entry in classes if entry["metadata"]["name"].startswith(project.namespace)]
