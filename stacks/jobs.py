"""``python -m stacks job``: an example of a job that runs a stack's image on the nodes that it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import yaml

from stacks import flavors, plan
from stacks.errors import SlipwayError, one_line
from stacks.plain_yaml import PlainDumper
from stacks.versions import AksNode
from stacks.versions.nodes import GPU, INFINIBAND, node


class Example(Protocol):
    """What a flavor's module offers that has an example."""

    def job(self, config: Any, images: Mapping[str, str], nodes: int) -> list[dict[str, Any]]:
        """Return Kubernetes objects; ``images`` maps the stack's images to their references."""


def render(stack: str, nodes: int) -> str:
    """Return a job of so many nodes for a stack, as YAML.

    Raises:
        SlipwayError: the stack is wrong, its flavor has no example, or fewer than two nodes are asked for.
    """
    planned = plan.make(stack)
    module = flavors.flavor(planned.config.flavor)
    if not hasattr(module, "job"):
        having = [name for name in flavors.names() if hasattr(flavors.flavor(name), "job")]
        raise SlipwayError(
            f"stack {stack}: there is no example of a job for the flavor '{one_line(planned.config.flavor)}'; "
            f"there is one for: {', '.join(having)}; for Slurm there is one for all that have CUDA: --slurm"
        )
    if nodes < 2:
        raise SlipwayError(f"--nodes {nodes}: the example is for several nodes; give 2 or more")
    objects = cast("Example", module).job(planned.config, planned.references, nodes)
    return yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=120)


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
    """Yield a PyTorchJob (Kubeflow's training operator) of so many nodes of AKS, and what it needs beside it.

    ``command`` runs on each node, all of whose GPUs and InfiniBand cards it has; ``check`` must succeed there first,
    and ``probe`` while it runs. Both are told by ``EXPECTED_GPUS`` how many GPUs there are to be.
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
            # InfiniBand locks memory; the limit of it is that of the node's containerd, which AKS sets to none.
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
        # By this name the operator knows where to put its variables.
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
