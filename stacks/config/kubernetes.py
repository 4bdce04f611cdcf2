"""``runners: {kind: kubernetes}``: GitHub Actions runners on a Kubernetes cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from containers.errors import one_line
from containers.image.gpu.node_labels import GPU, labelled_driver
from containers.platform_name import architecture, system
from stacks.config import builders, github_url
from stacks.config.cluster.arc_config import ArcConfig
from stacks.config.cluster.build_config import BuildServiceConfig, DaemonPoolConfig, Replica
from stacks.config.cluster.github_login import GitHubConfig
from stacks.config.cluster.kubernetes_values import DEFAULT_REQUESTS, RUNNER_REQUESTS, Label, ObjectName, cpus, gib
from stacks.config.cluster.network_config import NetworkConfig
from stacks.config.cluster.node_pools import PoolConfig
from stacks.config.cluster.runner_set import RunnerSetConfig
from stacks.config.cluster.validation_config import ValidationConfig
from stacks.config.ec2 import check_minima, old_runners
from stacks.config.model import SENSITIVE, Line, Reference, SeveralSetsConfig, refuse_unread
from stacks.versions.nodes import EFA, INFINIBAND, check_count, node

_BUILD, _CONTROLLER, _JOBS = "-build", "-controller", "-jobs"
"""Endings of the namespaces of the build service, the controller and the jobs' pods, after the runners' namespace."""
_ANY_NODE = frozenset({"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"})
"""Labels that the kubelet gives to every node ("Well-Known Labels, Annotations and Taints")."""
_SAME = {
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
}
"""Former names of labels, which nodes still have ("Well-Known Labels, Annotations and Taints")."""
_RUNNER = re.compile(r"(?:.+/)?actions/actions-runner:([0-9]+\.[0-9]+\.[0-9]+)(?:@.+)?")
"""GitHub's own image of its runner, or a mirror's, with its release."""


def _scale_set(value: str) -> str:
    if len(value) > 45:
        raise ValueError("expected at most 45 characters, which ARC's chart allows for a scale set's name")
    return value


def _free_namespace(value: str) -> str:
    if value == "default" or value.startswith("kube-"):
        raise ValueError("belongs to the cluster: choose a namespace for the runners alone, such as gpu-runners")
    if value.endswith((_BUILD, _CONTROLLER, _JOBS)):
        raise ValueError(
            f"ends with {_BUILD}, {_CONTROLLER} or {_JOBS}, as namespaces of build services, controllers and jobs' "
            "pods do: choose another"
        )
    return value


def _ending(*parts: str | int) -> str:
    """Return the ending of names: of several parts, those that say something."""
    return "-".join(str(part) for part in parts if part)


_MOST_CONSUMERS = 256
"""Pods that may use one claim (kubernetes/api v0.35.7, resource/v1/types.go:1504)."""


class KubernetesRunnersConfig(SeveralSetsConfig, RunnerSetConfig):
    """GitHub Actions runners on a Kubernetes cluster, on nodes of one profile."""

    kind: Literal["kubernetes"] = Field(description="Runners on a Kubernetes cluster.")
    kubeconfig: Line | None = Field(
        None, description="Path of the kubeconfig. Default: KUBECONFIG, or ~/.kube/config.", json_schema_extra=SENSITIVE
    )
    context: Line | None = Field(None, description="Context of the kubeconfig. Default: its current one.")
    namespace: Annotated[Label, AfterValidator(_scale_set), AfterValidator(_free_namespace)] = Field(
        "slipway-runners", description="Namespace for the runners alone; also the name of their scale set."
    )
    arc: ArcConfig = Field(
        default_factory=ArcConfig, description="GitHub's controller, which starts and ends the runners."
    )
    pull_secrets: tuple[ObjectName, ...] = Field(
        (),
        description="Secrets with registries' logins, in each namespace of these runners, by which pods pull their "
        "images. Those of ARC are in arc.values.",
        json_schema_extra=SENSITIVE,
    )
    network: NetworkConfig | None = Field(
        None, description="MTU and ports of the cluster's network. Default: those of the web."
    )
    docker_image: Reference = Field("docker:28.5.2-dind", description="Image of the Docker daemon and its client.")
    github: GitHubConfig = Field(description="Organization or repository whose jobs the runners take.")
    daemon: bool = Field(
        default=True,
        description="Give each runner a Docker daemon of its own. Without it, jobs build on a build service "
        "with jobs: true, or not at all. With jobPods, true gives each job one in its pod, and the default gives none.",
    )
    job_pods: bool = Field(
        default=False,
        description="Run each job in a pod of its own, with the image of its `container:` and the profile's devices. "
        "Its runner has no GPU and no Docker daemon. Jobs without a `container:` fail.",
    )
    grace: int = Field(
        720,
        ge=1,
        le=1440,
        description="Minutes that a runner gets to finish its job, or the build service its builds, before its pod "
        "ends: after a drain, a preemption or a deletion.",
    )

    build: BuildServiceConfig | None = Field(
        None, description="A shared Docker daemon for builds of jobs, or with buildOn for the stack's images."
    )
    validation: ValidationConfig | None = Field(None, description="GPU checks of an image, run on the cluster.")
    sets: dict[Annotated[Label, AfterValidator(_scale_set)], RunnerSetConfig] = Field(
        default_factory=dict,
        description='Several scale sets in place of the one: {small: {cpu: "2"}, h100: {profile: eks-p5, gpus: 1}}. '
        "Jobs choose one by its name. What a set leaves out is as given beside `sets`.",
    )

    @field_validator("kubeconfig")
    @classmethod
    def _path(cls, value: str | None) -> str | None:
        if value and ("\n" in value or value.lstrip().startswith("{")):
            raise ValueError(
                "expected the path of a kubeconfig, not its content, which the state would hold in clear text"
            )
        return value

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Self:
        check_minima(self.min_runners, self.schedule, self.max_runners)
        self._check_node()
        self._check_selectors()
        self._check_docker((info.context or {}).get("inherited", ()))
        self._check_docker_gpus()
        self._check_devices()
        if self.group.lower() != "default" and github_url.part(self.github.url, "name"):
            raise ValueError(
                f"group '{one_line(self.group)}': a repository has no runner groups: leave it out, or give the "
                "organization's github.url"
            )
        self._check_network()
        self._check_sets()
        return self

    def _check_network(self) -> None:
        """Check that the organization's controller has a namespace of its own, and policies let proxies through."""
        own = (self.namespace, *(f"{self.namespace}{ending}" for ending in (_BUILD, _CONTROLLER, _JOBS)))
        if self.arc.controller and self.arc.controller.namespace in own:
            raise ValueError(
                f"arc.controller.namespace: '{self.arc.controller.namespace}' is the stack's: give that of the "
                "organization's controller, or leave arc.controller out"
            )
        for port, path in self.arc.values.proxy_ports.items() if self.arc.values else ():
            if port not in {80, 443, *self.extra_ports}:
                raise ValueError(
                    f"arc.values.runners.{path}: no network policy lets out port {port}: add it to network.ports"
                )

    def _check_node(self) -> None:
        """Check that a node of the profile has room for its pods, and another platform than the extra builds."""
        for name, resource in (("gpus", GPU), ("efa", EFA), ("infiniband", INFINIBAND)):
            count = getattr(self, name)
            if count is not None and resource not in self.other_names:
                check_count(self.profile, resource, count, field=f"runners.{name}")
        self._check_names()
        if self.per_node == 0:
            row, (cpus, memory) = node(self.profile), self.requests
            who, beside = "job" if self.job_pods else "runner", " with its Docker daemon" * self.has_daemon
            raise ValueError(
                f"a {who} requests {cpus:g} CPUs and {memory:g} GiB{beside}, and a node of {row.name} "
                f"has {row.cores} and {row.memory}: give less in cpu and memory"
            )
        if self.shared_gpus and self.per_node and self.max_runners > self.per_node:
            raise ValueError(
                f"gpuClaim.shared: all runners are on the node of their GPUs, and it has room for {self.per_node}: "
                f"give maxRunners {self.per_node} or less"
            )
        if self.build and self.platform in self.build.platforms:
            raise ValueError(
                f"build.platforms.{self.platform}: nodes of {self.profile} are {self.platform} themselves: give "
                "build.replicas, or leave it out"
            )

    def _check_docker(self, inherited: Collection[str]) -> None:
        """Check that a job can build; refuse keys for a Docker daemon or devices that are missing.

        The ``inherited`` keys are those of all sets, and may have no effect in one of them.
        """
        if not self.daemon and not self.build and not self.job_pods:
            raise ValueError(
                "daemon is false and there is no build service: set build.jobs: true, or leave daemon out; jobPods: "
                "true needs neither"
            )
        no_docker = not self.has_daemon and (self.build is None or self.build.rootless)
        if no_docker and self.network:
            self.network.refuse_docker()
        unread: Mapping[str, Iterable[str]] = {
            "jobPods is true": ("daemon", "cache", "storage_class") if self.job_pods and not self.job_daemon else (),
            "daemon is false": () if self.daemon or self.job_pods else ("cache", "storage_class"),
            "no Docker daemon runs": ("docker_image",) if no_docker else (),
            f"runners of {self.profile} have no GPU": () if self.devices else ("shm", "driver", "docker_gpus"),
            "no Docker daemon runs beside a job": () if self.has_daemon else ("docker_gpus",),
        }
        refuse_unread(self, {why: [key for key in keys if key not in inherited] for why, keys in unread.items()})

    def _check_docker_gpus(self) -> None:
        """Check that a Docker daemon with GPUs can name them to its containers, and has all of them alone.

        It is privileged, and so sees all GPUs of its node.
        """
        if not self.has_gpus_in_docker:
            return
        if "docker_image" not in self.model_fields_set:
            raise ValueError(
                f"dockerGpus: {self.docker_image} has no nvidia-ctk: give a dockerImage with it, or leave it out"
            )
        most, own = node(self.profile).most(GPU), 0 if GPU in self.other_names else self.devices[GPU]
        if own < most or self.shared_gpus:
            raise ValueError(
                f"dockerGpus: the Docker daemon is privileged and sees all {most} GPUs of a node of {self.profile}, "
                "which may be other runners', too: leave out gpus, its other names and gpuClaim.shared, or dockerGpus"
            )

    def _check_devices(self) -> None:
        """Check the keys that are for GPUs against each other."""
        if self.devices and self.job_memory and gib(self.shm) >= gib(self.job_memory):
            raise ValueError(
                f"shm {self.shm} is in memory, and a job may use {self.job_memory} in all: give more in memory, or "
                "less in shm"
            )
        if self.gpus == 0 and (self.efa or self.infiniband):
            raise ValueError("gpus is 0, and EFA and InfiniBand are for GPUs: leave them out, or request GPUs")
        if self.validation and not self.validation.command and not self.devices.get(GPU):
            raise ValueError(
                f"validation: runners of {self.profile} have no GPU, which an image's own checks need: give a command "
                "or another profile, or leave validation out"
            )

    def _check_names(self) -> None:
        """Check that the nodes have the resources with other names; each needs a number."""
        if self.gpu_claim and self.gpu_resource:
            raise ValueError("gpuResource has no effect, because gpuClaim asks for the GPUs: leave it out")
        of_gpus = "gpuClaim" if self.gpu_claim else "gpuResource"
        for resource in dict.fromkeys(([GPU] if self.gpu_claim else []) + [*self.other_names]):
            key, count = ((of_gpus, "gpus"), ("infinibandResource", "infiniband"))[resource == INFINIBAND]
            if not node(self.profile).most(resource):
                raise ValueError(
                    f"{key}: nodes of {self.profile} have no {resource}: leave it out, or give another profile"
                )
            if not getattr(self, count) and (resource in self.other_names or self.gpus == 0):
                raise ValueError(f"{key}: how many of them a runner gets is not known: give {count}, 1 or more")

    def _beside_sets(self) -> Mapping[str, object]:
        """Return the build service, which is the sets' own: its keys are checked with the stack's."""
        return {"build": self.build} if self.build else {}

    @property
    def scale_set(self) -> str:
        """The name of the scale set, by which jobs choose it."""
        return self._set or self.namespace

    def named(self, name: str) -> str:
        """Return the name of an object of which each of several sets has its own."""
        return f"{name}-{self._set}" if self._set else name

    @property
    def largest_cache(self) -> str:
        """The largest volume for the layers of a Docker daemon."""
        return max((own.cache for own in self.all_sets), key=gib)

    def _check_selectors(self) -> None:
        """Check that no label asks for nodes of another platform than the pods are for."""
        pools: dict[str, tuple[str, PoolConfig]] = {"": (self.platform, self)}
        pools |= {f"{key}.": pool for key, pool in self._build_keys.items()}
        for where, (platform, pool) in pools.items():
            for label in sorted(_ANY_NODE & pool.node_selector.keys()):
                if pool.node_selector[label] != (system(platform) if label.endswith("/os") else architecture(platform)):
                    raise ValueError(
                        f"{where}nodeSelector.{label}: '{one_line(pool.node_selector[label])}': these pods are for "
                        f"{platform}: leave it out"
                    )
        for label, value in self.node_selector.items():
            expected = node(self.profile).selector.get(_SAME.get(label, label), value)
            if value != expected:
                raise ValueError(
                    f"nodeSelector.{label}: '{one_line(value)}': a node of {self.profile} is '{expected}', and what "
                    "the runners request is for that: leave it out, or give another profile"
                )

        for label, value in (self.reservation.labels if self.reservation else {}).items():
            if self.node_selector.get(label, value) != value:
                raise ValueError(
                    f"nodeSelector.{label}: '{one_line(self.node_selector[label])}': nodes of the reservation have "
                    f"'{value}': leave it out"
                )

    @property
    def platform(self) -> str:
        """The platform of the profile's nodes."""
        return f"linux/{node(self.profile).arch}"

    @property
    def build_pools(self) -> dict[str, DaemonPoolConfig]:
        """The pools of the build service by their platforms, that of the profile first; none without a service."""
        others: Mapping[Any, DaemonPoolConfig] = self.build.platforms if self.build else {}
        return {self.platform: self.build, **others} if self.build else {}

    @property
    def _build_keys(self) -> dict[str, tuple[str, DaemonPoolConfig]]:
        """The pools of the build service with their platforms, by key."""
        return {
            builders.build_key(platform, self.platform): (platform, pool) for platform, pool in self.build_pools.items()
        }

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The daemons of the build service, the profile's platform first."""
        return tuple(
            Replica(platform, pool, number, _ending("" if pool is self.build else architecture(platform), number))
            for platform, pool in self.build_pools.items()
            for number in range(pool.replicas)
        )

    @property
    def unpooled(self) -> tuple[str, ...]:
        """The keys that lack a pool for privileged pods: nothing keeps these to nodes of their own."""
        runners = [
            own.key("nodeSelector")
            for own in self.all_sets
            if own.has_daemon and not node(own.profile).pool and not own.dedicated
        ]
        services = {} if self.build is None or self.build.rootless else self._build_keys
        unpooled = [f"{key}.nodeSelector" for key, (_, pool) in services.items() if not pool.dedicated]
        return (*runners, *unpooled)

    @property
    def shares_pool(self) -> bool:
        """Whether one node may get both the build service and a runner's privileged daemon.

        No node of another platform gets a runner.
        """
        if self.build is None or self.unpooled or not self.has_daemon:
            return False
        pools = [own.node_selector for own in self.all_sets if not node(own.profile).pool]
        labels = self.build.node_selector.items()
        return any(all(pool.get(key, value) == value for key, value in labels) for pool in pools)

    @property
    def own_daemon(self) -> bool:
        """Whether each runner has a Docker daemon of its own."""
        return self.daemon and not self.job_pods

    @property
    def job_daemon(self) -> bool:
        """Whether the pod of each job has a Docker daemon: where ``daemon`` says so beside ``jobPods``."""
        return self.job_pods and self.daemon and "daemon" in self.model_fields_set

    @property
    def has_daemon(self) -> bool:
        """Whether each job has a Docker daemon of its own, wherever it runs."""
        return self.own_daemon or self.job_daemon

    @property
    def has_gpus_in_docker(self) -> bool:
        """Whether that daemon's containers may have the GPUs."""
        return self.docker_gpus and self.has_daemon and bool(self.devices.get(GPU))

    @property
    def job_memory(self) -> str | None:
        """The limit of a job's memory, where no Docker daemon has it; None without a limit."""
        return self.memory if not self.own_daemon and "memory" in self.model_fields_set else None

    @property
    def jobs_namespace(self) -> str:
        """The namespace in which jobs run: their runners' or their own pods'."""
        return f"{self.namespace}{_JOBS}" if self.job_pods else self.namespace

    @property
    def build_namespace(self) -> str:
        """The namespace of the build service."""
        return f"{self.namespace}{_BUILD}"

    @property
    def controller_namespace(self) -> str:
        """The namespace of the stack's controller and its listeners, and of what runs beside them from time to time."""
        return f"{self.namespace}{_CONTROLLER}"

    @property
    def has_controller_namespace(self) -> bool:
        """Whether there is that namespace. Only these need it where the controller is the organization's."""
        return self.arc.controller is None or self.job_pods or any(own.schedule for own in self.all_sets)

    @property
    def arc_namespace(self) -> str:
        """The namespace of the controller that serves these runners, and of their listeners."""
        return self.arc.controller.namespace if self.arc.controller else self.controller_namespace

    def of_arc(self, pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the pods of :attr:`arc_namespace` that serve these runners.

        With the organization's controller there are also listeners for the runners of others. ARC labels each with the
        namespace of its scale set (actions-runner-controller 0.14.2, controllers/actions.github.com/resourcebuilder.go,
        newAutoScalingListener).
        """
        if self.arc.controller is None:
            return [*pods]
        labelled = [(pod["metadata"].get("labels", {}), pod) for pod in pods]
        return [
            pod
            for labels, pod in labelled
            if labels.get("actions.github.com/scale-set-namespace") == self.namespace
            or labels.get("app.kubernetes.io/part-of") == "gha-rs-controller"
        ]

    @property
    def proxy(self) -> dict[str, str]:
        """The variables with which Docker daemons and jobs' pods use the runners' proxy; none without one."""
        return self.arc.values.proxy_variables if self.arc.values else {}

    @property
    def extra_ports(self) -> tuple[int, ...]:
        """The TCP ports that network policies let out besides those of the web, the registry and mirrors."""
        if self.network is None:
            return ()
        mirrors = (urlsplit(mirror).port for mirror in self.network.docker_mirrors)
        return (*self.network.ports, *(port for port in mirrors if port))

    def platform_conflict(self, platform: str) -> str:
        """Return why the profile's nodes cannot run the images of another platform than theirs."""
        return f"nodes of {self.profile} are {self.platform}, and the stack's images are for {platform}"

    def check_builders(self, platforms: Sequence[str], engines: Collection[str]) -> None:
        """Check that one pool or engine builds each platform; ``engines`` are platforms with an engine.

        Raises ValueError: a platform has none or two, or a pool is for no platform of the stack.
        """
        for platform in platforms:
            if platform not in self.build_pools and platform not in engines:
                raise ValueError(
                    f"{self.platform_conflict(platform)}: give slipway:runners.build.platforms a pool for {platform}, "
                    f"or slipway:engines an engine, or leave {platform} out"
                )
        builders.check(self.build_pools, self.platform, platforms, engines)

    @property
    def nodes_driver(self) -> tuple[str, str] | None:
        """NVIDIA's driver of the nodes, and the key that says so; None if nothing does, or no runner has a GPU."""
        if not self.devices.get(GPU):
            return None
        if self.driver:
            return self.driver, "driver"
        if labelled := labelled_driver(self.node_selector):
            return labelled[0], f"nodeSelector.{labelled[1]}"
        driver = node(self.profile).driver
        return (driver, "profile") if driver else None

    @property
    def devices(self) -> dict[str, int]:
        """The extended resources of each runner: their counts by their names in Kubernetes, without zeros.

        Those of the fabric follow the GPUs, so that all GPUs of a node can be used: a quarter of them has a quarter.
        """
        requested = {GPU: self.gpus, EFA: self.efa, INFINIBAND: self.infiniband}
        if self.gpus == 0:
            return {}
        limits = node(self.profile).limits
        gpus = limits.get(GPU, 0)
        # What part of a node some parts of a GPU are is not known: then no share of its fabric goes with them.
        part = 0 if GPU in self.other_names else self.gpus
        shares = {name: most if part is None else most * part // gpus for name, most in limits.items()}
        return {
            name: count
            for name, share in shares.items()
            if (count := share if requested[name] is None else requested[name])
        }

    @property
    def other_names(self) -> dict[str, str]:
        """The names of resources that the nodes offer by another than the usual one, by the usual one.

        Only the cluster knows how many of them a node has.
        """
        of_gpus = self.gpu_claim.parts if self.gpu_claim else self.gpu_resource
        names = {GPU: of_gpus, INFINIBAND: self.infiniband_resource}
        return {usual: name for usual, name in names.items() if name and name != usual}

    @property
    def resources(self) -> dict[str, int]:
        """The :attr:`devices` by the nodes' names for them, without claimed GPUs."""
        return {
            self.other_names.get(name, name): count
            for name, count in self.devices.items()
            if name != GPU or not self.gpu_claim
        }

    @property
    def shared_gpus(self) -> bool:
        """Whether all runners of the set use the same GPUs."""
        return self.gpu_claim is not None and self.gpu_claim.shared

    @property
    def pages(self) -> int:
        """MiB of huge pages of each runner: its EFA interfaces' share, so that they never bound :attr:`per_node`."""
        return node(self.profile).pages(self.devices.get(EFA, 0))

    @property
    def own_requests(self) -> tuple[str, str] | None:
        """The CPUs and memory that a runner's own container requests; None if those are the namespace's default.

        ``cpu`` and ``memory`` are a Docker daemon's, or a job's pod's, where there is one.
        """
        given = set() if self.own_daemon or self.job_pods else {"cpu", "memory"} & self.model_fields_set
        if self.job_pods or not (self.devices or given):
            return None
        cpu, memory = RUNNER_REQUESTS if self.devices else DEFAULT_REQUESTS
        return self.cpu if "cpu" in given else cpu, self.memory if "memory" in given else memory

    @property
    def requests(self) -> tuple[float, float]:
        """The CPUs and the GiB of memory that each runner requests with its Docker daemon, or each job with its pod."""
        runner = [] if self.job_pods else [self.own_requests or DEFAULT_REQUESTS]
        sizes = [*runner, *([(self.cpu, self.memory)] if self.own_daemon or self.job_pods else [])]
        sizes += [DEFAULT_REQUESTS] if self.job_daemon else []
        return sum(cpus(cpu) for cpu, _ in sizes), sum(gib(memory) for _, memory in sizes)

    @property
    def per_node(self) -> int | None:
        """How many runners a node has room for at most; None for a profile of any node.

        The node's own pods leave a little less than its CPUs and memory.
        """
        row, (cpus, memory) = node(self.profile), self.requests
        uncounted = {*self.other_names, *([GPU] if self.shared_gpus else [])}
        room = [row.most(name) // count for name, count in self.devices.items() if name not in uncounted]
        room += [_MOST_CONSUMERS] if self.shared_gpus else []
        room += [int(most / each) for most, each in ((row.cores, cpus), (row.memory, memory)) if most is not None]
        return min(room, default=None)

    @property
    def most_nodes(self) -> int:
        """The nodes that the most runners at once need; one for each where a node's size is not known."""
        return -(-self.max_runners // (self.per_node or 1))

    def label(self, name: str) -> str | None:
        """Return the value of a label that all nodes of the runners have; None where they differ."""
        return self.node_selector.get(name) or node(self.profile).selector.get(name)

    @property
    def warnings(self) -> list[str]:
        """A line for each set of which no number of runners uses all GPUs of a node, and for each old runner."""
        idle = [line for own in self.all_sets for line in own._idle_gpus()]  # noqa: SLF001 - of the same class
        return [*idle, *old_runners(self.github.url, self.runner_releases)]

    @property
    def runner_releases(self) -> dict[str, str]:
        """The release of GitHub's runner in each set's image, by the image's key; an image of one's own is left out."""
        releases = {}
        for own in self.all_sets:
            if release := _RUNNER.fullmatch(own.image):
                where = f".sets.{own._set}" if own._set else ""  # noqa: SLF001 - of the same class
                releases[f"slipway:runners{where}.image"] = release[1]
        return releases

    def _idle_gpus(self) -> list[str]:
        most, each, room = node(self.profile).most(GPU), self.devices.get(GPU, 0), self.per_node or 0
        if GPU in self.other_names or self.shared_gpus:
            return []
        used, where = each * room, f".sets.{self._set}" if self._set else ""
        idle = f"{most - used} of the {most} GPUs of a node of {self.profile} stay idle"
        return (
            [f"slipway:runners{where}: {idle}: it has room for {room} of these runners"] if each and used < most else []
        )
