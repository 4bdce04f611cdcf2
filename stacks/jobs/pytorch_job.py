"""A PyTorchJob of Kubeflow's training operator (kubeflow.org/v1) on GPU nodes of AKS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from containers.image.gpu.node_labels import GPU
from stacks.versions.aks import AksNode
from stacks.versions.nodes import INFINIBAND, node


def pytorch_job(
    name: str,
    image: str,
    kind: AksNode,
    nodes: int,
    *,
    command: Sequence[str],
    check: Sequence[str],
    probe: Sequence[str],
) -> Iterable[dict[str, Any]]:
    """Yield a PyTorchJob (Kubeflow's training operator) on nodes of AKS, and the other objects that it needs.

    ``command`` runs on each node with all of its GPUs and InfiniBand cards; ``check`` must succeed there first, and
    ``probe`` while it runs. ``EXPECTED_GPUS`` tells both the number of GPUs.
    """
    fabric = f"{name}-fabric" if kind.topology is None else None
    limits = {GPU: str(kind.gpus), INFINIBAND: str(kind.rdma)}
    resources: dict[str, Any] = {"requests": limits, "limits": dict(limits)}
    if fabric:
        resources["claims"] = [{"name": "fabric"}]
    container = {
        "image": image,
        "env": [{"name": "EXPECTED_GPUS", "value": str(kind.gpus)}],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            # InfiniBand locks memory. AKS sets no limit for that in the node's containerd.
            "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
        },
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - what NCCL shares within a node
    }
    liveness = {
        "exec": {"command": list(probe)},
        "initialDelaySeconds": 120,
        "periodSeconds": 60,
        "timeoutSeconds": 120,
        "failureThreshold": 5,
    }
    pod: dict[str, Any] = {
        "nodeSelector": {"node.kubernetes.io/instance-type": kind.sku},
        "tolerations": [dict(each) for each in node("aks-ndv5").tolerations],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        "initContainers": [{"name": "check", **container, "command": list(check)}],
        # The operator sets its variables in the container with this name.
        "containers": [{"name": "pytorch", **container, "command": list(command), "livenessProbe": liveness}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}],
    }
    if fabric:
        yield {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomain",
            "metadata": {"name": fabric},
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": fabric}}},
        }
        pod["resourceClaims"] = [{"name": "fabric", "resourceClaimTemplateName": fabric}]
        together = {"labelSelector": {"matchLabels": {"job": name}}, "topologyKey": "nvidia.com/gpu.clique"}
        pod["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [together]}}
    template = {"metadata": {"labels": {"job": name}}, "spec": pod}
    yield {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "nprocPerNode": str(kind.gpus),
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template},
                "Worker": {"replicas": nodes - 1, "restartPolicy": "OnFailure", "template": template},
            },
        },
    }
