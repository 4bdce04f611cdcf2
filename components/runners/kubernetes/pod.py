"""The pod of a GitHub Actions runner: its container, and by default a Docker daemon. Plain data, no Pulumi.

ARC's own ``containerMode: dind`` takes no change ("if any customization is required ... containerMode should remain
empty, and configuration should be applied to the template", gha-runner-scale-set's values.yaml). So this module has the
whole template: GPUs, devices of the fabric, a volume for layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacks.config.cluster.kubernetes_values import RUNNER_REQUESTS
from stacks.config.cluster.node_pools import PoolConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.versions.nodes import EFA, HUGEPAGES, INFINIBAND, node

Spec = dict[str, Any]
"""A part of a Kubernetes object, as its API has it."""

CLOSED: Spec = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container that needs no privilege."""

ACCOUNT = "runner"
SOCKETS = "/var/run"
WORK = "/home/runner/_work"
EXTERNALS = "/home/runner/externals"
CLIENT = "/etc/slipway/build"
"""The folder with a job's certificate for the build service."""
ANY_NODE: Mapping[str, str] = {"linux/amd64": "cpu", "linux/arm64": "cpu-arm64"}
"""The profile of any node with a platform's processors."""
JOBS = "/etc/slipway/jobs"
"""The folder with what a runner makes the pods of jobs from: the ConfigMap :data:`JOBS_MAP`."""
JOBS_MAP = "jobs"
CLAIM = "gpus"
"""A pod's name for its claim of GPUs; also that of the template of claims, or of the one that is shared."""
AUTHORITY = "mirrors-ca"
"""A pod's volume with the certificate that ``slipway:mirrors.caCertificate`` has."""
TRUSTED = "/etc/ssl/certs/slipway-mirrors.pem"
_START = 30 * 60
"""Seconds in which a job's pod gets its node and its image, else the job fails. The hook's default is ten minutes, in
which a cloud may not start a node with GPUs."""
_USER: Spec = {"runAsUser": 1001, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
"""The user of GitHub's runner image."""
_LITTLE = "1Gi"
"""What a container may write that has its layers, or its work, on a volume; also what any requests."""
_EXTERNALS_SIZE = "4Gi"
"""The size of the volume with the runner's Node.js, which has several versions."""
_DOCKER_GROUP = "123"
"""The group of ``docker`` in GitHub's runner image."""
_CANCELLATION = 120
"""Seconds after ``grace`` in which a runner cancels its job and reports that (actions/runner v2.336.0,
src/Runner.Listener/JobDispatcher.cs:180 and 306: 60 s for the job's process, 45 s for the report)."""
_BUSY = "grep -qas 'Runner[.]Worker' /proc/[0-9]*/cmdline"
"""Whether a runner has a job, which has a process of its own: ``Runner.Worker``. It starts moments after the runner
took the job."""
_FINISH = f"""\
idle=0
while [ "$idle" -lt 3 ] && [ "$SECONDS" -lt "$1" ]; do
  idle=$((idle + 1))
  if {_BUSY}; then idle=0; fi
  sleep 1
done"""
"""Waits for the end of the runner's job, ``$1`` seconds at most. Without a job it ends in three seconds.

TERM makes ``run.sh`` interrupt the runner, which cancels its job at once.
"""
_READY: Spec = {
    "exec": {"command": ["bash", "-c", _BUSY]},
    "periodSeconds": 5,
    "timeoutSeconds": 10,
    # A runner has one job, and ends with it. On a node at its limits, no probe that is late says otherwise.
    "failureThreshold": 100_000,
}
"""A runner is ready while it has a job, so that :func:`isolation.disruption_budget` keeps it, and no other.
ARC 0.14.2 tells nothing of a job to a runner's pod (cmd/ghalistener/scaler/scaler.go, HandleJobStarted), and copies the
pod's readiness to the status of its object alone (controllers/actions.github.com/ephemeralrunner_controller.go:800).
"""


def template(config: KubernetesRunnersConfig, runner: str, docker: str, service: Spec | None = None) -> Spec:
    """Return the pod template of a runner scale set. ``runner`` and ``docker`` are images.

    ``service`` is a job's access to the build service: ``env``, and the ``secret`` with its certificate.
    """
    return {
        "metadata": {"labels": labels(config)},
        "spec": {
            # Not apart from each other: an autoscaler would start a node for each (Karpenter honours preferences).
            # A runner without devices waits on any node, and keeps none with GPUs.
            **(
                placement(ANY_NODE[config.platform], PoolConfig())
                if config.job_pods
                else placement(config.profile, config)
            ),
            "serviceAccountName": ACCOUNT,
            # It makes the job's pod. No job runs beside the token.
            "automountServiceAccountToken": config.job_pods,
            "priorityClassName": priority_class(config),
            **({} if config.job_pods else claims(config)[0]),
            "terminationGracePeriodSeconds": config.grace * 60 + _CANCELLATION,
            **({"initContainers": [_externals(runner), _daemon(config, docker)]} if config.own_daemon else {}),
            "containers": [_runner(config, runner, service)],
            "volumes": _volumes(config, service),
        },
    }


def placement(profile: str, pool: PoolConfig) -> Spec:
    """Return the node selector, tolerations and runtime class of pods on a pool's nodes of a profile."""
    row = node(profile)
    tolerations = [
        *map(dict, row.tolerations),
        *(toleration.model_dump(by_alias=True, exclude_none=True) for toleration in pool.tolerations),
    ]
    spec: Spec = {"nodeSelector": {**row.selector, **pool.node_labels}}
    if tolerations:
        spec["tolerations"] = tolerations
    if pool.runtime_class:
        spec["runtimeClassName"] = pool.runtime_class
    return spec


def on_disk(most: str, resources: Mapping[str, Mapping[str, str]] | None = None) -> Spec:
    """Return a container's resources with a limit of what it writes to its node's disk.

    It requests little of that, because a scheduler counts the request of each pod as used.
    """
    limited = {kind: dict((resources or {}).get(kind, {})) for kind in ("requests", "limits")}
    limited["requests"]["ephemeral-storage"] = _LITTLE
    limited["limits"]["ephemeral-storage"] = most
    return limited


def priority_class(config: KubernetesRunnersConfig) -> str:
    """Return the name of the builds' priority class. Each namespace of runners has its own."""
    return f"{config.namespace}-build"


def labels(config: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the labels of a runner's pod, which the namespace's other objects select."""
    component = "runner" if config.is_one_of_several else f"runner-{config.profile}"
    return {"app.kubernetes.io/part-of": "slipway", "app.kubernetes.io/component": component}


def devices(config: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the extended resources of one runner as ``limits``. Kubernetes requests the same amounts.

    EFA also needs huge pages, each interface its share: else the first runner of a node would have them all. A pod
    without a GPU could still see all GPUs of a node whose plugin does not guard them (NVIDIA's device plugin, README),
    so ``NVIDIA_VISIBLE_DEVICES`` is set as well.
    """
    requested = {resource: str(count) for resource, count in config.resources.items()}
    return {**requested, HUGEPAGES: f"{config.pages}Mi"} if config.pages else requested


def claims(config: KubernetesRunnersConfig, name: str = "") -> tuple[Spec, Spec]:
    """Return what a pod says of its claim of GPUs, and what the resources of a container with them do.

    Both are empty where the GPUs are an extended resource. With the ``name`` of a template, the claim is the pod's own.
    Its controller makes the claim of a template, so who makes the pod needs no right to (Kubernetes, "Dynamic Resource
    Allocation").
    """
    if not config.gpu_claim:
        return {}, {}
    kind = "resourceClaimName" if config.shared_gpus and not name else "resourceClaimTemplateName"
    return {"resourceClaims": [{"name": CLAIM, kind: name or config.named(CLAIM)}]}, {"claims": [{"name": CLAIM}]}


def _has_devices(config: KubernetesRunnersConfig) -> bool:
    """Return whether the runner's own container has devices; else each job has a pod of its own, or none."""
    return bool(config.devices) and not config.job_pods


def shared_memory(config: KubernetesRunnersConfig) -> list[Spec]:
    """Return the volume for ``/dev/shm`` of a container with the runners' devices; none without devices."""
    return [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": config.shm}}] if config.devices else []


def pins(config: KubernetesRunnersConfig) -> bool:
    """Return whether a runner pins memory for its node's fabric, for which it needs ``IPC_LOCK``."""
    return bool({EFA, INFINIBAND} & config.devices.keys())


def resources(limits: Mapping[str, str], size: tuple[str, str] = RUNNER_REQUESTS) -> Spec:
    """Return the resources of a container with devices. Huge pages require CPU or memory requests."""
    cpu, memory = size
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": dict(limits)}


def _externals(image: str) -> Spec:
    """Return the init container that copies the runner's Node.js to a volume for the containers of jobs."""
    return {
        "name": "init-dind-externals",
        "image": image,
        "command": ["cp", "-r", f"{EXTERNALS}/.", "/home/runner/tmpDir/"],
        "securityContext": {
            **_USER,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "resources": on_disk(_EXTERNALS_SIZE),
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }


def _daemon(config: KubernetesRunnersConfig, image: str) -> Spec:
    """Return the daemon as a native sidecar: it starts before the runner and ends after it."""
    sizes = {"requests": {"cpu": config.cpu, "memory": config.memory}, "limits": {"memory": config.memory}}
    mounts = {"work": WORK, "dind-sock": SOCKETS, "dind-externals": EXTERNALS}
    return {
        "name": "dind",
        **daemon(config, image, _DOCKER_GROUP, on_disk(_EXTERNALS_SIZE, sizes), mounts),
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["docker", "info"]}, "failureThreshold": 24, "periodSeconds": 5},
    }


def daemon(
    config: KubernetesRunnersConfig,
    image: str,
    group: str,
    resources: Spec,
    mounts: Mapping[str, str],
    started: str = "",
) -> Spec:
    """Return a container with a Docker daemon, but for its name.

    With GPUs, it describes to Docker what it sees of them itself (CDI). Docker reads /var/run/cdi, by default from 28.2
    on (moby v28.2.0, cmd/dockerd/daemon.go:1062), also what comes there later. NVIDIA's runtime gives all GPUs of the
    node to a privileged container that names them (nvidia-container-toolkit v1.19.1,
    internal/config/image/cuda_image.go:281).

    ``group`` is the id of the group that may use its socket. ``mounts`` are paths of volumes by their names, besides
    that of its layers. ``started`` is a command that runs in it once it has started.
    """
    with_gpus = config.has_gpus_in_docker
    visible = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] if with_gpus and not config.gpu_claim else []
    commands = " && ".join([*([_DESCRIBED] if with_gpus else []), *([started] if started else [])])
    return {
        "image": image,
        "args": [
            "dockerd",
            "--host=unix:///var/run/docker.sock",
            "--group=$(DOCKER_GROUP_GID)",
            *daemon_options(config),
        ],
        "env": [{"name": "DOCKER_GROUP_GID", "value": group}, *proxy(config), *visible],
        "securityContext": {"privileged": True},
        "resources": {**resources, **(claims(config)[1] if with_gpus else {})},
        "volumeMounts": mounts_of({**mounts, "layers": "/var/lib/docker"}),
        **({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", commands]}}}} if commands else {}),
    }


def trusting(spec: Spec, authority: str, *, by_variable: bool = True) -> Spec:
    """Return a pod whose containers trust the certificate of the mirrors, of a ConfigMap; the pod itself without one.

    Programs in Go, such as Docker and BuildKit, read each file of the folder besides the system's bundle (go1.26,
    crypto/x509/root_unix.go, loadSystemRoots). GitHub's actions run in Node.js, which reads the file of its variable:
    ``by_variable`` sets that, in place of the image's own.
    """
    if not authority:
        return spec
    mount = {"name": AUTHORITY, "mountPath": TRUSTED, "subPath": "ca.pem", "readOnly": True}
    variables = [{"name": "NODE_EXTRA_CA_CERTS", "value": TRUSTED}] if by_variable else []

    def trusts(container: Spec) -> Spec:
        mounts, env = ([*container.get(key, ())] for key in ("volumeMounts", "env"))
        return {**container, "volumeMounts": [*mounts, mount], **({"env": env} if (env := [*env, *variables]) else {})}

    kinds = [key for key in ("initContainers", "containers") if key in spec]
    volume = {"name": AUTHORITY, "configMap": {"name": authority}}
    return {**spec, **{key: [*map(trusts, spec[key])] for key in kinds}, "volumes": [*spec["volumes"], volume]}


_DESCRIBED = "mkdir -p /var/run/cdi && nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
"""Describes the GPUs to Docker (nvidia-container-toolkit v1.19.1, cmd/nvidia-ctk/cdi/generate/generate.go:118)."""


def layers(config: KubernetesRunnersConfig) -> Spec:
    """Return the volume for the layers of a Docker daemon, which goes with its pod."""
    claim: Spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": config.cache}}}
    if config.storage_class:
        claim["storageClassName"] = config.storage_class
    return {"name": "layers", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def proxy(config: KubernetesRunnersConfig) -> list[Spec]:
    """Return the variables of the runners' proxy for Docker daemons and jobs' pods.

    ARC gives them to the container of the runner alone (actions-runner-controller 0.14.2,
    controllers/actions.github.com/ephemeralrunner_controller.go:699 and resourcebuilder.go:701).
    """
    return env_of(config.proxy)


def daemon_options(config: KubernetesRunnersConfig) -> list[str]:
    """Return the options by which a Docker daemon fits the cluster's network: the MTU of its pods, and mirrors.

    ``--mtu`` is that of its own bridge alone (moby v28.5.2, cmd/dockerd/config.go:33). Networks that jobs make have the
    default options of their driver (daemon/network.go:305), from Docker 24 on.
    """
    if config.network is None:
        return []
    mtu = config.network.mtu
    networks = [f"--mtu={mtu}", f"--default-network-opt=bridge=com.docker.network.driver.mtu={mtu}"] if mtu else []
    return [*networks, *(f"--registry-mirror={mirror}" for mirror in config.network.docker_mirrors)]


def _hook(config: KubernetesRunnersConfig, image: str) -> list[Spec]:
    """Return the variables with which a runner has its jobs run in pods of their own.

    They are those of the chart's ``containerMode: kubernetes-novolume`` (gha-runner-scale-set 0.14.2,
    templates/_helpers.tpl:372-449), and those of its hook (runner-container-hooks v0.8.1, packages/k8s/src/k8s): the
    template of the pods, their namespace, and the seconds in which they start.
    """
    values = {
        "ACTIONS_RUNNER_CONTAINER_HOOKS": f"{JOBS}/hook.js",
        "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE": f"{JOBS}/job.json",
        "ACTIONS_RUNNER_IMAGE": image,
        "ACTIONS_RUNNER_KUBERNETES_NAMESPACE": config.jobs_namespace,
        "ACTIONS_RUNNER_PREPARE_JOB_TIMEOUT_SECONDS": str(_START),
        # Else a job without a container would run here, beside the token.
        "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER": "true",
    }
    own_name = {"name": "ACTIONS_RUNNER_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [*env_of(values), own_name]


def _runner(config: KubernetesRunnersConfig, image: str, service: Spec | None) -> Spec:
    has_devices = _has_devices(config)
    mounts = {"work": WORK, **({"shm": "/dev/shm"} if has_devices else {})}  # noqa: S108 - a pod's own
    # Without it, run.sh ignores TERM as its container's first process. GitHub's own image sets it, others may not.
    env = {"RUNNER_MANUALLY_TRAP_SIG": "1"}
    if config.own_daemon:
        mounts["dind-sock"] = SOCKETS
        env |= {"DOCKER_HOST": "unix:///var/run/docker.sock", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS": "120"}
    if service:
        mounts["build-client"] = CLIENT
        env |= service["env"]
    if config.job_pods:
        mounts[JOBS_MAP] = JOBS
    if not has_devices:
        env["NVIDIA_VISIBLE_DEVICES"] = "void"
    container: Spec = {
        "name": "runner",
        "image": image,
        "command": ["/home/runner/run.sh"],
        "readinessProbe": _READY,
        "lifecycle": {"preStop": {"exec": {"command": ["bash", "-c", _FINISH, "finish", str(config.grace * 60)]}}},
        "env": [*env_of(env), *(_hook(config, image) if config.job_pods else [])],
        # Jobs have sudo in GitHub's image, so privilege escalation stays allowed. Unneeded capabilities are dropped.
        "securityContext": {**_USER, "privileged": False, "capabilities": {"drop": ["NET_RAW"]}},
        "volumeMounts": mounts_of(mounts),
    }
    size, limits = config.own_requests, devices(config) if has_devices else {}
    if config.job_memory and not config.job_pods:
        limits["memory"] = config.job_memory
    container["resources"] = on_disk(config.disk, resources(limits, size) if size else None)
    if has_devices:
        container["resources"] |= claims(config)[1]
    if pins(config) and has_devices:
        # Exempts root, and so sudo, from a node's limit of pinned memory. The runner's own user is not exempt, because
        # Kubernetes sets no ambient capabilities (capabilities(7)).
        container["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
    return container


def _volumes(config: KubernetesRunnersConfig, service: Spec | None) -> list[Spec]:
    volumes: list[Spec] = [{"name": "work", "emptyDir": {"sizeLimit": config.disk}}]
    if config.job_pods:
        volumes.append({"name": JOBS_MAP, "configMap": {"name": config.named(JOBS_MAP)}})
    if config.own_daemon:
        sizes = {"dind-sock": _LITTLE, "dind-externals": _EXTERNALS_SIZE}
        volumes += [{"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items()]
        volumes.append(layers(config))
    if service:
        volumes.append({"name": "build-client", "secret": {"secretName": service["secret"]}})
    return volumes + (shared_memory(config) if _has_devices(config) else [])


def env_of(values: Mapping[str, Any]) -> list[Spec]:
    """Return the environment of a container that has these variables."""
    return [{"name": name, "value": value} for name, value in values.items()]


def mounts_of(paths: Mapping[str, str]) -> list[Spec]:
    """Return the mounts of volumes at these paths, by the volumes' names."""
    return [{"name": name, "mountPath": path} for name, path in paths.items()]
