"""The isolation of runners: namespaces, quotas, accounts, network policies, priorities. Plain data, no Pulumi.

Each function returns manifests of Kubernetes objects. A job may run anything, so nothing here trusts a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.runners.kubernetes.pod import ACCOUNT, AUTHORITY, CLAIM, Spec, labels, pins, priority_class
from containers.image.gpu.node_labels import GPU
from stacks.config.cluster.kubernetes_values import DEFAULT_REQUESTS
from stacks.config.kubernetes import KubernetesRunnersConfig

Manifest = dict[str, Any]

CLOUD = ("169.254.0.0/16", "168.63.129.16/32")
"""Addresses at which clouds serve a node: link-local ones, with its credentials, and Azure's WireServer.

IPv6 egress is closed altogether: Azure's network policy manager drops any policy with an IPv6 block.
"""

PRIORITY = -10
"""Below services (0), so that builds wait and give way. Not below -10: for such pods Cluster Autoscaler starts no node,
and it removes them with theirs at any time (its FAQ, ``--expendable-pods-priority-cutoff``)."""

WEB = (80, 443)
"""Ports from which builds fetch and to which they push."""

API_SERVER = 6443
"""The API server's port outside of clouds, which use 443."""

NODE_DNS = "169.254.20.10/32"
"""The address of NodeLocal DNSCache, on clusters that have it (Kubernetes, "Using NodeLocal DNSCache")."""


def manifest(api: str, kind: str, name: str, namespace: str, **body: Any) -> Manifest:
    """Return an object in a namespace, with the label of all of Slipway's objects."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


LABELS = {"app.kubernetes.io/part-of": "slipway"}

_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a pod that was ended for a reason outside of it (Kubernetes, "Disruptions")."""


def once(name: str, namespace: str, seconds: int, template: Manifest) -> Manifest:
    """Return a Job whose pod runs once. If it fails, or has no node after ``seconds``, the update fails.

    A pod that is evicted, preempted or loses its node says nothing of its image. It is made anew, and does not count
    ("Pod failure policy", DisruptionTarget).
    """
    spec = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [_DISRUPTED]}]},
        "activeDeadlineSeconds": seconds,
        "template": template,
    }
    job = manifest("batch/v1", "Job", name, namespace, spec=spec)
    job["metadata"]["annotations"] = {
        # Longer than the Job's own deadline, which gives a better reason.
        "pulumi.com/timeoutSeconds": str(seconds + 60),
        # A failed Job stays failed. The next update replaces it.
        "pulumi.com/replaceUnready": "true",
    }
    return job


def _name(config: KubernetesRunnersConfig, namespace: str, name: str) -> str:
    """Return the name of an object of which jobs' pods have one of their own. Pulumi's names have no namespace."""
    return name if namespace == config.namespace else f"jobs-{name}"


def admitting(name: str, enforced: str) -> Manifest:
    """Return a namespace that enforces a level of the Pod Security Standards and warns below ``restricted``."""
    level = "pod-security.kubernetes.io"
    security = {f"{level}/enforce": enforced, f"{level}/warn": "restricted", f"{level}/audit": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**LABELS, **security}}}


def namespace(config: KubernetesRunnersConfig) -> Manifest:
    """Return the runners' namespace, at the strictest level that admits their pods.

    Only ``privileged`` admits a Docker daemon or pinned memory. Without either it is ``baseline``, because jobs have
    sudo in GitHub's image, which ``restricted`` forbids.
    """
    # A job in a pod of its own pins its memory elsewhere, the GPU checks do so here.
    pinned = any(map(pins, config.all_sets)) and not config.job_pods
    pinned = pinned or (config.validation is not None and pins(config))
    return admitting(config.namespace, "privileged" if config.own_daemon or pinned else "baseline")


def controller_namespace(config: KubernetesRunnersConfig) -> Manifest:
    """Return the namespace of the controller and its listener, which need no privileges."""
    return admitting(config.controller_namespace, "restricted")


def quota(config: KubernetesRunnersConfig) -> Manifest:
    """Return the quota of the namespace: pods, claims and devices for the maximal number of runners, twice.

    A runner that ends counts until its pod is gone, and its successor starts meanwhile. So does the pod of GPU checks.
    """
    checks = 2 * (config.validation is not None)
    pods = 2 * sum(own.max_runners for own in config.all_sets)
    of_sets = [size for own in config.all_sets for size in sizes(own, 2 * own.max_runners * (not own.job_pods))]
    of_checks = [(amounts, checks) for amounts, _ in sizes(config, checks) if checks]
    devices = totals([*of_sets, *of_checks])
    return quota_of(config, config.namespace, pods + checks, devices, pods * config.own_daemon)


def sizes(config: KubernetesRunnersConfig, pods: int) -> list[tuple[dict[str, int], int]]:
    """Return the devices of a runner's pod by their names in a quota, and how often so many pods have them.

    Claimed GPUs count by their device class, when the claim is made (kubernetes/api v0.35.7, core/v1/types.go:7724).
    """
    requested = [({f"requests.{name}": count for name, count in config.resources.items()}, pods)]
    if not config.gpu_claim:
        return requested
    claimed = {f"{config.gpu_claim.of_class}.deviceclass.resource.k8s.io/devices": config.devices[GPU]}
    return [*requested, (claimed, min(pods, 1) if config.shared_gpus else pods)]


def gpu_claims(config: KubernetesRunnersConfig, namespace: str) -> list[Manifest]:
    """Return the claims of GPUs that the pods of each set make, or the one that they share."""
    return [
        _claim(own, own.named(CLAIM), namespace, shared=own.shared_gpus) for own in config.all_sets if own.gpu_claim
    ]


def own_claim(config: KubernetesRunnersConfig, name: str) -> list[Manifest]:
    """Return the claim of a pod that shares none with runners: the GPU checks; none without claims."""
    return [_claim(config, name, config.namespace, shared=False)] if config.gpu_claim else []


def _claim(config: KubernetesRunnersConfig, name: str, namespace: str, *, shared: bool) -> Manifest:
    """Return a claim of a set's GPUs, or the template of such claims.

    As in NVIDIA's examples (kubernetes-sigs/dra-driver-nvidia-gpu at 9593204, demo/specs/quickstart/v1/gpu-test1.yaml,
    gpu-test3.yaml and gpu-test4.yaml). The API is of Kubernetes 1.34 ("Dynamic Resource Allocation").
    """
    given = config.gpu_claim
    assert given is not None  # noqa: S101 - asked for by the caller
    exactly: Spec = {"deviceClassName": given.of_class, "count": config.devices[GPU]}
    if given.expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in given.expressions]
    spec: Spec = {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}}
    if shared:
        return manifest(CLAIMS, "ResourceClaim", name, namespace, spec=spec)
    return manifest(CLAIMS, "ResourceClaimTemplate", name, namespace, spec={"spec": spec})


CLAIMS = "resource.k8s.io/v1"
"""The API of claims of devices."""


def totals(sizes: Iterable[tuple[Mapping[str, int], int]]) -> dict[str, int]:
    """Return the devices of so many pods of each size, by their names in a quota."""
    total: dict[str, int] = {}
    for devices, count in sizes:
        for name, each in devices.items():
            total[name] = total.get(name, 0) + count * each
    return total


def quota_of(
    config: KubernetesRunnersConfig, namespace: str, pods: int, devices: Mapping[str, int], claims: int = 0
) -> Manifest:
    """Return a quota of pods, their devices, and their volumes' claims."""
    hard = {
        "pods": str(pods),
        "persistentvolumeclaims": str(claims),
        **{name: str(count) for name, count in devices.items()},
    }
    return manifest("v1", "ResourceQuota", _name(config, namespace, "runners"), namespace, spec={"hard": hard})


def limit_range(config: KubernetesRunnersConfig, namespace: str) -> Manifest:
    """Return the default requests of a container, and the largest volume that a pod may claim."""
    cpu, memory = DEFAULT_REQUESTS
    limits = [
        {"type": "Container", "defaultRequest": {"cpu": cpu, "memory": memory}},
        *([largest_claim(config.largest_cache)] if config.has_daemon else []),
    ]
    return manifest("v1", "LimitRange", _name(config, namespace, "runners"), namespace, spec={"limits": limits})


def largest_claim(size: str) -> Manifest:
    """Return the limit of a volume's size, for a limit range."""
    return {"type": "PersistentVolumeClaim", "max": {"storage": size}}


def authority(config: KubernetesRunnersConfig, namespace: str, certificate: str) -> dict[str, Manifest]:
    """Return the ConfigMap with the mirrors' certificate by its name, for :func:`pod.trusting`; none without one."""
    name = f"{AUTHORITY}{namespace.removeprefix(config.namespace)}"
    return {name: manifest("v1", "ConfigMap", name, namespace, data={"ca.pem": certificate})} if certificate else {}


def service_account(config: KubernetesRunnersConfig) -> Manifest:
    """Return the service account of the runners."""
    return account(config, ACCOUNT, config.namespace)


def account(config: KubernetesRunnersConfig, name: str, namespace: str) -> Manifest:
    """Return a service account without any role, whose token is not mounted into pods.

    Kubernetes gives a pod without secrets for pulling those of its account (Kubernetes, "Configure Service Accounts for
    Pods", "Add ImagePullSecrets to a service account").
    """
    secrets = [{"name": each} for each in config.pull_secrets]
    pulls = {"imagePullSecrets": secrets} if secrets else {}
    return manifest("v1", "ServiceAccount", name, namespace, automountServiceAccountToken=False, **pulls)


def network_policies(config: KubernetesRunnersConfig, ports: Iterable[int], namespace: str) -> list[Manifest]:
    """Return the policies of runners or jobs: no ingress; egress to DNS, and to the web but the cloud's node services.

    ``ports`` are those of the registry and the mirrors, in addition to the web's. ``namespace`` is that of the pods.
    """
    spec = egress(labels(config), outward(ports))
    return [
        closed(_name(config, namespace, "closed"), namespace),
        manifest(*POLICY, _name(config, namespace, "build"), namespace, spec=spec),
    ]


def ports(config: KubernetesRunnersConfig, needed: Iterable[int]) -> list[int]:
    """Return the ports that runners need besides the web's: those that jobs need, or with jobs elsewhere the API's."""
    return [API_SERVER, *config.extra_ports] if config.job_pods else [*needed]


def outward(ports: Iterable[int]) -> list[Manifest]:
    """Return the egress of a build: DNS, and web ports and ``ports`` at any address but the cloud's node services."""
    return [_DNS, _to_internet(sorted({*WEB, *ports}))]


def controller_policies(config: KubernetesRunnersConfig) -> list[Manifest]:
    """Return the policies of controller and listener: egress to the APIs of the cluster and GitHub, no ingress."""
    name = config.controller_namespace
    proxies = config.arc.values.proxy_ports if config.arc.values else ()
    rules = [_DNS, _to_internet(sorted({443, API_SERVER, *config.extra_ports, *proxies}))]
    return [closed("controller-closed", name), manifest(*POLICY, "controller", name, spec=egress({}, rules))]


def closed(name: str, namespace: str) -> Manifest:
    """Return the policy that closes a namespace both ways; other policies open it."""
    return manifest(*POLICY, name, namespace, spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


POLICY = ("networking.k8s.io/v1", "NetworkPolicy")


def in_namespace(name: str) -> Manifest:
    """Return the namespace selector of a policy's peer."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


_DNS: Manifest = {
    "to": [in_namespace("kube-system"), {"ipBlock": {"cidr": NODE_DNS}}],
    "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
}


def _to_internet(ports: Sequence[int]) -> Manifest:
    return {
        "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(CLOUD)}}],
        "ports": [{"protocol": "TCP", "port": port} for port in ports],
    }


def egress(pods: dict[str, str], rules: list[Manifest]) -> Manifest:
    """Return a policy's spec that lets pods with the labels, or all pods of the namespace, reach the rules' peers."""
    selector: dict[str, Any] = {"matchLabels": pods} if pods else {}
    return {"podSelector": selector, "policyTypes": ["Egress"], "egress": rules}


def disruption_budget(config: KubernetesRunnersConfig, namespace: str) -> Manifest:
    """Return the budget against drains of nodes during builds. Builds end by themselves.

    Kubernetes does not know the controller of a runner's pod, so only an absolute ``minAvailable`` works ("Specifying a
    Disruption Budget for your Application", arbitrary controllers). A runner without a job is not ready, and may go.
    The pod of a job always has one, also while one of its services is not ready.
    """
    most = sum(own.max_runners for own in config.all_sets)
    spec: Spec = {"minAvailable": most, "selector": {"matchLabels": labels(config)}}
    if namespace == config.namespace:
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return manifest("policy/v1", "PodDisruptionBudget", _name(config, namespace, "runners"), namespace, spec=spec)


def builds_priority(config: KubernetesRunnersConfig) -> Manifest:
    """Return the priority class of builds. Other pods may preempt them; they preempt none."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class(config), "labels": dict(LABELS)},
        "value": PRIORITY,
        "preemptionPolicy": "Never",
        "description": "Image builds: they wait, and give way.",
    }
