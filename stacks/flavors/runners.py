"""``runners``: machines for GitHub's jobs, and no image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stacks.config.stack_config import Runners, StackConfig
from stacks.spec import ImageSpec


class Config(StackConfig):
    """The keys of a ``runners`` stack."""

    flavor: Literal["runners"] = "runners"
    runners: Runners = Field(description="Machines for GitHub's jobs.")


def images(config: Config) -> list[ImageSpec]:  # noqa: ARG001 - every flavor is asked the same
    """Return no image."""
    return []
