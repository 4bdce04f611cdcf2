"""Section h: ``inspect`` of a large image of real wheels, against pulling it into an empty engine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench import private_engine, wheels_image
from bench.figures import Measurement, Target, show
from bench.measure import alternate, processor_seconds
from bench.measure import run as run_program
from bench.private_engine import PrivateEngine
from bench.setting import BenchSetting
from containers.image.registry_image import fetch
from stacks.config.stack_file import ROOT
from toolchain.machine.steps import say

SECONDS: Final = Target("<", 1.00)
MEMORY: Final = Target("<", 1.00)
_SECONDS_ALLOWED: Final = 60.0
_MEMORY_ALLOWED: Final = 500e6
ROUNDS: Final = 3
_PEER: Final = "docker pull, empty engine"


@dataclass(frozen=True)
class Cost:
    """What a run took: wall time and CPU time in seconds."""

    seconds: float
    cpu: float


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Install wheels as one layer, push the image, inspect it, and pull it; yield nothing without engines for that."""
    if why := private_engine.refusal(engines=1):
        say(f"  h: left out: {why}")
        return
    setting.engine.check_space(2_000_000_000 if setting.quick else 20_000_000_000)
    name = f"{setting.registry.address}/wheels:1"
    with private_engine.started(setting.scratch / "builder") as builder:
        wheels_image.build(setting, builder, name, "h")
        size = f"{show(builder.engine.unpacked(name), 'B')} ({show(fetch(name).size, 'B')} compressed)"
    command = [sys.executable, "-m", "stacks", "inspect", name]

    def inspect() -> Cost:
        done = run_program(command, cwd=ROOT, env=os.environ)
        return Cost(done.seconds, done.cpu)

    with private_engine.started(setting.scratch / "empty") as empty:
        title = f"inspect of an image of {size}"
        ours, theirs = alternate(setting.rounds(ROUNDS, f"h: {title}"), inspect, lambda: _pull(empty, name))
    seconds = [cost.seconds for cost in ours]
    yield Measurement("h", title, seconds, "allowed", [_SECONDS_ALLOWED], target=SECONDS)
    yield Measurement("h", "the same", seconds, _PEER, [cost.seconds for cost in theirs])
    yield Measurement("h", "CPU time of both", [cost.cpu for cost in ours], _PEER, [cost.cpu for cost in theirs])
    peak = run_program(command, cwd=ROOT, env=os.environ, watch=True).peak
    yield Measurement("h", "peak memory of that inspect", [peak], "allowed", [_MEMORY_ALLOWED], unit="B", target=MEMORY)


def _pull(empty: PrivateEngine, name: str) -> Cost:
    """Pull an image into an engine that has none, and remove it."""
    began, before = time.monotonic(), processor_seconds(empty.pid)
    with empty.engine.pulled(name):
        return Cost(time.monotonic() - began, processor_seconds(empty.pid) - before)
