"""``slipway:promotion``: the evidence that an image needs before ``slipway promote`` moves a tag to it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from containers.image.gpu.node_labels import GPU
from stacks.config.model import Model, NonEmpty
from stacks.tags import check_extra
from stacks.versions.nodes import node


def _profile(value: str) -> str:
    field = "promotion.gpuChecks.profile"
    if not node(value, field=field).most(GPU):
        raise ValueError(f"nodes of {value} have no GPU: give a profile with GPUs, such as eks-p5")
    return value


class GpuChecksConfig(Model):
    """GPU checks that passed on the image, as `slipway evidence` attested them."""

    profile: Annotated[str, AfterValidator(_profile)] | None = Field(
        None, description="Kind of node that they ran on: see stacks/versions/nodes.toml. Default: any."
    )
    gpus: PositiveInt = Field(1, description="Least number of GPUs that they ran on.")
    bus_bandwidth: float | None = Field(
        None,
        gt=0,
        description="Least bus bandwidth of an all-reduce, in GB/s. Default: what the checks themselves ask.",
    )
    first_step: float | None = Field(
        None,
        gt=0,
        description="Most seconds that torch's first compiled step took in a fresh process, such as 20. Default: any.",
    )
    network: NonEmpty | None = Field(
        None, description="The only network that NCCL may have used, such as efa, InfiniBand or Socket. Default: any."
    )

    accepted_loss: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the rate that NCCL may lack beside copies between GPUs over NVLink, such as 0.4 for "
        "machines that the rule does not fit. Default: 0.15.",
    )

    @property
    def gpus_of_node(self) -> tuple[str, int]:
        """The model of the GPUs of a node of the profile, and their number."""
        row = node(self.profile) if self.profile else None
        return (row.gpu or "", row.most(GPU)) if row else ("", 0)


class PromotionConfig(Model):
    """Tags that `slipway promote` alone moves, and the evidence for it."""

    tags: tuple[Annotated[str, AfterValidator(check_extra)], ...] = Field(
        description="Tags that `slipway promote` may move, such as [stable]."
    )
    loading: bool = Field(
        default=True,
        description="Require an attested inspection without a fault that slipway:inspection does not except.",
    )
    gpu_checks: GpuChecksConfig | None = Field(
        None, description="Require attested GPU checks: {profile: eks-p5, gpus: 8, busBandwidth: 300}. Default: none."
    )
    max_age_days: PositiveInt = Field(30, description="Days that the evidence counts.")

    @model_validator(mode="before")
    @classmethod
    def _some_tag(cls, values: Any) -> Any:
        tags = values.get("tags") if isinstance(values, dict) else None
        if isinstance(tags, list | tuple):
            if not tags:
                raise ValueError("tags: expected at least one tag, such as [stable]")
            if len(set(map(str, tags))) < len(tags):
                raise ValueError("tags: one of them is repeated; remove it")
        return values
