"""The pod of the build service: its daemon, the volume with its layers, and how it stops. Plain data, no Pulumi.

There are two kinds: a Docker daemon, which is privileged, and a BuildKit daemon without privileges. Clients of either
log in with a certificate, and the daemon shows one of its own.

A service may have several replicas. Each is a deployment, because two daemons cannot share their layers, with a volume,
a Service and a budget of its own, so that clients meet their earlier layers. The objects of the first one have the
names of a service without replicas, so that it stays when others come. Those for another platform than the runners'
have its name in theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.pod import (
    ANY_NODE,
    CLIENT,
    CLOSED,
    Spec,
    daemon_options,
    on_disk,
    placement,
    priority_class,
    proxy,
    trusting,
)
from stacks.config.cluster.build_config import BuildServiceConfig, Replica
from stacks.config.kubernetes import KubernetesRunnersConfig

NAME = "build"
BUILDKIT = "moby/buildkit:v0.25.2-rootless"
_CERTIFICATES = "/certs"
_SOCKET = "/run/slipway"
_SCRATCH = "4Gi"
"""Most that each container writes to its node's disk: layers and builds are on the volume."""

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
    "trial": "dockerd --version && docker --version",
    "container": {"privileged": True},
    "pod": {},
    "env": {"DOCKER_HOST": "tcp://{address}", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": CLIENT},
    "cleanup": True,
}
"""Docker's own image, with TLS on its port and a socket for its pod alone."""

_ROOTLESS: Spec = {
    "port": 1234,
    "state": "/home/user/.local/share/buildkit",
    "args": [
        "--addr=tcp://0.0.0.0:1234",
        "--addr=unix:///run/user/1000/buildkit/buildkitd.sock",
        # Without it a build step needs /proc unmasked, which takes privileges (BuildKit, docs/rootless.md).
        "--oci-worker-no-process-sandbox",
        f"--tlscacert={_CERTIFICATES}/ca.pem",
        f"--tlscert={_CERTIFICATES}/cert.pem",
        f"--tlskey={_CERTIFICATES}/key.pem",
    ],
    "ready": ["buildctl", "debug", "workers"],
    "trial": "buildkitd --version && buildctl --version",
    "container": {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        # RootlessKit makes namespaces, which both profiles forbid (BuildKit, examples/kubernetes/*.rootless.yaml).
        "seccompProfile": {"type": "Unconfined"},
        "appArmorProfile": {"type": "Unconfined"},
    },
    "pod": {"fsGroup": 1000},
    "env": {"BUILDKIT_HOST": "tcp://{address}"},
    "cleanup": False,
}
"""BuildKit's rootless image. It keeps no images and bounds its cache by itself."""

_STOP = """\
while cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "01" && $2 ~ /:{port:04X}$/ {{n++}} END {{exit !n}}'; do
  sleep 1
done"""
"""Waits until no client is connected. A client stays connected during its build, which a stopped daemon would break.
(State 01 is ESTABLISHED: Linux, Documentation/networking/proc_net_tcp.rst.)"""

_CLEANUP = (Path(__file__).parents[1] / "ec2/boot/room").read_text(encoding="utf-8")
_TRIAL = 300
"""Seconds in which a node pulls the daemon's image. Its kubelet has tried five times by then."""
_NODE = 600
"""Seconds in which a cloud starts a node for that."""
_MINIMUM_AGE = 24 * 60 * 60
"""Seconds for which the cleanup leaves an image alone, because a job may be about to push it."""

_HOURLY = 'trap exit TERM; while :; do sleep 3600 & wait $!; sh -c "$0" room "$@"; done'
"""Runs a script each hour. The trap ends the shell at once, which as its container's first process ignores TERM."""

_APART: Spec = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": dict(isolation.LABELS)},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
}
"""Keeps a replica off the nodes of others, where there are enough nodes: their namespace has no other pods.

It keeps the first one, which does not have it, off theirs as well (Kubernetes, interpodaffinity/scoring.go).
"""

_UNPRIVILEGED: Spec = {**CLOSED, "seccompProfile": {"type": "RuntimeDefault"}, "readOnlyRootFilesystem": True}
_NOBODY = 65534
"""The user of a program that only says its version."""
_SMALL: Spec = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}

_SOCKET_MOUNT: Spec = {"name": "socket", "mountPath": _SOCKET}

_PRIVATE = {
    # One annotation for each controller: AWS's load balancer controller, AWS's cloud provider, Azure's.
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
}


def daemon(build: BuildServiceConfig) -> Spec:
    """Return the properties of the daemon's kind."""
    return _ROOTLESS if build.rootless else _DOCKER


def service_labels(ending: str = "") -> dict[str, str]:
    """Return the labels of a replica's pod by the ending of its names. No selector of one replica matches another."""
    component = f"build-service-{ending}" if ending else "build-service"
    return {**isolation.LABELS, "app.kubernetes.io/component": component}


def _volume(build: BuildServiceConfig, replica: Replica) -> str:
    """Return the name of the claim of the layers. A publisher builds on no layer of a job."""
    return replica.named(NAME if build.jobs else "publish")


def claim(config: KubernetesRunnersConfig, build: BuildServiceConfig, replica: Replica) -> Manifest:
    """Return the claim of the volume with the layers, which outlives the pod.

    Pulumi does not await it: many storage classes provision a volume only once a pod uses it.
    """
    spec: Spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": build.cache}}}
    if build.storage_class:
        spec["storageClassName"] = build.storage_class
    name = _volume(build, replica)
    manifest = isolation.manifest("v1", "PersistentVolumeClaim", name, config.build_namespace, spec=spec)
    manifest["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    return manifest


def deployment(
    config: KubernetesRunnersConfig,
    build: BuildServiceConfig,
    image: str,
    certificate: Any,
    replica: Replica,
    authority: tuple[str, str] = ("", ""),
) -> Manifest:
    """Return the daemon. A new pod starts after the old one has ended, because two cannot share their layers.

    ``certificate`` is the digest of the server's certificate. A daemon reads it once: a new one takes a new pod. So
    does a new ``authority``: the ConfigMap with the mirrors' certificate, and its digest.
    """
    kind = daemon(build)
    annotations = {"slipway/certificate": certificate, **({"slipway/authority": authority[1]} if authority[1] else {})}
    ready = {"exec": {"command": kind["ready"]}, "periodSeconds": 5, "timeoutSeconds": 5}
    container = {
        "name": "daemon",
        "image": image,
        "args": [*kind["args"], *([] if build.rootless else daemon_options(config))],
        **({"env": proxy(config)} if config.proxy else {}),
        "ports": [{"name": "api", "containerPort": kind["port"]}],
        "securityContext": kind["container"],
        "readinessProbe": ready,
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP.format(port=kind["port"])]}}},
        "resources": on_disk(
            _SCRATCH, {"requests": {"cpu": build.cpu, "memory": build.memory}, "limits": {"memory": build.memory}}
        ),
        "volumeMounts": [
            {"name": "layers", "mountPath": kind["state"]},
            {"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True},
            *([_SOCKET_MOUNT] if kind["cleanup"] else []),
        ],
    }
    pod = {
        # It stays and needs no GPU: it would keep a node with GPUs alive for ever.
        **placement(ANY_NODE[replica.platform], replica.pool),
        **({"affinity": _APART} if replica.ending else {}),
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "priorityClassName": priority_class(config),
        "terminationGracePeriodSeconds": config.grace * 60,
        "containers": [container, *([_cleanup(image, kind["state"])] if kind["cleanup"] else [])],
        "volumes": [
            {"name": "layers", "persistentVolumeClaim": {"claimName": _volume(build, replica)}},
            {"name": "certificates", "secret": {"secretName": f"{replica.named(NAME)}-server"}},
            *([{"name": "socket", "emptyDir": {}}] if kind["cleanup"] else []),
        ],
        **({"securityContext": kind["pod"]} if kind["pod"] else {}),
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": service_labels(replica.ending)},
        "template": {
            "metadata": {"labels": service_labels(replica.ending), "annotations": annotations},
            "spec": trusting(pod, authority[0]),
        },
    }
    name = replica.named(NAME)
    return isolation.manifest("apps/v1", "Deployment", name, config.build_namespace, spec=spec)


def trial(config: KubernetesRunnersConfig, build: BuildServiceConfig, image: str, replica: Replica) -> Manifest:
    """Return the Job that has a node of the replica's pool pull the daemon's image and run its programs.

    It precedes the daemons of the pool, so a broken image ends no working pod. Pulumi's provider fails with a Job, and
    reports its pod's reason (pulumi-kubernetes 9497796, provider/pkg/await/job.go). It waits for a Deployment to the
    end, whatever happens to its pods (deployment.go). Here that includes the old pod's grace.
    """
    container = {
        "name": "daemon",
        "image": image,
        "command": ["sh", "-c", daemon(build)["trial"]],
        "securityContext": _UNPRIVILEGED,
        "resources": on_disk(_SCRATCH, _SMALL),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod = {
        **placement(ANY_NODE[replica.platform], replica.pool),
        "activeDeadlineSeconds": _TRIAL,
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "priorityClassName": priority_class(config),
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": _NOBODY},
        "containers": [container],
    }
    template = {"metadata": {"labels": dict(isolation.LABELS)}, "spec": pod}
    return isolation.once(replica.named(f"{NAME}-image"), config.build_namespace, _NODE + _TRIAL, template)


def _cleanup(image: str, state: str) -> Spec:
    """Return the container that makes room on the volume. Docker, unlike BuildKit, does not bound its images."""
    return {
        "name": "room",
        "image": image,
        "command": ["sh", "-c", _HOURLY, _CLEANUP, str(_MINIMUM_AGE)],
        "env": [{"name": "DOCKER_HOST", "value": f"unix://{_SOCKET}/docker.sock"}],
        "securityContext": _UNPRIVILEGED,
        "resources": on_disk(_SCRATCH, _SMALL),
        "volumeMounts": [{"name": "layers", "mountPath": state, "readOnly": True}, _SOCKET_MOUNT],
    }


def disruption_budget(config: KubernetesRunnersConfig, replica: Replica) -> Manifest:
    """Return the budget that keeps a replica's node from being drained during a build."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": service_labels(replica.ending)}}
    name = replica.named(NAME)
    return isolation.manifest("policy/v1", "PodDisruptionBudget", name, config.build_namespace, spec=spec)


def service(config: KubernetesRunnersConfig, build: BuildServiceConfig, replica: Replica) -> Manifest:
    """Return a daemon's Service. A load balancer gets a private address on EKS and AKS."""
    spec = {
        "type": build.service,
        "selector": service_labels(replica.ending),
        "ports": [{"name": "api", "port": daemon(build)["port"], "targetPort": "api"}],
    }
    manifest = isolation.manifest("v1", "Service", replica.named(NAME), config.build_namespace, spec=spec)
    if build.service == "LoadBalancer":
        manifest["metadata"]["annotations"] = dict(_PRIVATE)
    return manifest
