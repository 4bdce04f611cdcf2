"""What a cluster shows of trouble that else is silent: devices that no node offers, jobs for which no runner comes.

It is asked by ``kubectl``, which knows every way to log in to a cluster, before an update; a preview asks nobody.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stacks.config.kubernetes import KubernetesRunners
from stacks.errors import one_line
from stacks.versions.nodes import EFA, GPU, INFINIBAND, node

WAITED = timedelta(minutes=2)
"""A pod that has no node for so long is told of."""

_RUNNERS = "ephemeralrunners.actions.github.com"
"""ARC's own object for each runner, there before its pod; a pod that cannot be made leaves its reason here alone."""

_SECONDS = 20
_LONGEST = 400
"""Characters of a reason: the scheduler gives one for each kind of node."""

_PLUGINS = {
    GPU: "does NVIDIA's device plugin or GPU operator run there?",
    EFA: "is the instance type in supportedInstanceLabels of the EFA device plugin, which leaves others out silently, "
    "and has the node group EFA interfaces? What runs there without would fall back to TCP",
    INFINIBAND: "does the SR-IOV or shared RDMA device plugin run there, with the resource name rdma/ib?",
}

Item = dict[str, Any]


def warnings(config: KubernetesRunners) -> list[str]:
    """Return one line for each thing that keeps jobs waiting, or why nothing is known of it."""
    try:
        return [*_devices(config), *_controller(config), *_waiting(config)]
    except FileNotFoundError:
        return [
            "kubectl is not on PATH: whether jobs wait for a runner, or for a device that no node offers, is not known"
        ]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [f"the cluster does not answer kubectl: {one_line(_said(error))}"]


def _said(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    # Where time ran out, text is bytes (Python's documentation of TimeoutExpired).
    return (said.decode(errors="replace") if isinstance(said, bytes) else said).strip()


def _items(config: KubernetesRunners, *words: str) -> list[Item]:
    kubeconfig = config.kubeconfig and str(Path(config.kubeconfig).expanduser())
    where = [("--kubeconfig", kubeconfig), ("--context", config.context)]
    options = [word for name, value in where if value for word in (name, value)]
    command = ["kubectl", *options, "get", *words, "--output=json", f"--request-timeout={_SECONDS}s"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS * 2)
    found: list[Item] = json.loads(done.stdout)["items"]
    return found


def _devices(config: KubernetesRunners) -> Iterator[str]:
    """Compare what nodes of the profile offer with what one runner asks for; none may be there, and come when asked."""
    selector = ",".join(f"{key}={value}" for key, value in node(config.profile).selector.items())
    nodes = _items(config, "nodes", f"--selector={selector}")
    if not nodes:
        return
    for resource, asked in config.devices.items():
        most = max(int(entry["status"].get("allocatable", {}).get(resource, "0")) for entry in nodes)
        if most < asked:
            yield (
                f"no node of {config.profile} (there: {len(nodes)}) offers more than {most} {resource}, and a runner "
                f"asks for {asked}: {_PLUGINS[resource]}"
            )


def _controller(config: KubernetesRunners) -> Iterator[str]:
    """Look for the controller and its listener, without which a job stays queued at GitHub and nobody says so."""
    space = config.controller_namespace
    pods = _items(config, "pods", f"--namespace={space}")
    for pod in pods:
        why = _not_ready(pod)
        if why:
            yield f"{space}/{pod['metadata']['name']} does not work, so that queued jobs get no runner: {why}"
    if not pods and _items(config, "namespaces", f"--field-selector=metadata.name={space}"):
        yield f"{space} has no pod, so that queued jobs get no runner: kubectl get events --namespace {space}"
    if pods and not any("listener" in pod["metadata"]["name"] for pod in pods):
        yield (
            f"{space} has no listener, so that queued jobs get no runner: are runners.github.url and its credentials "
            f"right? {_log(config)}"
        )


def _log(config: KubernetesRunners) -> str:
    """Return how the controller's log is read."""
    return (
        f"kubectl logs --namespace {config.controller_namespace} --selector app.kubernetes.io/part-of=gha-rs-controller"
    )


def _waiting(config: KubernetesRunners) -> Iterator[str]:
    spaces = [config.namespace, *([config.build_namespace] if config.build else [])]
    pods = {space: _items(config, "pods", f"--namespace={space}") for space in spaces}
    for space, pod in ((space, pod) for space, found in pods.items() for pod in found):
        if pod["status"].get("phase") == "Pending" and _age(pod) > WAITED:
            yield f"{space}/{pod['metadata']['name']} has waited {_minutes(pod)}: {_not_ready(pod)}"
    there = {pod["metadata"]["name"] for pod in pods[config.namespace]}
    for runner in _runners(config):
        name, status = runner["metadata"]["name"], runner.get("status", {})
        said = one_line(status.get("message") or status.get("reason") or "", _LONGEST)
        if status.get("phase") == "Failed":
            yield (
                f"{config.namespace}/{name} has failed, and takes a runner's place until it is deleted: {said}; "
                f"kubectl delete --namespace {config.namespace} {_RUNNERS} {name}"
            )
        elif status.get("phase") in {None, "", "Pending"} and name not in there and _age(runner) > WAITED:
            yield f"{config.namespace}/{name} has waited {_minutes(runner)} and has no pod: {said or _log(config)}"


def _runners(config: KubernetesRunners) -> list[Item]:
    try:
        return _items(config, _RUNNERS, f"--namespace={config.namespace}")
    except subprocess.CalledProcessError as error:
        if "the server doesn't have a resource type" in _said(error):  # before the first update
            return []
        raise


def _age(made: Item) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(made["metadata"]["creationTimestamp"])


def _minutes(made: Item) -> str:
    return f"{int(_age(made).total_seconds() // 60)} min"


def _not_ready(pod: Item) -> str:
    """Return why a pod does not run; empty where it does, or has ended well.

    A container that starts first is asked first: what waits for it only says so.
    """
    status = pod["status"]
    if status.get("phase") == "Succeeded":
        return ""
    if status.get("phase") == "Failed" and status.get("message"):
        return one_line(f"{status.get('reason', '')}: {status['message']}".lstrip(": "), _LONGEST)
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        state = container.get("state", {})
        ended = state.get("terminated")
        if why := state.get("waiting") or (ended if ended and ended.get("exitCode") else None):
            return one_line(f"{why.get('reason', '')}: {why.get('message', '')}".rstrip(": "), _LONGEST)
    for condition in status.get("conditions", []):
        if condition["status"] == "False" and condition.get("message"):
            return one_line(condition["message"], _LONGEST)
    return {"Running": "", "Failed": "it has failed"}.get(status.get("phase", ""), "it is not scheduled yet")
