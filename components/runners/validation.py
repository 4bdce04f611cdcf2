"""The Job that runs an image's GPU checks on the cluster. Plain data, no Pulumi."""

from __future__ import annotations

from components.runners import guards
from components.runners.guards import Manifest
from components.runners.pod import ACCOUNT, Spec, devices, resources, scheduling
from stacks.runners import KubernetesRunners, Validation
from stacks.versions.nodes import EFA, INFINIBAND

NAME = "gpu-checks"


def job(config: KubernetesRunners, validation: Validation) -> Manifest:
    """Return the Job, but for its image. It runs once; a check that fails, or finds no node in time, fails it.

    It asks for the same devices as a runner: where the cluster's nodes do not offer what the profile promises (an EFA
    plugin whose list of instance types lacks them, say), it finds no node, and so says what runners would wait for.
    """
    asked = devices(config)
    container: Spec = {
        "name": "checks",
        "command": list(validation.command),
        "securityContext": {"allowPrivilegeEscalation": False},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    volumes: list[Spec] = []
    if asked:
        container["resources"] = resources(asked)
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - a pod's own
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": config.shm}})
    if {EFA, INFINIBAND} & asked.keys():
        container["securityContext"]["capabilities"] = {"add": ["IPC_LOCK"]}
    labels = {**guards.OWN, "app.kubernetes.io/component": NAME}
    pod: Spec = {
        **{key: value for key, value in scheduling(config).items() if key != "topologySpreadConstraints"},
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
    }
    seconds = validation.minutes * 60
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": seconds,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    made = guards.manifest("batch/v1", "Job", NAME, config.namespace, spec=spec)
    # Longer than the Job itself, whose own end says more.
    made["metadata"]["annotations"] = {"pulumi.com/timeoutSeconds": str(seconds + 60)}
    return made
