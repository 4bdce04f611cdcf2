"""A stand-in for a node and its kubelet: the scheduler counts what it offers, and its pods run as soon as they are bound.

No container runs; what is shown with it is what the API server, the controllers and the scheduler do. A pod of a Job
ends at once: well, unless its command is ``false``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
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
def node(
    cluster: Cluster, name: str, labels: Mapping[str, str], extra: Mapping[str, str], taints: Sequence[str] = ()
) -> Iterator[None]:
    """Have a node with extended resources and taints until the block ends; ``extra`` are the resources' counts."""
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, **labels}
    metadata = {"name": name, "labels": labels}
    spec = {"taints": [{"key": key, "value": "gpu", "effect": "NoSchedule"} for key in taints]}
    cluster.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    ended = threading.Event()

    def live() -> None:
        beat = 0
        while not ended.wait(0.3):
            if beat % 30 == 0:
                status = {"capacity": _offered(extra), "allocatable": _offered(extra), "conditions": [_ready()]}
                cluster.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, headers=_MERGE)
            _run(cluster, name)
            beat += 1

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)
        cluster.call("DELETE", f"/api/v1/nodes/{name}")
