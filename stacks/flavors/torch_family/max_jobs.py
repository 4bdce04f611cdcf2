"""``slipway:maxJobs``: how many compilers run at once, by component."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stacks.config.model import Model
from stacks.config.values import JobCount


class MaxJobsConfig(Model):
    """How many compilers run at once, by component; a plain number is for all of them. Flavors add their own."""

    plain_key: ClassVar[str | None] = "default"

    default: JobCount = Field(None, description="For every component that is not named.")
    torch: JobCount = Field(None, description="torch.")
    vision: JobCount = Field(None, description="torchvision.")
    audio: JobCount = Field(None, description="torchaudio.")

    def of(self, component: str) -> int | None:
        """Return a component's number of jobs; None if its build chooses."""
        jobs: int | None = getattr(self, component.replace("-", "_"))
        return jobs or self.default
