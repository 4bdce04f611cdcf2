"""``runners.validation``: GPU checks of an image, run on the cluster."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from containers.registry.reference import check_reference
from stacks.config.cluster.kubernetes_values import LABEL
from stacks.config.model import Model


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
        return value if LABEL.fullmatch(value) else check_reference(value)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if not self.is_stack_image and not self.command:
            raise ValueError("an image's reference needs a command; only images of the stack have their own checks")
        return self

    @property
    def is_stack_image(self) -> bool:
        """Whether the image is one of the stack, by its name there."""
        return bool(LABEL.fullmatch(self.image))
