"""What every section is given, and the clock that ends the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.services import Engine, Registry
from toolchain.checkout import Checkout
from toolchain.machine.steps import say


@dataclass(frozen=True)
class Setting:
    """Where a section works: a folder, an engine and a registry that are emptied afterwards.

    ``quick`` asks for fewer rounds and images. No round begins later than ``deadline``, on the monotonic clock.
    """

    checkout: Checkout
    scratch: Path
    engine: Engine
    registry: Registry
    quick: bool
    deadline: float
    mark: str = field(default_factory=lambda: f"{time.time_ns():x}")

    def rounds(self, planned: int, title: str) -> Iterator[int]:
        """Count the rounds of a step from 0, saying so: at least one, then as many as planned while time is left."""
        for number in range(2 if self.quick and planned > 2 else planned):
            if number and time.monotonic() > self.deadline:
                say(f"  {title}: no time left after {number} rounds")
                return
            say(f"  {title}: round {number + 1}")
            yield number
