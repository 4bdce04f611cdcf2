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

from stacks.errors import one_line
from stacks.runners import KubernetesRunners
from stacks.versions.nodes import EFA, GPU, INFINIBAND, node

WAITED = timedelta(minutes=2)
"""A pod that has no node for so long is told of."""

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
        said = getattr(error, "stderr", None) or str(error)
        return [f"the cluster does not answer kubectl: {one_line(said.strip())}"]


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
    space = f"{config.namespace}-controller"
    pods = _items(config, "pods", f"--namespace={space}")
    for pod in pods:
        why = _not_ready(pod)
        if why:
            yield f"{space}/{pod['metadata']['name']} does not work, so that queued jobs get no runner: {why}"
    if pods and not any("listener" in pod["metadata"]["name"] for pod in pods):
        yield (
            f"{space} has no listener, so that queued jobs get no runner: are runners.github.url and its credentials "
            f"right? kubectl logs --namespace {space} --selector app.kubernetes.io/part-of=gha-rs-controller"
        )


def _waiting(config: KubernetesRunners) -> Iterator[str]:
    for pod in _items(config, "pods", f"--namespace={config.namespace}"):
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        since = datetime.now(UTC) - made
        if pod["status"].get("phase") == "Pending" and since > WAITED:
            name, minutes = pod["metadata"]["name"], int(since.total_seconds() // 60)
            yield f"{config.namespace}/{name} has waited {minutes} min: {_not_ready(pod)}"


def _not_ready(pod: Item) -> str:
    """Return why a pod does not run; empty where it does, or has ended well."""
    if pod["status"].get("phase") == "Succeeded":
        return ""
    for container in pod["status"].get("containerStatuses", []):
        state = container.get("state", {}).get("waiting") or container.get("state", {}).get("terminated")
        if state:
            return one_line(f"{state.get('reason', '')}: {state.get('message', '')}".rstrip(": "), _LONGEST)
    for condition in pod["status"].get("conditions", []):
        if condition["status"] == "False" and condition.get("message"):
            return one_line(condition["message"], _LONGEST)
    return "" if pod["status"].get("phase") == "Running" else "it is not scheduled yet"
