"""The build service: one daemon that all builds share, and whose layers outlive its pod. Plain data, no Pulumi.

Two kinds: a Docker daemon, which is privileged, and a BuildKit daemon without privileges. Either takes a client's
certificate for its password, and shows one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import CLIENT, Spec, labels, placement, priority_class
from stacks.config.kubernetes import BuildService, KubernetesRunners

NAME = "build"
BUILDKIT = "moby/buildkit:v0.25.2-rootless"
_CERTIFICATES = "/certs"
_SOCKET = "/run/slipway"
_PROFILE = "cpu"
"""Of the service's node: a daemon that stays would keep a node with GPUs for ever, and use none of them."""

_DOCKER: Spec = {
    "port": 2376,
    "state": "/var/lib/docker",
    "args": [
        "dockerd",
        "--host=tcp://0.0.0.0:2376",
        f"--host=unix://{_SOCKET}/docker.sock",
        "--tlsverify",
        f"--tlscacert={_CERTIFICATES}/ca.pem",
        f"--tlscert={_CERTIFICATES}/cert.pem",
        f"--tlskey={_CERTIFICATES}/key.pem",
    ],
    "ready": ["docker", f"--host=unix://{_SOCKET}/docker.sock", "info"],
    "container": {"privileged": True},
    "pod": {},
    "env": {"DOCKER_HOST": "tcp://{address}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": CLIENT},
    "room": True,
}
"""Docker's own image; TLS on its port, and a socket beside it for its pod alone."""

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
    "room": False,
}
"""BuildKit's rootless image; it keeps no images, and its cache within bounds by itself."""

_LEAVE = """\
while cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "01" && $2 ~ /:{port:04X}$/ {{n++}} END {{exit !n}}'; do
  sleep 1
done"""
"""Waits until nobody is connected: who builds is, as long as the build lasts, and a daemon that ends breaks it off.
(State 01 is ESTABLISHED: Linux, Documentation/networking/proc_net_tcp.rst.)"""

_ROOM = (Path(__file__).parents[1] / "ec2/boot/room").read_text(encoding="utf-8")
_KEPT = 24 * 60 * 60
"""Seconds that an image is left alone: a job may be about to push it."""

_HOURLY = 'trap exit TERM; while :; do sleep 3600 & wait $!; sh -c "$0" room "$@"; done'
"""Runs a script each hour; the shell is the first process of its container, which ends at once only by a trap."""


def _kind(build: BuildService) -> Spec:
    return _ROOTLESS if build.rootless else _DOCKER


def namespace(config: KubernetesRunners) -> Manifest:
    """Return the service's namespace, apart from the runners', which can so be stricter.

    No stricter level admits either kind: BuildKit's has no seccomp profile.
    """
    return isolation.admitting(config.build_namespace, "privileged")


def guarded(config: KubernetesRunners, build: BuildService, ports: Iterable[int]) -> list[Manifest]:
    """Return what surrounds the service in its namespace, as runners have it in theirs.

    The quota has room for one pod more: one on a node that is lost stays until somebody deletes it.
    """
    hard = {"pods": "2", "persistentvolumeclaims": "1"}
    return [
        isolation.manifest("v1", "ResourceQuota", NAME, config.build_namespace, spec={"hard": hard}),
        isolation.manifest(
            "v1", "LimitRange", NAME, config.build_namespace, spec={"limits": [isolation.largest_claim(build.cache)]}
        ),
        isolation.account(NAME, config.build_namespace),
        isolation.closed("build-closed", config.build_namespace),
        _policy(config, build, ports),
    ]


def own_address(config: KubernetesRunners, build: BuildService) -> str:
    """Return ``host:port`` as the cluster's pods reach the service."""
    return f"{NAME}.{config.build_namespace}.svc:{_kind(build)['port']}"


def address(config: KubernetesRunners, build: BuildService) -> str:
    """Return ``host:port`` as the machine that runs Pulumi reaches it."""
    return build.address or own_address(config, build)


def hosts(config: KubernetesRunners, build: BuildService) -> list[str]:
    """Return the names and addresses that the service's certificate is for."""
    own = own_address(config, build).partition(":")[0]
    given = [build.address.rpartition(":")[0] or build.address] if build.address else []
    return list(
        dict.fromkeys(
            [own, f"{own}.cluster.local", f"{NAME}.{config.build_namespace}", "localhost", "127.0.0.1", *given]
        )
    )


def client(config: KubernetesRunners, build: BuildService) -> Spec:
    """Return how a runner's job reaches the service: environment, and the secret with its certificate.

    Docker's own variables would take the place of a runner's own daemon: where it has one, they begin with ``BUILD_``.
    """
    at, prefix = own_address(config, build), "BUILD_" if config.daemon else ""
    env = {f"{prefix}{name}": value.format(address=at) for name, value in _kind(build)["env"].items()}
    return {"env": env, "secret": f"{NAME}-client"}


def service_labels() -> dict[str, str]:
    """Return the labels of the service's pod."""
    return {**isolation.OWN, "app.kubernetes.io/component": "build-service"}


def claim(config: KubernetesRunners, build: BuildService) -> Manifest:
    """Return the volume that keeps the layers, whatever becomes of the pod.

    Many classes of storage make a volume only for a pod that wants it, so that nobody can wait for this one first.
    """
    spec: Spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": build.cache}}}
    if build.storage_class:
        spec["storageClassName"] = build.storage_class
    made = isolation.manifest("v1", "PersistentVolumeClaim", NAME, config.build_namespace, spec=spec)
    made["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    return made


def deployment(config: KubernetesRunners, build: BuildService, image: str, certificate: Any) -> Manifest:
    """Return the daemon. A new one starts when the old has ended: two cannot share their layers.

    Args:
        config: what the runners are to be.
        build: what the service is to be.
        image: of the daemon.
        certificate: digest of the server's certificate. A daemon reads it once: another is another pod.
    """
    kind = _kind(build)
    ready = {"exec": {"command": kind["ready"]}, "periodSeconds": 5, "timeoutSeconds": 5}
    container = {
        "name": "daemon",
        "image": image,
        "args": kind["args"],
        "ports": [{"name": "api", "containerPort": kind["port"]}],
        "securityContext": kind["container"],
        "readinessProbe": ready,
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _LEAVE.format(port=kind["port"])]}}},
        "resources": {"requests": {"cpu": build.cpu, "memory": build.memory}, "limits": {"memory": build.memory}},
        "volumeMounts": [
            {"name": "layers", "mountPath": kind["state"]},
            {"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True},
            *([_SOCKETS] if kind["room"] else []),
        ],
    }
    pod = {
        **placement(_PROFILE),
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "priorityClassName": priority_class(config),
        "terminationGracePeriodSeconds": config.grace * 60,
        "containers": [container, *([_room(image, kind["state"])] if kind["room"] else [])],
        "volumes": [
            {"name": "layers", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "certificates", "secret": {"secretName": f"{NAME}-server"}},
            *([{"name": "socket", "emptyDir": {}}] if kind["room"] else []),
        ],
        **({"securityContext": kind["pod"]} if kind["pod"] else {}),
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": service_labels()},
        "template": {
            "metadata": {"labels": service_labels(), "annotations": {"slipway/certificate": certificate}},
            "spec": pod,
        },
    }
    return isolation.manifest("apps/v1", "Deployment", NAME, config.build_namespace, spec=spec)


_SOCKETS: Spec = {"name": "socket", "mountPath": _SOCKET}


def _room(image: str, state: str) -> Spec:
    """Return what makes room on the volume: BuildKit keeps its cache within bounds by itself, Docker its images not."""
    return {
        "name": "room",
        "image": image,
        "command": ["sh", "-c", _HOURLY, _ROOM, str(_KEPT)],
        "env": [{"name": "DOCKER_HOST", "value": f"unix://{_SOCKET}/docker.sock"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "readOnlyRootFilesystem": True,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "layers", "mountPath": state, "readOnly": True}, _SOCKETS],
    }


def disruption_budget(config: KubernetesRunners) -> Manifest:
    """Return the budget that lets nobody drain the service's node under a build; a deleted pod waits for builds."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": service_labels()}}
    return isolation.manifest("policy/v1", "PodDisruptionBudget", NAME, config.build_namespace, spec=spec)


def service(config: KubernetesRunners, build: BuildService) -> Manifest:
    """Return the daemon's address; a load balancer is asked to be one of the private network, on EKS and on AKS."""
    kind = _kind(build)
    spec = {
        "type": build.service,
        "selector": service_labels(),
        "ports": [{"name": "api", "port": kind["port"], "targetPort": "api"}],
    }
    made = isolation.manifest("v1", "Service", NAME, config.build_namespace, spec=spec)
    if build.service == "LoadBalancer":
        made["metadata"]["annotations"] = dict(_PRIVATE)
    return made


_PRIVATE = {
    # Each is read by one controller alone: AWS's load balancer controller, its cloud provider, Azure's.
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
}


def _policy(config: KubernetesRunners, build: BuildService, ports: Iterable[int]) -> Manifest:
    """Return the policy by which runners may speak to the service, and it may fetch and push as they do.

    Where others than pods are to reach it, any may try: what lets them in is their certificate.
    """
    runners = {**isolation.in_namespace(config.namespace), "podSelector": {"matchLabels": labels(config)}}
    anyone = build.service != "ClusterIP"
    spec = {
        "podSelector": {"matchLabels": service_labels()},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{**({} if anyone else {"from": [runners]}), "ports": _port(build)}],
        "egress": isolation.outward(ports),
    }
    return isolation.manifest(*isolation.POLICY, "build-service", config.build_namespace, spec=spec)


def clients_policy(config: KubernetesRunners, build: BuildService) -> Manifest:
    """Return the policy of the runners' namespace by which they reach the service."""
    service = {**isolation.in_namespace(config.build_namespace), "podSelector": {"matchLabels": service_labels()}}
    spec = isolation.egress(labels(config), [{"to": [service], "ports": _port(build)}])
    return isolation.manifest(*isolation.POLICY, "build-clients", config.namespace, spec=spec)


def _port(build: BuildService) -> list[Spec]:
    return [{"protocol": "TCP", "port": _kind(build)["port"]}]


def secret(config: KubernetesRunners, made: dict[str, Any], side: Literal["server", "client"]) -> Manifest:
    """Return the secret of the service, or that of its clients, in the namespace that each is in.

    Args:
        config: what the runners are to be.
        made: certificates and keys by their names in :class:`components.runners.kubernetes.certificates.Certificates`.
        side: whose.
    """
    return isolation.manifest(
        "v1",
        "Secret",
        f"{NAME}-{side}",
        {"server": config.build_namespace, "client": config.namespace}[side],
        type="Opaque",
        stringData={"ca.pem": made["ca"], "cert.pem": made[f"{side}_cert"], "key.pem": made[f"{side}_key"]},
    )
