"""What an object of the runners names is there: pods by their labels, ports, accounts, volumes, classes of priority.

These are the checks of kube-linter (stackrox/kube-linter v0.7.21, ``kube-linter checks list``) that checkov has no equal
of: dangling-*, mismatching-selector, invalid-target-ports, non-existent-service-account, duplicate-env-var, ssh-port,
privileged-ports, use-namespace. ``tests/cluster/test_checkov.py`` has what kube-linter finds beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from tests.cluster.test_checkov import OTHER, written
from tests.unit.runners.test_kubernetes_runners import WHOLE

CONTROLLER = "controller"
"""End of the namespace whose pods are those of GitHub's chart."""

CLUSTER_WIDE = {"Namespace", "PriorityClass"}
JOB_PODS: dict[str, Any] = {"profile": "eks-p5", "gpus": 2, "jobPods": True, "build": {"jobs": True}}
DOCKER: dict[str, Any] = {
    **JOB_PODS,
    "gpus": 8,
    "daemon": True,
    "dockerGpus": True,
    "dockerImage": "r.example/docker:1",
}
CLAIMS: dict[str, Any] = {**WHOLE, "profile": "eks-p5", "gpuClaim": {}}
SHARED: dict[str, Any] = {**JOB_PODS, "efa": 0, "gpuClaim": {"shared": True}}
STACKS: Mapping[str, dict[str, Any]] = {
    "whole": WHOLE,
    "rootless": OTHER,
    "jobPods": JOB_PODS,
    "claims": CLAIMS,
    "a shared claim": SHARED,
    "Docker in job pods": DOCKER,
}

Manifest = dict[str, Any]
Found = tuple[str, str, str]


@cache
def manifests(stack: str) -> list[Manifest]:
    return written(**STACKS[stack])


def place(manifest: Manifest) -> Found:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def pods(stack: str) -> Iterator[tuple[str, Mapping[str, str], Manifest]]:
    """Yield the namespace, the labels and the specification of each pod, also of those that a template makes."""
    for manifest in manifests(stack):
        if manifest["kind"] in {"CronJob", "Deployment", "Job", "Pod"}:
            pod = manifest["spec"].get("jobTemplate", manifest)
            pod = pod if manifest["kind"] == "Pod" else pod["spec"]["template"]
            yield manifest["metadata"]["namespace"], pod.get("metadata", {}).get("labels", {}), pod["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def selector(manifest: Manifest) -> Mapping[str, str] | None:
    """Return the labels of the pods that an object is about; None if it is about none."""
    spec = manifest.get("spec", {})
    selectors: Mapping[str, Any] = {
        "Service": {"matchLabels": spec.get("selector")},
        "NetworkPolicy": spec.get("podSelector"),
        "PodDisruptionBudget": spec.get("selector"),
        "Deployment": spec.get("selector"),
    }
    if manifest["kind"] not in selectors:
        return None
    labels: Mapping[str, str]
    ((key, labels),) = (selectors[manifest["kind"]] or {"matchLabels": {}}).items()
    assert key == "matchLabels"
    return labels


def selected(stack: str, manifest: Manifest, labels: Mapping[str, str]) -> list[Manifest]:
    namespace = manifest["metadata"]["namespace"]
    return [pod for where, own, pod in pods(stack) if where == namespace and labels.items() <= own.items()]


pytestmark = pytest.mark.parametrize("stack", STACKS)


def test_object_of_pods_selects_one(stack: str) -> None:
    about = {
        place(one): selected(stack, one, labels) for one in manifests(stack) if (labels := selector(one)) is not None
    }
    assert len(about) > 10
    assert {name for name, those in about.items() if not those and not name[1].endswith(CONTROLLER)} == set()


def test_deployment_makes_the_pods_that_it_selects(stack: str) -> None:
    deployments = [one for one in manifests(stack) if one["kind"] == "Deployment"]
    assert deployments
    for one in deployments:
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_service_leads_to_a_port_of_its_pods(stack: str) -> None:
    services = [one for one in manifests(stack) if one["kind"] == "Service"]
    assert services
    for one in services:
        (pod,) = selected(stack, one, one["spec"]["selector"])
        ports = [port for container in containers(pod) for port in container.get("ports", [])]
        known = {port.get("name") for port in ports} | {port["containerPort"] for port in ports}
        assert {port.get("targetPort", port["port"]) for port in one["spec"]["ports"]} <= known


def test_pod_uses_what_its_namespace_has(stack: str) -> None:
    there = {place(one) for one in manifests(stack)}
    for namespace, _, pod in pods(stack):
        needed = {("ServiceAccount", namespace, pod["serviceAccountName"])} if "serviceAccountName" in pod else set()
        assert needed or pod.get("automountServiceAccountToken") is False
        if name := pod.get("priorityClassName"):
            needed.add(("PriorityClass", "", name))
        for claim in pod.get("resourceClaims", []):
            kind = "ResourceClaimTemplate" if "resourceClaimTemplateName" in claim else "ResourceClaim"
            needed.add((kind, namespace, claim.get("resourceClaimTemplateName") or claim["resourceClaimName"]))
        for volume in pod.get("volumes", []):
            assert "hostPath" not in volume
            if "secret" in volume:
                needed.add(("Secret", namespace, volume["secret"]["secretName"]))
            if "persistentVolumeClaim" in volume:
                needed.add(("PersistentVolumeClaim", namespace, volume["persistentVolumeClaim"]["claimName"]))
        assert needed - there == set()


def test_container_has_each_variable_once_and_no_low_port(stack: str) -> None:
    for _, _, pod in pods(stack):
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in containers(pod):
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names))
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            assert all(port["containerPort"] >= 1024 for port in container.get("ports", []))


def test_object_is_in_a_namespace_of_the_stack(stack: str) -> None:
    namespaces = {one["metadata"]["name"] for one in manifests(stack) if one["kind"] == "Namespace"}
    for one in manifests(stack):
        kind, namespace, _ = place(one)
        assert namespace in ({""} if kind in CLUSTER_WIDE else namespaces), place(one)
