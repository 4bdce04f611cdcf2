"""``runners: {kind: kubernetes}``: GitHub Actions runners on a Kubernetes cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from containers.errors import one_line
from containers.image.gpu.node_labels import GPU, labelled_driver
from containers.platform_name import architecture, system
from containers.registry.reference import check_host, check_reference
from stacks.config import builders, github_url
from stacks.config.cluster.arc_config import ArcConfig
from stacks.config.ec2 import NodeReservationConfig, ScheduleConfig, check_minima, old_runners
from stacks.config.model import (
    SENSITIVE,
    Line,
    Model,
    NonEmpty,
    Reference,
    Secret,
    SeveralSetsConfig,
    form,
    refuse_unread,
)
from stacks.config.values import Driver, Labels, Platform, listed
from stacks.versions.nodes import EFA, INFINIBAND, check_count, node

RUNNER_REQUESTS = ("4", "16Gi")
"""CPUs and memory that the container of a runner with devices requests, besides its Docker daemon, and by default
without one."""
DEFAULT_REQUESTS = ("500m", "1Gi")
"""What another container requests: the namespace's default."""

ARC_CHARTS = ("gha-runner-scale-set-controller", "gha-runner-scale-set")
"""The names of the charts: of the controller, and of the runners."""
ARC_PREPARED = "slipway/arc"
"""The annotation of a scale set whose state has the time in which its jobs end, and its minor release of ARC, with
which it is made anew: empty where the charts name none."""
ARC_CONTROLLER = "slipway/controller"
"""The annotation of a scale set that the organization's own controller serves: namespace and account of that one."""
ARC_LABEL = "app.kubernetes.io/version"
"""The charts' label of a scale set: their release of ARC."""
ARC_SETS = "autoscalingrunnersets.actions.github.com"
ARC_RUNNERS = "ephemeralrunners.actions.github.com"
"""ARC's object for each runner, older than its pod. Only this object says why a pod could not be created."""
ARC_SET_NAME = "actions.github.com/scale-set-name"
"""ARC's label of what is of one scale set."""

_BUILD, _CONTROLLER, _JOBS = "-build", "-controller", "-jobs"
"""Endings of the namespaces of the build service, the controller and the jobs' pods, after the runners' namespace."""

_QUANTITY = re.compile(r"[1-9][0-9]*(?:\.[0-9]+)?(?:Ki|Mi|Gi|Ti)")
_NODE_LABEL = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?")
_ANY_NODE = frozenset({"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"})
"""Labels that the kubelet gives to every node ("Well-Known Labels, Annotations and Taints")."""
_PROPERTY = re.compile(
    r"(?:(?:beta\.)?kubernetes\.io|(?:(?:[\w-]+\.)*feature\.)?node\.kubernetes\.io|failure-domain\.beta\.kubernetes\.io"
    r"|topology\.[^/]+|karpenter\.k8s\.aws|nvidia\.com|vpc\.amazonaws\.com)/.*|k8s\.io/cloud-provider-.*"
    r"|karpenter\.sh/(?!nodepool$|provisioner-name$).*|eks\.amazonaws\.com/(?!nodegroup$).*"
    r"|alpha\.eksctl\.io/(?!nodegroup-name$).*|kubernetes\.azure\.com/(?!agentpool$).*|cloud\.google\.com/(?!gke-nodepool$).*"
)
"""Labels that clouds and add-ons give to each node for its zone, host, type or price, all but the name of its pool.
Others' pods run there."""
_SAME = {
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
}
"""Former names of labels, which nodes still have ("Well-Known Labels, Annotations and Taints")."""
_RESOURCE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?")
_DEVICE_CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MIG = re.compile(r"(?:[1-7]c\.)?[1-7]g\.[1-9][0-9]*gb(?:[+-][a-z.]+)?")
_RUNNER = re.compile(r"(?:.+/)?actions/actions-runner:([0-9]+\.[0-9]+\.[0-9]+)(?:@.+)?")
"""GitHub's own image of its runner, or a mirror's, with its release."""
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
"""Names of secrets and runtime classes (kubernetes/apimachinery, pkg/util/validation, IsDNS1123Subdomain)."""


def _quantity(value: str) -> str:
    if re.fullmatch(r"[0-9.]+", value):
        raise ValueError(f"a size needs a unit: {value}Gi?")
    if not _QUANTITY.fullmatch(value):
        raise ValueError("expected a size such as 200Gi, with one of Ki, Mi, Gi, Ti")
    return value


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


def _with_ports(value: tuple[str, ...]) -> tuple[str, ...]:
    for address in value:
        if ":" not in check_host(address):
            raise ValueError("expected host:port, such as builds.acme.internal:2376")
    return value


def _mirror(value: str) -> str:
    """Return an address that dockerd takes for a mirror (moby v28.5.2, registry/config.go:300)."""
    match = re.fullmatch(r"https?://[A-Za-z0-9.-]+(?::([1-9][0-9]{0,4}))?(?:/[\w./-]*)?", value)
    if not match or int(match[1] or 443) > 65535:
        raise ValueError("expected an http:// or https:// address without a login, such as https://mirror.example.com")
    return value


def _cpus(quantity: str) -> float:
    return int(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def _gib(quantity: str) -> float:
    return float(quantity[:-2]) * 1024.0 ** ("Ki", "Mi", "Gi", "Ti").index(quantity[-2:]) / 1024**2


def _ending(*parts: str | int) -> str:
    """Return the ending of names: of several parts, those that say something."""
    return "-".join(str(part) for part in parts if part)


Addresses = Annotated[
    tuple[str, ...],
    BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...]),
    AfterValidator(_with_ports),
]
"""An address for each replica of a service; one may be given without a list."""

WHOLE_GPUS, PARTS_BY_MIG = "gpu.nvidia.com", "mig.nvidia.com"
"""The device classes of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu at 9593204,
deployments/helm/dra-driver-nvidia-gpu/templates/deviceclass-gpu.yaml and deviceclass-mig.yaml)."""
_MOST_CONSUMERS = 256
"""Pods that may use one claim (kubernetes/api v0.35.7, resource/v1/types.go:1504)."""

NodeLabel = Annotated[str, form(_NODE_LABEL, "a node's label, such as acme.example/pool")]
Resource = Annotated[str, form(_RESOURCE, "a resource of nodes, such as nvidia.com/mig-3g.40gb")]
Quantity = Annotated[str, AfterValidator(_quantity)]
Label = Annotated[str, form(_LABEL, "1 to 63 lower-case letters, digits and -, a letter or digit at either end")]

ObjectName = Annotated[
    str, form(_SUBDOMAIN, "1 to 253 lower-case letters, digits, - and ., a letter or digit at either end")
]


class GitHubAppConfig(Model):
    """A GitHub App that may administer runners."""

    id: NonEmpty = Field(description="App id or client id; quote it.")
    installation: NonEmpty = Field(description="Installation id; quote it.")
    private_key: Secret = Field(description="Private key in PEM, always a secret.")


class GitHubConfig(Model):
    """What the runners serve, and one way to register them: an App, a token, or a secret of the cluster."""

    url: Annotated[str, AfterValidator(github_url.check)] = Field(
        description="Organization or repository, such as https://github.com/acme or https://github.com/acme/images."
    )
    app: GitHubAppConfig | None = Field(None, description="GitHub App that registers runners.")
    token: Secret | None = Field(None, description="Personal access token that registers runners, always a secret.")
    secret: ObjectName | None = Field(
        None,
        description="Secret in the runners' namespace with either, in ARC's format. Create it after the first update.",
        json_schema_extra=SENSITIVE,
    )

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        logins = [name for name in ("app", "token", "secret") if getattr(self, name) is not None]
        if len(logins) != 1:
            raise ValueError(
                "no credentials for GitHub: give app, token (with `pulumi config set --secret --path`) or secret"
                if not logins
                else f"{' and '.join(logins)} are given: keep one"
            )
        return self


class TolerationConfig(Model):
    """A taint of nodes that pods may run on all the same, as Kubernetes writes it."""

    key: NonEmpty = Field(description="Key of the taint, such as dedicated.")
    operator: Literal["Equal", "Exists"] = Field("Equal", description="Equal compares the value, Exists ignores it.")
    value: Line | None = Field(None, description="Value of the taint, for the operator Equal.")
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] | None = Field(
        None, description="Effect of the taint. Default: any."
    )

    @model_validator(mode="after")
    def _value(self) -> Self:
        if (self.value is None) != (self.operator == "Exists"):
            raise ValueError("give a value with the operator Equal, and none with Exists")
        return self


class PoolConfig(Model):
    """The nodes that pods run on, in addition to the profile."""

    node_selector: dict[NodeLabel, Line] = Field(
        default_factory=dict,
        description="Labels of a pool of nodes for these pods only. Privileged pods need them on nodes of the "
        "profile cpu, because a job can control the whole node.",
    )
    tolerations: tuple[TolerationConfig, ...] = Field(
        (), description="Taints of that pool, which keep other pods away from it."
    )
    runtime_class: ObjectName | None = Field(
        None, description="Runtime class of the pods, such as kata-qemu. Default: the cluster's."
    )

    @property
    def node_labels(self) -> Mapping[str, str]:
        """The labels of the nodes, besides the profile's."""
        return self.node_selector

    @property
    def dedicated(self) -> bool:
        """Whether a label names a pool of nodes, and not a property that the cluster's other nodes have, too."""
        return any(not _PROPERTY.fullmatch(key) for key in self.node_selector)


class DaemonPoolConfig(PoolConfig):
    """Docker daemons for one platform, which share its images."""

    replicas: int = Field(
        1,
        ge=1,
        le=64,
        description="Daemons that share the stack's images with buildOn: runners, each with a pod, a volume and an "
        "address of its own.",
    )
    address: Addresses | None = Field(
        None,
        description="host:port at which the machine that runs Pulumi reaches it; a list with one for each of its "
        "replicas. Default: its name in the cluster.",
    )

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if self.address is not None and not len(self.address) == len(set(self.address)) == self.replicas:
            raise ValueError(
                f"address: '{', '.join(self.address)}': expected {self.replicas}"
                f"{' different ones' * (self.replicas > 1)}, one for each of replicas; or leave address out if Pulumi "
                "runs in the cluster"
            )
        return self


class BuildServiceConfig(DaemonPoolConfig):
    """A Docker daemon that builds share. Its layers outlive its pod; it and its clients have TLS certificates."""

    jobs: bool = Field(
        default=False,
        description="Give jobs its key, so that they can build on it. The key controls all that is built there, "
        "so buildOn: runners refuses it.",
    )
    platforms: dict[Platform, DaemonPoolConfig] = Field(
        default_factory=dict,
        description="Daemons for another platform than the profile's, with the nodes of each: {linux/arm64: "
        "{nodeSelector: {acme.example/pool: builds-arm}}}.",
    )
    cache: Quantity = Field("500Gi", description="Size of the volume for its layers.")
    storage_class: Line | None = Field(None, description="Storage class of that volume. Default: the cluster's.")
    cpu: str = Field("4", pattern="^[1-9][0-9]*m?$", description="CPUs that it requests.")
    memory: Quantity = Field("16Gi", description="Memory that it requests; also its limit.")
    rootless: bool = Field(
        default=False,
        description="Run a rootless BuildKit daemon instead. It has no Docker API, so buildOn: runners cannot use it.",
    )
    service: Literal["ClusterIP", "LoadBalancer", "NodePort"] = Field(
        "ClusterIP", description="Type of its Kubernetes service."
    )

    @model_validator(mode="after")
    def _shared(self) -> Self:
        pools: list[DaemonPoolConfig] = [self, *self.platforms.values()]
        addresses = [address for pool in pools for address in pool.address or ()]
        for address in addresses:
            if addresses.count(address) > 1:
                raise ValueError(f"address '{address}' is given twice: each daemon has its own")
        key = f"replicas {self.replicas}" if self.replicas > 1 else "platforms" if self.platforms else ""
        if key and (self.jobs or self.rootless):
            raise ValueError(
                f"{key} share the stack's images with buildOn: runners, and a job knows one address: leave out "
                f"{key.partition(' ')[0]}, or {'jobs' if self.jobs else 'rootless'}"
            )
        return self


@dataclass(frozen=True)
class Replica:
    """A daemon of the build service.

    ``number`` counts those of its pool from 0. ``ending`` is that of its objects' names; the first one has none, and is
    named as the service.
    """

    platform: str
    pool: DaemonPoolConfig
    number: int
    ending: str

    def named(self, name: str) -> str:
        """Return the name of one of its objects."""
        return f"{name}-{self.ending}" if self.ending else name

    @property
    def address(self) -> str | None:
        """``host:port`` of the daemon in the configuration; None if it names none."""
        return self.pool.address[self.number] if self.pool.address else None


class NetworkConfig(Model):
    """How the pods of a cluster reach other machines, where it is not the usual way."""

    mtu: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the networks that Docker daemons make, which must not be above that of the cluster's pods. "
        "Default: Docker's, 1500.",
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        (),
        description="TCP ports that network policies let out, besides 80, 443 and those of slipway:registry and "
        "slipway:mirrors: [3128].",
    )
    docker_mirrors: tuple[Annotated[str, AfterValidator(_mirror)], ...] = Field(
        (),
        description="Mirrors of Docker Hub that Docker daemons ask before it: [https://mirror.example.com]. Network "
        "policies let out their ports.",
    )

    def refuse_docker(self) -> None:
        """Raise ValueError for the first key that only a Docker daemon reads."""
        for key in ("mtu", "docker_mirrors"):
            if getattr(self, key):
                raise ValueError(f"network.{to_camel(key)} has no effect, because no Docker daemon runs: leave it out")


class ValidationConfig(Model):
    """A Job that runs the GPU checks of an image, once for each image, on a node of the profile."""

    image: str = Field(description="Name of an image of the stack, or any image's reference.")
    command: tuple[str, ...] = Field(
        (), description="The check, which passes with exit code 0. Default: the image's own checks/gpu.py."
    )
    minutes: int = Field(30, ge=1, le=1440, description="Minutes after which it fails, including its wait for a node.")
    accepted_loss: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the rate that NCCL may lack in torch's checks, as in slipway:promotion.gpuChecks. "
        "Default: 0.13.",
    )

    @field_validator("image")
    @classmethod
    def _named(cls, value: str) -> str:
        return value if _LABEL.fullmatch(value) else check_reference(value)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if not self.is_stack_image and not self.command:
            raise ValueError("an image's reference needs a command; only images of the stack have their own checks")
        return self

    @property
    def is_stack_image(self) -> bool:
        """Whether the image is one of the stack, by its name there."""
        return bool(_LABEL.fullmatch(self.image))


class GpuClaimConfig(Model):
    """GPUs that pods ask for by a claim (dynamic resource allocation) in place of an extended resource."""

    mig: Annotated[str, form(_MIG, "a profile of MIG, such as 3g.40gb")] | None = Field(
        None, description="Profile of MIG, such as 3g.40gb: `gpus` is the number of these parts. Default: whole GPUs."
    )
    device_class: Annotated[str, form(_DEVICE_CLASS, "a device class, such as gpu.nvidia.com")] | None = Field(
        None, description="DeviceClass of the cluster. Default: gpu.nvidia.com, or mig.nvidia.com with `mig`."
    )
    selectors: tuple[NonEmpty, ...] = Field(
        (),
        description="CEL expressions that each device fulfils: [\"device.attributes['gpu.nvidia.com']."
        "productName.contains('H100')\"].",
    )
    shared: bool = Field(
        default=False, description="One claim for all runners of the set, which then use the same GPUs, on one node."
    )

    @model_validator(mode="after")
    def _one_class(self) -> Self:
        if self.mig and self.device_class:
            raise ValueError(f"mig is of the device class {PARTS_BY_MIG}: leave out mig or deviceClass")
        return self

    @property
    def of_class(self) -> str:
        """The device class of the claim."""
        return self.device_class or (PARTS_BY_MIG if self.mig else WHOLE_GPUS)

    @property
    def parts(self) -> str | None:
        """The device class, where only the cluster knows how many of its devices a node has; None for whole GPUs."""
        return None if self.of_class == WHOLE_GPUS else self.of_class

    @property
    def expressions(self) -> list[str]:
        """The CEL expressions of the claim, that of MIG's profile first."""
        of_mig = [f"device.attributes['{WHOLE_GPUS}'].profile == '{self.mig}'"] if self.mig else []
        return [*of_mig, *self.selectors]


class RunnerSetConfig(PoolConfig):
    """Runners of one size: their number, their nodes, and what each may use."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "groupId": "group, a name",
        "instanceTypes": "profile, or a node label in nodeSelector",
        "minGpus": "gpus",
        "root": "disk",
        "runner": "image",
    }

    profile: str = Field("cpu", description="Kind of node: see stacks/versions/nodes.toml.")
    image: Reference = Field(
        "ghcr.io/actions/actions-runner:2.338.0",
        description="Image of GitHub's runner; the controller needs a recent one.",
    )
    min_runners: int = Field(0, ge=0, description="Runners that wait for jobs; 0 costs nothing while idle.")
    max_runners: int = Field(4, ge=1, description="Most runners at once.")
    schedule: tuple[ScheduleConfig, ...] = Field(
        (),
        description="Other minima by weekday and time. The greatest of those that hold counts, else minRunners.",
    )
    group: Line = Field("default", description="Runner group at GitHub.")
    labels: Labels = Field((), description="Labels by which jobs choose these runners, besides the scale set's name.")
    gpus: int | None = Field(None, ge=0, description="GPUs of each runner. Default: all of the node.")
    driver: Driver | None = Field(
        None,
        description="NVIDIA's driver of the nodes, such as 570.172.08. It must run the stack's images. Default: what "
        "NVIDIA's labels in nodeSelector say, else the driver in the cloud's own machine image of today.",
    )
    efa: int | None = Field(
        None,
        ge=0,
        description="EFA interfaces of each runner. Default: its GPUs' share, which the node has anyway; on EC2 0.",
    )
    infiniband: int | None = Field(
        None, ge=0, description="InfiniBand devices of each runner. Default: its GPUs' share."
    )
    gpu_resource: Resource | None = Field(
        None,
        description="Name by which nodes offer parts of GPUs: nvidia.com/mig-3g.40gb of MIG, nvidia.com/gpu.shared of "
        "time slices. `gpus` is the number of these. Default: nvidia.com/gpu, whole GPUs.",
    )
    gpu_claim: GpuClaimConfig | None = Field(
        None,
        description="Ask for the GPUs by a claim, for clusters of Kubernetes 1.34 or later with NVIDIA's DRA driver: "
        "{} for whole GPUs, {mig: 3g.40gb} for parts. Default: the device plugin's resource.",
    )
    docker_gpus: bool = Field(
        default=False,
        description="Give the Docker daemon all GPUs of the node, for `docker run --device nvidia.com/gpu=all`. Its "
        "`dockerImage` has NVIDIA's nvidia-ctk, and each runner has all GPUs of a node.",
    )
    infiniband_resource: Resource | None = Field(
        None,
        description="Name by which nodes offer InfiniBand devices, such as rdma/shared_ib of the shared device plugin. "
        "Default: rdma/ib.",
    )
    shm: Quantity = Field("64Gi", description="Size of /dev/shm where there are GPUs; it counts as memory.")
    cpu: str = Field(
        "4",
        pattern="^[1-9][0-9]*m?$",
        description="CPUs that each Docker daemon requests; with jobPods each job, with daemon: false each runner.",
    )
    memory: Quantity = Field(
        "16Gi",
        description="Memory that each Docker daemon requests; with jobPods each job, with daemon: false each runner; "
        "also its limit. Without this key, a job has no limit.",
    )
    cache: Quantity = Field("200Gi", description="Size of the volume for each Docker daemon's layers.")
    disk: Quantity = Field(
        "100Gi",
        description="Most that each job may write to its node's disk, besides that volume. A pod that "
        "writes more is ended.",
    )
    storage_class: Line | None = Field(None, description="Storage class of that volume. Default: the cluster's.")
    reservation: NodeReservationConfig | None = Field(
        None, description="Machines that are reserved at EC2 and become the nodes of these runners. Default: none."
    )

    @property
    def node_labels(self) -> Mapping[str, str]:
        """The labels of the nodes, besides the profile's: those of the pool, and of the reservations."""
        return {**self.node_selector, **(self.reservation.labels if self.reservation else {})}

    @field_validator("efa", mode="before")
    @classmethod
    def _interfaces(cls, value: object) -> object:
        if value == "all":
            raise ValueError("expected a number, as all is for EC2: leave it out for the share of the GPUs")
        return value

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        return node(value).name


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
        if self.devices and self.job_memory and _gib(self.shm) >= _gib(self.job_memory):
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
        return max((own.cache for own in self.all_sets), key=_gib)

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
        return sum(_cpus(cpu) for cpu, _ in sizes), sum(_gib(memory) for _, memory in sizes)

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
