"""What surrounds runners in their namespace, and what they may not do. Plain data, no Pulumi.

Each function returns Kubernetes objects as its API has them. A job may run anything: nothing here trusts a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from components.runners.kubernetes.pod import ACCOUNT, labels, pins, priority_class
from stacks.config.kubernetes import KubernetesRunners

Manifest = dict[str, Any]

CLOUD = ("169.254.0.0/16", "168.63.129.16/32")
"""Where clouds speak to a node itself: link-local addresses, with its credentials, and Azure's WireServer.

Of IPv6 nothing is let out: Azure's network policy manager drops a policy that names such a block, whole.
"""

PRIORITY = -10
"""Below what serves users (0): a build waits, and gives way. No lower: for pods below -10 Cluster Autoscaler starts no
node, and it ends them with theirs at any time (its FAQ, ``--expendable-pods-priority-cutoff``)."""

WEB = (80, 443)
"""Ports of what a build fetches and pushes."""

API_SERVER = 6443
"""Where a cluster that is not a cloud's has its API; clouds have it at 443."""

NODE_DNS = "169.254.20.10/32"
"""Where NodeLocal DNSCache answers, on clusters that have it (Kubernetes, "Using NodeLocal DNSCache")."""


def manifest(api: str, kind: str, name: str, namespace: str, **body: Any) -> Manifest:
    """Return an object of a namespace, with the label that all of Slipway's carry."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(OWN)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


def _manifest(api: str, kind: str, name: str, config: KubernetesRunners, **body: Any) -> Manifest:
    return manifest(api, kind, name, config.namespace, **body)


OWN = {"app.kubernetes.io/part-of": "slipway"}


def admitting(name: str, enforced: str) -> Manifest:
    """Return a namespace that admits pods of a level of the Pod Security Standards, and warns below the strictest."""
    level = "pod-security.kubernetes.io"
    security = {f"{level}/enforce": enforced, f"{level}/warn": "restricted", f"{level}/audit": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**OWN, **security}}}


def namespace(config: KubernetesRunners) -> Manifest:
    """Return the runners' namespace: as strict as their pods let it be.

    No stricter level admits a Docker daemon, or memory that is pinned. Without either it is ``baseline``: jobs have
    sudo in GitHub's image, which ``restricted`` would forbid.
    """
    return admitting(config.namespace, "privileged" if config.daemon or pins(config) else "baseline")


def controller_namespace(config: KubernetesRunners) -> Manifest:
    """Return the namespace of the controller and its listener, which need no privilege at all."""
    return admitting(config.controller_namespace, "restricted")


def quota(config: KubernetesRunners) -> Manifest:
    """Return the most that all may take together: so many pods, claims and devices as there may be runners.

    The GPU checks are one more.
    """
    count = config.max_runners
    checked = int(config.validation is not None)
    hard = {
        "pods": str(count + checked),
        "persistentvolumeclaims": str(count * config.daemon),
        **{f"requests.{name}": str((count + checked) * most) for name, most in config.devices.items()},
    }
    return _manifest("v1", "ResourceQuota", "runners", config, spec={"hard": hard})


def limit_range(config: KubernetesRunners) -> Manifest:
    """Return what a container is sure of that asks for nothing, and the largest volume that any pod may claim."""
    limits = [
        {"type": "Container", "defaultRequest": {"cpu": "500m", "memory": "1Gi"}},
        *([largest_claim(config.cache)] if config.daemon else []),
    ]
    return _manifest("v1", "LimitRange", "runners", config, spec={"limits": limits})


def largest_claim(size: str) -> Manifest:
    """Return the part of a limit range by which no volume is larger."""
    return {"type": "PersistentVolumeClaim", "max": {"storage": size}}


def service_account(config: KubernetesRunners) -> Manifest:
    """Return the runners' account."""
    return account(ACCOUNT, config.namespace)


def account(name: str, namespace: str) -> Manifest:
    """Return an account that has no role anywhere, and whose token no pod gets."""
    return manifest("v1", "ServiceAccount", name, namespace, automountServiceAccountToken=False)


def network_policies(config: KubernetesRunners, ports: Iterable[int] = ()) -> list[Manifest]:
    """Return the runners' policies: nothing comes in; questions for names, and requests but to the cloud's own, go out.

    Args:
        config: what the runners are to be.
        ports: of the registry and the mirrors, beside those of the web.
    """
    spec = egress(labels(config), outward(ports))
    return [closed("closed", config.namespace), _manifest(*POLICY, "build", config, spec=spec)]


def outward(ports: Iterable[int]) -> list[Manifest]:
    """Return what a build may reach: names, and the web and ``ports`` at any address but the cloud's own."""
    return [_DNS, _reached(sorted({*WEB, *ports}))]


def controller_policies(config: KubernetesRunners) -> list[Manifest]:
    """Return those of the controller and its listener: the cluster's API and GitHub's are reached, nothing comes in."""
    name = config.controller_namespace
    out = [_DNS, _reached([443, API_SERVER])]
    return [closed("controller-closed", name), manifest(*POLICY, "controller", name, spec=egress({}, out))]


def closed(name: str, namespace: str) -> Manifest:
    """Return the policy by which nothing comes into a namespace or leaves it, but for what another policy says."""
    return manifest(*POLICY, name, namespace, spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


POLICY = ("networking.k8s.io/v1", "NetworkPolicy")


def in_namespace(name: str) -> Manifest:
    """Return the part of a policy's peer by which it is in a namespace."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


_DNS: Manifest = {
    "to": [
        in_namespace("kube-system"),
        {"ipBlock": {"cidr": NODE_DNS}},
    ],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}


def _reached(ports: Sequence[int]) -> Manifest:
    return {
        "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(CLOUD)}}],
        "ports": [{"protocol": "TCP", "port": port} for port in ports],
    }


def egress(pods: dict[str, str], rules: list[Manifest]) -> Manifest:
    """Return what a policy says that lets pods of some labels, or all of its namespace, reach what the rules name."""
    selector: dict[str, Any] = {"matchLabels": pods} if pods else {}
    return {"podSelector": selector, "policyTypes": ["Egress"], "egress": rules}


def disruption_budget(config: KubernetesRunners) -> Manifest:
    """Return the budget that lets nobody drain a node under a build; it ends by itself.

    A runner's pod belongs to no controller that Kubernetes knows, so that only a number of pods that must stay counts
    ("Specifying a Disruption Budget for your Application", arbitrary controllers).
    """
    spec = {"minAvailable": config.max_runners, "selector": {"matchLabels": labels(config)}}
    return _manifest("policy/v1", "PodDisruptionBudget", "runners", config, spec=spec)


def builds_priority(config: KubernetesRunners) -> Manifest:
    """Return the class of builds, which are put off for whatever else needs their place, and put nothing off."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class(config), "labels": dict(OWN)},
        "value": PRIORITY,
        "preemptionPolicy": "Never",
        "description": "Image builds: they wait, and give way.",
    }
