"""Access to the build service, the daemon that all builds share. Plain data, no Pulumi.

Addresses, certificates, and the policies of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal
from urllib.parse import urlsplit

from components.runners.kubernetes import isolation
from components.runners.kubernetes.build_daemon import NAME, daemon, service_labels
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import Spec, labels
from stacks.config.cluster.build_config import BuildServiceConfig, Replica
from stacks.config.kubernetes import KubernetesRunnersConfig

DEPLOYER = {"slipway/deployer": "true"}
"""The label of pods that run Pulumi. No job's pod has it, and no job can label a pod."""


def namespace(config: KubernetesRunnersConfig) -> Manifest:
    """Return the service's namespace. The runners have another one, which can so be stricter.

    Only ``privileged`` admits either kind of daemon: BuildKit's has no seccomp profile.
    """
    return isolation.admitting(config.build_namespace, "privileged")


def guarded(config: KubernetesRunnersConfig, build: BuildServiceConfig, ports: Iterable[int]) -> list[Manifest]:
    """Return the quota, limits, account and policies of the service's namespace.

    The quota admits a second pod of each replica: one on a lost node remains until it is deleted. It admits a pod for
    each pool's trial of an image, and one more claim: another ``jobs`` means another volume.
    """
    count = len(config.replicas)
    hard = {"pods": str(2 * count + len(config.build_pools)), "persistentvolumeclaims": str(count + 1)}
    return [
        isolation.manifest("v1", "ResourceQuota", NAME, config.build_namespace, spec={"hard": hard}),
        isolation.manifest(
            "v1", "LimitRange", NAME, config.build_namespace, spec={"limits": [isolation.largest_claim(build.cache)]}
        ),
        isolation.account(config, NAME, config.build_namespace),
        isolation.closed("build-closed", config.build_namespace),
        *(_policy(config, build, ports, replica) for replica in config.replicas),
    ]


def cluster_address(config: KubernetesRunnersConfig, build: BuildServiceConfig, replica: Replica) -> str:
    """Return a replica's ``host:port`` for the cluster's pods."""
    return f"{cluster_host(config, replica)}:{daemon(build)['port']}"


def cluster_host(config: KubernetesRunnersConfig, replica: Replica) -> str:
    """Return a replica's host name for the cluster's pods."""
    return f"{replica.named(NAME)}.{config.build_namespace}.svc"


def address(config: KubernetesRunnersConfig, build: BuildServiceConfig, replica: Replica) -> str:
    """Return a replica's ``host:port`` for the machine that runs Pulumi."""
    return replica.address or cluster_address(config, build, replica)


def full_name(config: KubernetesRunnersConfig, replica: Replica) -> str:
    """Return a replica's name to its users: namespace and name of its deployment."""
    return f"{config.build_namespace}/{replica.named(NAME)}"


def addresses(config: KubernetesRunnersConfig, build: BuildServiceConfig) -> dict[str, dict[str, str]]:
    """Return all of :func:`address`, by platform and by :func:`full_name`."""
    by_platform: dict[str, dict[str, str]] = {}
    for replica in config.replicas:
        by_platform.setdefault(replica.platform, {})[full_name(config, replica)] = address(config, build, replica)
    return by_platform


def hosts(config: KubernetesRunnersConfig, replica: Replica) -> list[str]:
    """Return the host names and IP addresses for a replica's certificate."""
    host = cluster_host(config, replica)
    short = f"{replica.named(NAME)}.{config.build_namespace}"
    configured = [str(urlsplit(f"//{replica.address}").hostname)] if replica.address else []
    return list(dict.fromkeys([host, f"{host}.cluster.local", short, "localhost", "127.0.0.1", *configured]))


def client(config: KubernetesRunnersConfig, build: BuildServiceConfig) -> Spec:
    """Return what a runner's job needs to reach the service: environment, and the secret with its certificate.

    If the runner has a Docker daemon, the variables begin with ``BUILD_``, so that Docker still uses it.
    """
    at, prefix = cluster_address(config, build, config.replicas[0]), "BUILD_" if config.has_daemon else ""
    env = {f"{prefix}{name}": value.format(address=at) for name, value in daemon(build)["env"].items()}
    return {"env": env, "secret": f"{NAME}-client"}


def _policy(
    config: KubernetesRunnersConfig, build: BuildServiceConfig, ports: Iterable[int], replica: Replica
) -> Manifest:
    """Return the policy for the clients of a replica, and for the hosts of its builds' fetches and pushes.

    Clients are the runners if it is for jobs, and else pods that run Pulumi. A port forward needs no rule: it ends
    inside the pod. A service with an address outside of the cluster admits any source; its certificate decides.
    """
    jobs = {**isolation.in_namespace(config.jobs_namespace), "podSelector": {"matchLabels": labels(config)}}
    clients = jobs if build.jobs else {"namespaceSelector": {}, "podSelector": {"matchLabels": DEPLOYER}}
    outside = build.service != "ClusterIP"
    spec = {
        "podSelector": {"matchLabels": service_labels(replica.ending)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{**({} if outside else {"from": [clients]}), "ports": _port(build)}],
        "egress": isolation.outward(ports),
    }
    name = replica.named("build-service")
    return isolation.manifest(*isolation.POLICY, name, config.build_namespace, spec=spec)


def clients_policy(config: KubernetesRunnersConfig, build: BuildServiceConfig) -> Manifest:
    """Return the policy in the jobs' namespace that lets them reach the service."""
    service = {**isolation.in_namespace(config.build_namespace), "podSelector": {"matchLabels": service_labels()}}
    spec = isolation.egress(labels(config), [{"to": [service], "ports": _port(build)}])
    return isolation.manifest(*isolation.POLICY, "build-clients", config.jobs_namespace, spec=spec)


def _port(build: BuildServiceConfig) -> list[Spec]:
    return [{"protocol": "TCP", "port": daemon(build)["port"]}]


def secret(
    config: KubernetesRunnersConfig, certificates: dict[str, Any], side: Literal["server", "client"], replica: Replica
) -> Manifest:
    """Return the secret with the certificate and key of a side, the service or its clients, in that side's namespace.

    ``certificates`` are by the names of :class:`components.runners.kubernetes.certificates.Certificates`. Clients know
    the first replica alone.
    """
    return isolation.manifest(
        "v1",
        "Secret",
        f"{replica.named(NAME)}-{side}",
        {"server": config.build_namespace, "client": config.jobs_namespace}[side],
        type="Opaque",
        stringData={
            "ca.pem": certificates["ca"],
            "cert.pem": certificates[f"{side}_cert"],
            "key.pem": certificates[f"{side}_key"],
        },
    )
