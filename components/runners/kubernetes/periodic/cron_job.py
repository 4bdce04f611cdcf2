"""A CronJob that runs a program of Node.js in GitHub's runner image, and its account's rights. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import ANY_NODE, CLOSED, Spec, env_of, placement
from stacks.config.cluster.node_pools import PoolConfig
from stacks.config.kubernetes import KubernetesRunnersConfig

_NODE = "/home/runner/externals/node*/bin/node"
"""Node.js of GitHub's runner image, which has several versions."""
_API = (Path(__file__).parent / "cluster_api.js").read_text(encoding="utf-8")


def program(file: Path) -> str:
    """Return the text of a program that calls the cluster's API by its function ``call``."""
    return _API + file.read_text(encoding="utf-8")


def permissions(name: str, namespace: str, account: str, home: str, rules: list[Spec]) -> list[Manifest]:
    """Return a role in a namespace, and its binding to an account of the namespace ``home``."""
    group = "rbac.authorization.k8s.io"
    role = isolation.manifest(f"{group}/v1", "Role", name, namespace, rules=rules)
    binding = isolation.manifest(
        f"{group}/v1",
        "RoleBinding",
        name,
        namespace,
        roleRef={"apiGroup": group, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": home}],
    )
    return [role, binding]


def cron_job(
    config: KubernetesRunnersConfig, name: str, image: str, variables: Mapping[str, str], schedule: str
) -> Manifest:
    """Return a CronJob in the controller's namespace, where no job runs; it has the account of its name.

    ``image`` is that of GitHub's runner. The first of ``variables`` has the program's text.
    """
    text = next(iter(variables))
    run = f'for node in {_NODE} "$(command -v node)"; do [ -x "$node" ] && exec "$node" -e "${text}"; done; exit 1'
    container: Spec = {
        "name": name,
        "image": image,
        "command": ["bash", "-c", run],
        "env": env_of(variables),
        "securityContext": {**CLOSED, "readOnlyRootFilesystem": True},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
    }
    pod: Spec = {
        **placement(ANY_NODE[config.platform], PoolConfig()),
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": 1001, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    job: Spec = {"activeDeadlineSeconds": 60, "backoffLimit": 0, "template": {"spec": pod}}
    spec: Spec = {
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 60,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": job},
    }
    return isolation.manifest("batch/v1", "CronJob", name, config.controller_namespace, spec=spec)
