"""The build service: one daemon that all builds share, and whose layers outlive its pod. Plain data, no Pulumi.

Two kinds: a Docker daemon, which is privileged, and a BuildKit daemon without privileges. Either takes a client's
certificate for its password, and shows one of its own.
"""

from __future__ import annotations

from typing import Any

from components.runners import guards
from components.runners.guards import Manifest
from components.runners.pod import ACCOUNT, CLIENT, Spec, labels, priority_class, scheduling
from stacks.runners import BuildService, KubernetesRunners

NAME = "build"
BUILDKIT = "moby/buildkit:v0.25.2-rootless"
_CERTIFICATES = "/certs"

_DOCKER: Spec = {
    "port": 2376,
    "state": "/var/lib/docker",
    "args": [
        "dockerd",
        "--host=tcp://0.0.0.0:2376",
        "--host=unix:///var/run/docker.sock",
        "--tlsverify",
        f"--tlscacert={_CERTIFICATES}/ca.pem",
        f"--tlscert={_CERTIFICATES}/cert.pem",
        f"--tlskey={_CERTIFICATES}/key.pem",
    ],
    "ready": ["docker", "info"],
    "container": {"privileged": True},
    "pod": {},
    "env": {"DOCKER_HOST": "tcp://{address}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": CLIENT},
}
"""Docker's own image; TLS on its port, and a socket beside it by which its pod alone is asked whether it is ready."""

_ROOTLESS: Spec = {
    "port": 1234,
    "state": "/home/user/.local/share/buildkit",
    "args": [
        "--addr=tcp://0.0.0.0:1234",
        "--addr=unix:///run/user/1000/buildkit/buildkitd.sock",
        # Without it a build step would need /proc unmasked, which takes privileges (BuildKit, docs/rootless.md).
        "--oci-worker-no-process-sandbox",
        f"--tlscacert={_CERTIFICATES}/ca.pem",
        f"--tlscert={_CERTIFICATES}/cert.pem",
        f"--tlskey={_CERTIFICATES}/key.pem",
    ],
    "ready": ["buildctl", "debug", "workers"],
    "container": {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        # RootlessKit makes namespaces, which both would forbid (BuildKit, examples/kubernetes/*.rootless.yaml).
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
    },
    "pod": {"fsGroup": 1000},
    "env": {"BUILDKIT_HOST": "tcp://{address}"},
}
"""BuildKit's rootless image."""


def _kind(build: BuildService) -> Spec:
    return _ROOTLESS if build.rootless else _DOCKER


def own_address(config: KubernetesRunners, build: BuildService) -> str:
    """Return ``host:port`` as the cluster's pods reach the service."""
    return f"{NAME}.{config.namespace}.svc:{_kind(build)['port']}"


def address(config: KubernetesRunners, build: BuildService) -> str:
    """Return ``host:port`` as the machine that runs Pulumi reaches it."""
    return build.address or own_address(config, build)


def hosts(config: KubernetesRunners, build: BuildService) -> list[str]:
    """Return the names and addresses that the service's certificate is for."""
    own = own_address(config, build).partition(":")[0]
    given = [build.address.rpartition(":")[0] or build.address] if build.address else []
    return list(
        dict.fromkeys([own, f"{own}.cluster.local", f"{NAME}.{config.namespace}", "localhost", "127.0.0.1", *given])
    )


def client(config: KubernetesRunners, build: BuildService) -> Spec:
    """Return how a runner's job reaches the service: environment, and the secret with its certificate.

    Docker's own variables would take the place of the runner's own daemon, so they begin with ``BUILD_``.
    """
    at = own_address(config, build)
    env = {f"BUILD_{name}": value.format(address=at) for name, value in _kind(build)["env"].items()}
    return {"env": env, "secret": f"{NAME}-client"}


def service_labels() -> dict[str, str]:
    """Return the labels of the service's pod."""
    return {**guards.OWN, "app.kubernetes.io/component": "build-service"}


def claim(config: KubernetesRunners, build: BuildService) -> Manifest:
    """Return the volume that keeps the layers, whatever becomes of the pod.

    Many classes of storage make a volume only for a pod that wants it, so that nobody can wait for this one first.
    """
    spec: Spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": build.cache}}}
    if build.storage_class:
        spec["storageClassName"] = build.storage_class
    made = guards.manifest("v1", "PersistentVolumeClaim", NAME, config.namespace, spec=spec)
    made["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    return made


def deployment(config: KubernetesRunners, build: BuildService, image: str) -> Manifest:
    """Return the daemon. A new one starts when the old has ended: two cannot share their layers."""
    kind = _kind(build)
    ready = {"exec": {"command": kind["ready"]}, "periodSeconds": 5, "timeoutSeconds": 5}
    container = {
        "name": "daemon",
        "image": image,
        "args": kind["args"],
        "ports": [{"name": "api", "containerPort": kind["port"]}],
        "securityContext": kind["container"],
        "readinessProbe": ready,
        "resources": {"requests": {"cpu": build.cpu, "memory": build.memory}, "limits": {"memory": build.memory}},
        "volumeMounts": [
            {"name": "layers", "mountPath": kind["state"]},
            {"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True},
        ],
    }
    pod = {
        **{key: value for key, value in scheduling(config).items() if key != "topologySpreadConstraints"},
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "priorityClassName": priority_class(config),
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": [
            {"name": "layers", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "certificates", "secret": {"secretName": f"{NAME}-server"}},
        ],
        **({"securityContext": kind["pod"]} if kind["pod"] else {}),
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": service_labels()},
        "template": {"metadata": {"labels": service_labels()}, "spec": pod},
    }
    return guards.manifest("apps/v1", "Deployment", NAME, config.namespace, spec=spec)


def service(config: KubernetesRunners, build: BuildService) -> Manifest:
    """Return the daemon's address; a load balancer is asked to be one of the private network, on EKS and on AKS."""
    kind = _kind(build)
    spec = {
        "type": build.service,
        "selector": service_labels(),
        "ports": [{"name": "api", "port": kind["port"], "targetPort": "api"}],
    }
    made = guards.manifest("v1", "Service", NAME, config.namespace, spec=spec)
    if build.service == "LoadBalancer":
        made["metadata"]["annotations"] = dict(_PRIVATE)
    return made


_PRIVATE = {
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
}


def network_policies(config: KubernetesRunners, build: BuildService, ports: list[int]) -> list[Manifest]:
    """Return the policies: runners may speak to the service, and it may fetch and push as they do.

    Where others than pods are to reach it, any may try: what lets them in is their certificate.
    """
    port = [{"protocol": "TCP", "port": _kind(build)["port"]}]
    runners: Spec = {"podSelector": {"matchLabels": labels(config)}}
    own: Spec = {"podSelector": {"matchLabels": service_labels()}}
    anyone = build.service != "ClusterIP"
    outside: Spec = {"ports": port} if anyone else {"from": [runners], "ports": port}
    return [
        guards.manifest(
            *guards.POLICY,
            "build-service",
            config.namespace,
            spec={
                **own,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [outside],
                "egress": guards.outward(ports),
            },
        ),
        guards.manifest(
            *guards.POLICY,
            "build-clients",
            config.namespace,
            spec={**runners, "policyTypes": ["Egress"], "egress": [{"to": [own], "ports": port}]},
        ),
    ]


def secrets(config: KubernetesRunners, made: dict[str, Any]) -> list[Manifest]:
    """Return the secrets of the service and of its clients.

    Args:
        config: what the runners are to be.
        made: certificates and keys by their names in :class:`components.runners.certificates.Certificates`.
    """
    return [
        guards.manifest(
            "v1",
            "Secret",
            f"{NAME}-{side}",
            config.namespace,
            type="Opaque",
            stringData={"ca.pem": made["ca"], "cert.pem": made[f"{side}_cert"], "key.pem": made[f"{side}_key"]},
        )
        for side in ("server", "client")
    ]
