"""The resources of a section, and the deadline of the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.services import LoopbackRegistry, MeasuredEngine
from toolchain.checkout import Checkout
from toolchain.machine.steps import say


@dataclass(frozen=True)
class BenchSetting:
    """A folder, an engine and a registry for a section, which are emptied afterwards.

    ``quick`` selects fewer rounds and images. No round begins after ``deadline``, on the monotonic clock.
    """

    checkout: Checkout
    scratch: Path
    engine: MeasuredEngine
    registry: LoopbackRegistry
    quick: bool
    deadline: float
    mark: str = field(default_factory=lambda: f"{time.time_ns():x}")

    def rounds(self, planned: int, title: str) -> Iterator[int]:
        """Yield and print the numbers of a step's rounds, from 0: at least one, and no more after the deadline."""
        for number in range(2 if self.quick and planned > 2 else planned):
            if number and time.monotonic() > self.deadline:
                say(f"  {title}: no time left after {number} rounds")
                return
            say(f"  {title}: round {number + 1}")
            yield number
