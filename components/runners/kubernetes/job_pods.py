"""Pods of jobs, which runners make from a template (``jobPods: true``). Plain data, no Pulumi.

The runner starts GitHub's hook (runner-container-hooks v0.8.1, packages/k8s) instead of Docker. The hook makes a pod
with the image of the job's ``container:`` and what the template adds to it, and runs the job's steps in it. The runner
keeps the token with which it does so.

That token is worth something. So the pods are in a namespace of their own, where it reaches no key that registers
runners: ARC keeps that one in the runners' namespace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from components.runners.kubernetes import isolation
from components.runners.kubernetes.gpu_validation import STAYS
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.periodic.cron_job import cron_job, permissions, program
from components.runners.kubernetes.pod import (
    ACCOUNT,
    CLIENT,
    JOBS,
    JOBS_MAP,
    SOCKETS,
    TRUSTED,
    Spec,
    claims,
    daemon,
    devices,
    env_of,
    labels,
    layers,
    mounts_of,
    on_disk,
    pins,
    placement,
    priority_class,
    proxy,
    shared_memory,
    trusting,
)
from stacks.config.kubernetes import KubernetesRunnersConfig

JOB_ACCOUNT = "job"
_SOCKETS_SIZE = "1Gi"
"""What a Docker daemon writes outside of the volume for its layers."""
WARM = "/opt/slipway/warm"
"""The folder of warm layers in an image: see ``cli.warm.warm_hook``."""
DOCKER = "/opt/slipway/docker"
"""The folder with the socket of a job's own Docker daemon."""
_GROUP = "1001"
"""The group of a job's pod (``fsGroup``), which each of its containers has, whatever the user of its image is."""
_ANSWERS = "for _ in $(seq 120); do docker info >/dev/null 2>&1 && exit; sleep 1; done; exit 1"
"""Waits for Docker. Until it ends, the kubelet does not say that the pod runs, and the hook starts no step (Kubernetes,
"Container Lifecycle Hooks"; runner-container-hooks v0.8.1, packages/k8s/src/hooks/prepare-job.ts, waitForPodPhases)."""
_LONGEST = 5 * 24 * 60 * 60
"""Seconds after which no job runs any more (GitHub, "Actions limits": five days on self-hosted runners)."""

_STARTS = "Object.defineProperty(process, 'stdin'"
_HOOK = f"""\
'use strict'
const fs = require('fs')
const {{ normalize }} = require('path')
const {{ Readable }} = require('stream')
const input = JSON.parse(fs.readFileSync(0))
const {{ command, args }} = input
// Volumes are folders of the runner that the hook copies into the job. One of them has the runner's token.
const containers = command === 'prepare_job' ? [args.container, ...(args.services || [])] : []
if (containers.some(one => one && (one.userMountVolumes || []).length)) {{
  console.log('::error::container.volumes: these runners have no folders for a job: leave it out')
  process.exit(1)
}}
// An action that is an image has a pod beside the job, which has all devices.
if (command === 'run_container_step') process.env.ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE = '{JOBS}/step.json'
// The job of the workflow `warm` makes caches where the image's user could make no folder.
if (containers[0] && (containers[0].environmentVariables || {{}}).SLIPWAY_WARM) {{
  process.env.ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE = '{JOBS}/warm.json'
}}
// A job puts folders first on PATH, and programs into a folder that the hook copies here. The hook starts `sh`.
process.env.PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
// The runner has the state from an answer that a job can write into that folder: it could name another job's pod.
const jobPod = `${{process.env.ACTIONS_RUNNER_POD_NAME.substring(0, 54)}}-workflow`
if (command !== 'prepare_job') input.state = {{ jobPod }}
// tar-fs judges by its text whether a link in a job's archive stays in that folder. `a/..` leaves it if `a` is a link.
const {{ symlink }} = fs
fs.symlink = (target, ...others) => symlink(normalize(target), ...others)
{_STARTS}, {{ value: Readable.from([JSON.stringify(input) + '\\n']) }})
require('/home/runner/k8s-novolume/index.js')
"""
"""Starts GitHub's hook so that a job cannot turn it against its runner."""

_TRUSTS = f"""\
if (command === 'run_script_step') {{
  const trusts = ': "${{NODE_EXTRA_CA_CERTS:={TRUSTED}}}"; export NODE_EXTRA_CA_CERTS; exec "$0" "$@"'
  args.entryPoint = `sh -c '${{trusts}}' ${{args.entryPoint}}`
}}
"""
"""Has a job's actions trust the certificate of the mirrors, unless its image or its workflow names one. A template
would win over both (packages/k8s/src/k8s/utils.ts:206); the hook writes the program of a step into a script as it is
(utils.ts:92)."""


def namespace(config: KubernetesRunnersConfig) -> Manifest:
    """Return the namespace of the jobs' pods. Only ``privileged`` admits a Docker daemon, or pinned memory."""
    privileged = config.job_daemon or any(map(pins, config.all_sets))
    return isolation.admitting(config.jobs_namespace, "privileged" if privileged else "baseline")


def guarded(config: KubernetesRunnersConfig, ports: Iterable[int]) -> list[Manifest]:
    """Return the isolation of the jobs' pods, as that of runners, and what their runners may do there.

    A job may have a pod of a step beside its own; pods that end count for as long as their successors start.
    """
    space = config.jobs_namespace
    pods = 4 * sum(own.max_runners for own in config.all_sets)
    devices = isolation.totals(size for own in config.all_sets for size in isolation.sizes(own, 2 * own.max_runners))
    return [
        isolation.quota_of(config, space, pods, devices, pods // 2 * config.job_daemon),
        isolation.limit_range(config, space),
        isolation.account(config, JOB_ACCOUNT, space),
        *isolation.network_policies(config, ports, space),
        isolation.disruption_budget(config, space),
        *permissions(ACCOUNT, space, ACCOUNT, config.namespace, _HOOK_RULES),
        *isolation.gpu_claims(config, space),
    ]


_HOOK_RULES: list[Spec] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "delete"]},
]
"""What the hook asks for before it does anything (packages/k8s/src/k8s/index.ts:38-63). Secrets are the logins of
private images."""


SWEEPER = "sweeper"
_SWEEP = program(Path(__file__).parent / "sweep.js")


def sweeper(config: KubernetesRunnersConfig, image: str) -> list[Manifest]:
    """Return what ends the pod of a job whose runner is gone, within some three minutes; ``image`` is the runner's.

    The hook ends the pod of its own job, and ARC those of its own namespace. Neither does where a node with a runner is
    lost, and the job's pod would keep its GPUs for :data:`_LONGEST`. It is where no job runs, because its token may end
    any job.
    """
    home = config.controller_namespace
    variables = {"SWEEP": _SWEEP, "RUNNERS": config.namespace, "JOBS": config.jobs_namespace}
    pods = {"apiGroups": [""], "resources": ["pods"]}
    ends: list[Spec] = [{**pods, "verbs": ["list", "delete"]}]
    return [
        isolation.account(config, SWEEPER, home),
        *permissions(SWEEPER, config.jobs_namespace, SWEEPER, home, ends),
        *permissions(f"{SWEEPER}-runners", config.namespace, SWEEPER, home, [{**pods, "verbs": ["list"]}]),
        cron_job(config, SWEEPER, image, variables, "*/2 * * * *"),
    ]


def files(
    config: KubernetesRunnersConfig, service: Spec | None = None, docker: str = "", authority: str = ""
) -> Manifest:
    """Return the ConfigMap with the hook and its templates, for :data:`components.runners.kubernetes.pod.JOBS`.

    ``service`` is a job's access to the build service, as for :func:`components.runners.kubernetes.pod.template`.
    ``docker`` is the Docker daemon's image, by default as configured. ``authority`` is the ConfigMap with the mirrors'
    certificate; empty without one.
    """
    job, warm = (template(config, service, docker) for _ in range(2))
    step = _template(config, {"resources": on_disk(config.disk)}, [], has_devices=False)
    templates = {"job.json": job, "warm.json": _warming(warm), "step.json": step}
    specs = {name: trusting(each["spec"], authority, by_variable=False) for name, each in templates.items()}
    texts = {
        "hook.js": _HOOK.replace(_STARTS, _TRUSTS + _STARTS) if authority else _HOOK,
        **{name: _text({**each, "spec": specs[name]}) for name, each in templates.items()},
    }
    return isolation.manifest("v1", "ConfigMap", config.named(JOBS_MAP), config.namespace, data=texts)


def _text(template: Spec) -> str:
    return json.dumps(template, indent=2) + "\n"


def template(config: KubernetesRunnersConfig, service: Spec | None = None, docker: str = "") -> Spec:
    """Return what the hook adds to a job's pod: devices, limits, its nodes; and to its first container, ``$job``."""
    limits = {**devices(config), **({"memory": config.job_memory} if config.job_memory else {})}
    sizes = on_disk(config.disk, {"requests": {"cpu": config.cpu, "memory": config.memory}, "limits": limits})
    of_pod, of_container = claims(config)
    container: Spec = {"resources": {**sizes, **of_container}}
    mounts = {"shm": "/dev/shm"} if config.devices else {}  # noqa: S108 - a pod's own
    volumes = shared_memory(config)
    env: dict[str, str] = dict(service["env"]) if service else {}
    if config.job_daemon:
        env["DOCKER_HOST"] = f"unix://{DOCKER}/docker.sock"
        mounts["docker"] = DOCKER
        volumes += [{"name": "docker", "emptyDir": {"sizeLimit": _SOCKETS_SIZE}}, layers(config)]
    if env:
        container["env"] = env_of(env)
    if service:
        mounts["build-client"] = CLIENT
        volumes.append({"name": "build-client", "secret": {"secretName": service["secret"]}})
    if mounts:
        container["volumeMounts"] = mounts_of(mounts)
    made = _template(config, container, volumes, has_devices=bool(config.devices))
    made["spec"] |= of_pod
    if config.job_daemon:
        made["spec"]["containers"].append(_daemon(config, docker or config.docker_image))
    return made


def _daemon(config: KubernetesRunnersConfig, image: str) -> Spec:
    """Return the Docker daemon beside a job. It has the job's folders where the job has them, for ``docker run -v``.

    A job's service has the name of its image, such as ``docker``, so this one has another. It is none of
    ``initContainers``: with those of a template, the hook would lose its own (runner-container-hooks v0.8.1,
    packages/k8s/src/k8s/index.ts:116 and utils.ts:221).
    """
    # The hook's own volumes (packages/k8s/src/k8s/utils.ts:20).
    mounts = {"docker": SOCKETS, "work": "/__w", "externals": "/__e", "github": "/github"}
    return {"name": "slipway-docker", **daemon(config, image, _GROUP, on_disk(_SOCKETS_SIZE), mounts, _ANSWERS)}


def _warming(job: Spec) -> Spec:
    """Return the template of a job's pod with an empty folder for caches. It would hide those of a warm image."""
    for container in job["spec"]["containers"][:1]:
        container["volumeMounts"] = [*container.get("volumeMounts", []), {"name": "warm", "mountPath": WARM}]
    job["spec"]["volumes"] = [*job["spec"]["volumes"], {"name": "warm", "emptyDir": {}}]
    return job


def _template(config: KubernetesRunnersConfig, container: Spec, volumes: list[Spec], *, has_devices: bool) -> Spec:
    rights: Spec = {"drop": ["NET_RAW"], **({"add": ["IPC_LOCK"]} if has_devices and pins(config) else {})}
    # As for a runner without a GPU.
    unseen = [] if has_devices else [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    if env := [*container.get("env", []), *proxy(config), *unseen]:
        container["env"] = env
    return {
        "metadata": {"labels": labels(config), "annotations": dict(STAYS)},
        "spec": {
            **placement(config.profile, config),
            "serviceAccountName": JOB_ACCOUNT,
            "automountServiceAccountToken": False,
            "priorityClassName": priority_class(config),
            "activeDeadlineSeconds": _LONGEST,
            # The group is the hook's own, whose whole security context this replaces.
            "securityContext": {"fsGroup": int(_GROUP), "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {"name": "$job", "securityContext": {"privileged": False, "capabilities": rights}, **container}
            ],
            "volumes": volumes,
        },
    }
