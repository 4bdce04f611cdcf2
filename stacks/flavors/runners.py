"""``runners``: GitHub Actions runners, and no image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stacks.config.stack_config import Runners, StackConfig
from stacks.spec import ImageSpec


class Config(StackConfig):
    """The keys of a ``runners`` stack."""

    flavor: Literal["runners"] = "runners"
    runners: Runners = Field(description="GitHub Actions runners.")


def images(config: Config) -> list[ImageSpec]:  # noqa: ARG001 - every flavor has this signature
    """Return no image."""
    return []
