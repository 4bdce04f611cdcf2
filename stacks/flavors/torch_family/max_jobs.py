"""``slipway:maxJobs``: how many compilers run at once, by component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from stacks.config.model import Model
from stacks.config.values import JobCount


class MaxJobs(Model):
    """How many compilers run at once, by component; a plain number is for all of them. Flavors add their own."""

    default: JobCount = Field(None, description="For every component that is not named.")
    torch: JobCount = Field(None, description="torch.")
    vision: JobCount = Field(None, description="torchvision.")
    audio: JobCount = Field(None, description="torchaudio.")

    @model_validator(mode="before")
    @classmethod
    def _plain_number(cls, values: Any) -> Any:
        if values is None:
            raise ValueError("expected a number of compilers, or a mapping of them")
        return values if isinstance(values, Mapping | Model) else {"default": values}

    def of(self, component: str) -> int | None:
        """Return a component's number of jobs; None where its build chooses it."""
        jobs: int | None = getattr(self, component.replace("-", "_"))
        return jobs or self.default
