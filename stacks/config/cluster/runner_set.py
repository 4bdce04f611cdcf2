"""``runners.sets``: runners of one size, and the GPUs that each may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from stacks.config.cluster.kubernetes_values import Quantity
from stacks.config.cluster.node_pools import PoolConfig
from stacks.config.ec2 import NodeReservationConfig, ScheduleConfig
from stacks.config.model import Line, Model, NonEmpty, Reference, form
from stacks.config.values import Driver, Labels
from stacks.versions.nodes import node

_RESOURCE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?")
_DEVICE_CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MIG = re.compile(r"(?:[1-7]c\.)?[1-7]g\.[1-9][0-9]*gb(?:[+-][a-z.]+)?")

WHOLE_GPUS, PARTS_BY_MIG = "gpu.nvidia.com", "mig.nvidia.com"
"""The device classes of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu at 9593204,
deployments/helm/dra-driver-nvidia-gpu/templates/deviceclass-gpu.yaml and deviceclass-mig.yaml)."""
Resource = Annotated[str, form(_RESOURCE, "a resource of nodes, such as nvidia.com/mig-3g.40gb")]


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
