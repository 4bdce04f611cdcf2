"""The Job that runs an image's GPU checks on the cluster. Plain data, no Pulumi."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import (
    ACCOUNT,
    Spec,
    claims,
    devices,
    env_of,
    on_disk,
    pins,
    placement,
    resources,
    shared_memory,
)
from containers.registry.logins import docker_login
from stacks.config.cluster.validation_config import ValidationConfig
from stacks.config.kubernetes import KubernetesRunnersConfig

NAME = "gpu-checks"
_FOLDER = "/checks"
_LABELS = {**isolation.LABELS, "app.kubernetes.io/component": NAME}
STAYS = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotations with which autoscalers leave a pod on its node (Karpenter, "Disruption"; Cluster Autoscaler's FAQ)."""


def disruption_budget(config: KubernetesRunnersConfig) -> Manifest:
    """Return the budget that keeps the node of the checks from being drained until they are done.

    A Job has no scale, so only an absolute ``minAvailable`` works, as for runners (:mod:`isolation`).
    """
    spec = {"minAvailable": 1, "selector": {"matchLabels": dict(_LABELS)}}
    return isolation.manifest("policy/v1", "PodDisruptionBudget", NAME, config.namespace, spec=spec)


def scripts(config: KubernetesRunnersConfig, texts: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap with an image's own checks, by name."""
    return isolation.manifest("v1", "ConfigMap", NAME, config.namespace, data=dict(texts))


def login(server: str, username: str, password: str) -> dict[str, str]:
    """Return a secret's data for pulling from a registry (Kubernetes, "Pull an Image from a Private Registry")."""
    return {".dockerconfigjson": docker_login.configuration(server, username, password)}


def environment(config: KubernetesRunnersConfig, image: Any) -> list[Spec]:
    """Return the variables of the Job; ``image`` is what it runs. The report repeats it, the profile and the node."""
    loss = config.validation.accepted_loss if config.validation else None
    return [
        *env_of({"CHECKED_IMAGE": image, "NODE_PROFILE": config.profile}),
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        *env_of({"ACCEPTED_LOSS": str(loss)} if loss else {}),
    ]


def _own(texts: Mapping[str, str]) -> list[str]:
    return [word for name in texts for word in ("python", f"{_FOLDER}/{name}")]


def job(
    config: KubernetesRunnersConfig,
    validation: ValidationConfig,
    texts: Mapping[str, str] | None = None,
    *,
    private: bool = False,
) -> Manifest:
    """Return the Job without its image and its :func:`environment`.

    It runs :func:`isolation.once`. It requests the same devices as a runner. If the nodes lack a device of the profile,
    say because the EFA plugin leaves their instance type out, it finds no node and reports what runners would wait for.
    ``texts`` are the image's own checks, Python scripts by name, each of which runs the next one. A command of
    ``validation`` replaces them. ``private`` says that the image is pulled with the secret :data:`NAME`.
    """
    of_pod, of_container = claims(config, NAME)
    container: Spec = {
        "name": "checks",
        "command": list(validation.command) or _own(texts or {}),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["NET_RAW"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    mounts: list[Spec] = []
    volumes: list[Spec] = []
    metadata: Spec = {"labels": dict(_LABELS), "annotations": dict(STAYS)}
    if texts:
        mounts.append({"name": "checks", "mountPath": _FOLDER, "readOnly": True})
        volumes.append({"name": "checks", "configMap": {"name": NAME}})
        # Changed checks replace the Job; a changed ConfigMap alone would run nothing.
        digest = hashlib.sha256("\n".join(texts.values()).encode()).hexdigest()[:12]
        metadata["annotations"]["slipway/checks"] = digest
    sizes = on_disk(config.disk, resources(devices(config)) if config.devices else None)
    container["resources"] = {**sizes, **of_container}
    if config.devices:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a pod's own
        volumes += shared_memory(config)
    if pins(config):
        # Only root has it, as in the runner's container, so the checks run as root.
        container["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
        container["securityContext"]["runAsUser"] = 0
    container["volumeMounts"] = mounts
    pod: Spec = {
        **placement(config.profile, config),
        **of_pod,
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        **({"imagePullSecrets": [{"name": NAME}]} if private else {}),
    }
    return isolation.once(NAME, config.namespace, validation.minutes * 60, {"metadata": metadata, "spec": pod})
