"""An indexed Job of Kubernetes (batch/v1): torchrun on every node, without an operator."""

from __future__ import annotations

import re
from typing import Any, Final

from containers.image.gpu.node_labels import GPU

_SCRIPT: Final = """\
# What each GPU runs: replace it by your training.
import os
import time

import torch
import torch.distributed as dist

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
data = torch.ones(1 << (28 if gpu else 20), device="cuda" if gpu else "cpu")
for repeat in range(6):
    if repeat == 1:
        start = time.monotonic()
    dist.all_reduce(data)
    data /= dist.get_world_size()
    total = float(data[0])  # waits for the GPU
assert total == 1, total
seconds = (time.monotonic() - start) / 5
size = data.numel() * data.element_size()
if dist.get_rank() == 0:
    bus = size / seconds * 2 * (dist.get_world_size() - 1) / dist.get_world_size()
    print(f"{dist.get_world_size()} processes: all-reduce of {size >> 20} MiB, {bus / 1e9:.1f} GB/s", flush=True)
dist.destroy_process_group()
"""
_FOLDER: Final = "/job"
_PORT: Final = 29400


def indexed_job(stack: str, image: str, arch: str | None, gpus: int, nodes: int) -> list[dict[str, Any]]:
    """Return a Job of one pod for each node, with all of its GPUs, and what it needs: a Service and its script.

    ``arch`` is of the nodes; None for an image that has several. Torchrun's options have underscores: torch before 2.0
    takes no dashes.
    """
    name = re.sub("[^a-z0-9]+", "-", stack.lower()).strip("-")[:52]
    command = [
        *("python", "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc_per_node", str(gpus)),
        *("--rdzv_id", name, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"{name}-0.{name}:{_PORT}"),
        f"{_FOLDER}/train.py",
    ]
    container = {
        "name": "train",
        "image": image,
        "command": command,
        "resources": {"limits": {GPU: str(gpus)}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - what NCCL shares within a node
            {"name": "job", "mountPath": _FOLDER},
        ],
    }
    pod = {
        "subdomain": name,  # gives the pods the Service's names
        "restartPolicy": "Never",
        **({"nodeSelector": {"kubernetes.io/arch": arch}} if arch else {}),
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {"name": "job", "configMap": {"name": name}},
        ],
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"train.py": _SCRIPT}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            # The pods look for each other before they are ready.
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {
                "completionMode": "Indexed",
                "completions": nodes,
                "parallelism": nodes,
                # The others wait in vain for a pod that failed.
                "backoffLimit": 0,
                "template": {"spec": pod},
            },
        },
    ]
