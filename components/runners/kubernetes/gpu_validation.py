"""The Job that runs an image's GPU checks on the cluster. Plain data, no Pulumi."""

from __future__ import annotations

import hashlib

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import ACCOUNT, Spec, devices, pins, placement, resources
from oci import docker_login
from stacks.config.kubernetes import KubernetesRunners, Validation

NAME = "gpu-checks"
_FOLDER, _SCRIPT = "/checks", "gpu.py"


def script(config: KubernetesRunners, text: str) -> Manifest:
    """Return what an image's own checks are mounted from."""
    return isolation.manifest("v1", "ConfigMap", NAME, config.namespace, data={_SCRIPT: text})


def login(server: str, username: str, password: str) -> dict[str, str]:
    """Return what a secret holds to pull from a registry with (Kubernetes, "Pull an Image from a Private Registry")."""
    return {".dockerconfigjson": docker_login.configuration(server, username, password)}


def job(
    config: KubernetesRunners, validation: Validation, text: str | None = None, *, private: bool = False
) -> Manifest:
    """Return the Job, but for its image. It runs once; a check that fails, or finds no node in time, fails it.

    Args:
        config: what the runners are to be.
        validation: the command, if it is not to be the image's own checks.
        text: those, a script in Python.
        private: whether the image is pulled with the secret :data:`NAME`.

    It asks for the same devices as a runner: where the cluster's nodes do not offer what the profile promises (an EFA
    plugin whose list of instance types lacks them, say), it finds no node, and so says what runners would wait for.
    """
    asked = devices(config)
    container: Spec = {
        "name": "checks",
        "command": list(validation.command) or ["python", f"{_FOLDER}/{_SCRIPT}"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["NET_RAW"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    mounts: list[Spec] = []
    volumes: list[Spec] = []
    metadata: Spec = {"labels": {**isolation.OWN, "app.kubernetes.io/component": NAME}}
    if text is not None:
        mounts.append({"name": "checks", "mountPath": _FOLDER, "readOnly": True})
        volumes.append({"name": "checks", "configMap": {"name": NAME}})
        # Other checks are another Job: a changed ConfigMap alone would run nothing.
        metadata["annotations"] = {"slipway/checks": hashlib.sha256(text.encode()).hexdigest()[:12]}
    if asked:
        container["resources"] = resources(asked)
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a pod's own
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": config.shm}})
    if pins(config):
        # See the runner's: it counts for root alone, whoever the image's user is.
        container["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
        container["securityContext"]["runAsUser"] = 0
    container["volumeMounts"] = mounts
    pod: Spec = {
        **placement(config.profile),
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        **({"imagePullSecrets": [{"name": NAME}]} if private else {}),
    }
    seconds = validation.minutes * 60
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": seconds,
        "template": {"metadata": metadata, "spec": pod},
    }
    made = isolation.manifest("batch/v1", "Job", NAME, config.namespace, spec=spec)
    made["metadata"]["annotations"] = {
        # Longer than the Job itself, whose own end says more.
        "pulumi.com/timeoutSeconds": str(seconds + 60),
        # A Job that failed stays so, whatever is mended: the next update makes another.
        "pulumi.com/replaceUnready": "true",
    }
    return made
