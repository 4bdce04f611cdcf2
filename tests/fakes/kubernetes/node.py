"""A stand-in for a node and its kubelet: the scheduler counts its resources, and its pods run as soon as they are bound.

No container runs; tests with it cover the API server, the controllers and the scheduler. A pod of a Job succeeds at
once, or fails if its command is ``false``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.cluster.control_plane import Cluster

_MERGE = {"Content-Type": "application/merge-patch+json"}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ready() -> dict[str, Any]:
    return {"type": "Ready", "status": "True", "lastHeartbeatTime": _now(), "lastTransitionTime": _now(), "reason": "x"}


def _offered(extra: Mapping[str, str]) -> dict[str, str]:
    return {"cpu": "192", "memory": "2000Gi", "pods": "110", "ephemeral-storage": "2000Gi", **extra}


def _phase(pod: dict[str, Any]) -> str:
    if pod["spec"]["restartPolicy"] != "Never" or not any(
        owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", [])
    ):
        return "Running"
    return "Failed" if pod["spec"]["containers"][0].get("command") == ["false"] else "Succeeded"


def _state(phase: str) -> dict[str, Any]:
    if phase == "Running":
        return {"running": {"startedAt": _now()}}
    code = int(phase == "Failed")
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": _now()}}


def _run(cluster: Cluster, name: str) -> None:
    for pod in cluster.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}"):
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            cluster.session.delete(f"{cluster.server}{path}?gracePeriodSeconds=0", timeout=10)
        elif pod["status"].get("phase") == "Pending":
            phase = _phase(pod)
            up = phase == "Running"
            status = {
                "phase": phase,
                "conditions": [*pod["status"].get("conditions", []), {**_ready(), "status": str(up)}],
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "image": container["image"],
                        "imageID": "",
                        "ready": up,
                        "started": up,
                        "restartCount": 0,
                        "state": _state(phase),
                    }
                    for container in pod["spec"]["containers"]
                ],
            }
            cluster.session.patch(f"{cluster.server}{path}/status", json={"status": status}, headers=_MERGE, timeout=10)


@contextmanager
def repeated(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call ``action`` again and again in a thread until the block ends, with so many seconds between."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


@contextmanager
def node(
    cluster: Cluster, name: str, labels: Mapping[str, str], extra: Mapping[str, str], taints: Sequence[str] = ()
) -> Iterator[None]:
    """Add a node with extended resources and taints until the block ends; ``extra`` are the resources' counts."""
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, **labels}
    metadata = {"name": name, "labels": labels}
    spec = {"taints": [{"key": key, "value": "gpu", "effect": "NoSchedule"} for key in taints]}
    cluster.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    beats = count()

    def live() -> None:
        if next(beats) % 30 == 0:
            status = {"capacity": _offered(extra), "allocatable": _offered(extra), "conditions": [_ready()]}
            cluster.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, headers=_MERGE)
        _run(cluster, name)

    try:
        with repeated(live, 0.3):
            yield
    finally:
        cluster.call("DELETE", f"/api/v1/nodes/{name}")
