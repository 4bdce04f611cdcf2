"""What surrounds runners in their namespace, and what they may not do. Plain data, no Pulumi.

Each function returns Kubernetes objects as its API has them. A job may run anything: nothing here trusts a pod.
"""

from __future__ import annotations

from typing import Any

from components.runners.pod import ACCOUNT, PRIORITY_CLASS, devices, labels
from stacks.runners import KubernetesRunners

Manifest = dict[str, Any]

METADATA = "169.254.0.0/16"
"""Link-local addresses: clouds give a node's own credentials there."""

PRIORITY = -1000
"""Below what serves users (0) and above nothing: a build waits, and gives way."""


def _manifest(api: str, kind: str, name: str, config: KubernetesRunners, **body: Any) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "namespace": config.namespace, "labels": _own()}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


def _own() -> dict[str, str]:
    return {"app.kubernetes.io/part-of": "slipway"}


def namespace(config: KubernetesRunners) -> Manifest:
    """Return the namespace: its Docker daemons are privileged, which no stricter level admits; others are warned of."""
    level = "pod-security.kubernetes.io"
    security = {f"{level}/enforce": "privileged", f"{level}/warn": "restricted", f"{level}/audit": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": config.namespace, "labels": {**_own(), **security}},
    }


def quota(config: KubernetesRunners) -> Manifest:
    """Return the most that all runners together may take: so many pods, claims and devices as there may be runners."""
    count = config.max_runners
    hard = {
        # A listener stands beside the runners.
        "pods": str(count + 1),
        "persistentvolumeclaims": str(count),
        **{f"requests.{name}": str(count * int(one)) for name, one in devices(config).items() if "/" in name},
    }
    return _manifest("v1", "ResourceQuota", "runners", config, spec={"hard": hard})


def service_account(config: KubernetesRunners) -> Manifest:
    """Return the runners' account, which has no role anywhere, and whose token no pod gets."""
    return _manifest("v1", "ServiceAccount", ACCOUNT, config, automountServiceAccountToken=False)


def network_policies(config: KubernetesRunners) -> list[Manifest]:
    """Return the policies: nothing comes in; questions for names, and web requests but to the cloud's own, go out."""
    everything: dict[str, Any] = {}
    closed = _manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "closed",
        config,
        spec={"podSelector": everything, "policyTypes": ["Ingress", "Egress"]},
    )
    dns = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
    }
    web = {
        "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA]}}],
        "ports": [{"protocol": "TCP", "port": port} for port in (80, 443)],
    }
    build = _manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "build",
        config,
        spec={"podSelector": {"matchLabels": labels(config)}, "policyTypes": ["Egress"], "egress": [dns, web]},
    )
    return [closed, build]


def disruption_budget(config: KubernetesRunners) -> Manifest:
    """Return the budget that lets nobody drain a node under a build; it ends by itself."""
    selector = {"matchLabels": labels(config)}
    return _manifest(
        "policy/v1", "PodDisruptionBudget", "runners", config, spec={"maxUnavailable": 0, "selector": selector}
    )


def priority_class() -> Manifest:
    """Return the class of builds, which are put off for whatever else needs their place, and put nothing off."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": _own()},
        "value": PRIORITY,
        "preemptionPolicy": "Never",
        "description": "Image builds: they wait, and give way.",
    }
