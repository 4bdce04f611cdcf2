"""An MPIJob of Kubeflow's MPI operator (kubeflow.org/v2beta1): OpenMPI starts processes on other pods by sshd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from containers.image.gpu.node_labels import GPU
from stacks.versions.nodes import HUGEPAGES, Node


def mpi_job(
    name: str, image: str, kind: Node, nodes: int, *, command: Sequence[str], exported: Sequence[str]
) -> dict[str, Any]:
    """Return a job on whole nodes, with a process for each GPU.

    Each process runs ``command`` with the variables of the launcher's environment that are ``exported``.
    """
    gpus = kind.most(GPU)
    launch = ["mpirun", "--allow-run-as-root", "-np", str(nodes * gpus), "--npernode", str(gpus), "--bind-to", "none"]
    options = [word for variable in exported for word in ("-x", variable)]
    resources = {resource: str(count) for resource, count in kind.limits.items()}
    if kind.memory:
        resources["memory"] = f"{kind.memory // 2}Gi"
    if kind.hugepages:
        resources[HUGEPAGES] = kind.hugepages
    worker = {
        "name": "worker",
        "image": image,
        # The operator mounts its keys from a Secret, in a folder that all may write to. sshd refuses that by default.
        "command": ["start-sshd", "-o", "StrictModes=no"],
        "resources": {"requests": dict(resources), "limits": resources},
        # EFA and NCCL lock the memory that they exchange.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - what NCCL shares within a node
    }
    pod = {
        "nodeSelector": dict(kind.selector),
        "tolerations": [dict(each) for each in kind.tolerations],
        "automountServiceAccountToken": False,
        "containers": [worker],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}],
    }
    launcher = {"name": "launcher", "image": image, "command": [*launch, *options, *command]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": gpus,
            "sshAuthMountPath": "/root/.ssh",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "template": {"spec": {"automountServiceAccountToken": False, "containers": [launcher]}},
                },
                "Worker": {"replicas": nodes, "template": {"spec": pod}},
            },
        },
    }
