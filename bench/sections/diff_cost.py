"""Section g: ``diff`` of two images that share large layers, against pulling one of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.figures import Measurement, Target
from bench.measure import alternate
from bench.measure import run as run_program
from bench.pushed import PushedLayer, PushRepository
from bench.setting import BenchSetting
from stacks.config.stack_file import ROOT
from toolchain.machine.steps import step

TARGET: Final = Target("<", 0.30)
MEMORY: Final = Target("<", 1.00)
_MEMORY_ALLOWED: Final = 300e6
SHARED: Final = 3
LAYER_BYTES: Final = 2_000_000_000
_QUICK_BYTES: Final = 200_000_000
CHANGED_FILES: Final = 5_000
_CHANGED_BYTES: Final = 10_000
ROUNDS: Final = 3


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Push two images with large shared layers and one own layer each; compare them, and pull the second."""
    large = _QUICK_BYTES if setting.quick else LAYER_BYTES
    size = SHARED * large
    setting.engine.check_space(3 * size)  # in the registry, in transit, and in the engine
    repository = PushRepository(setting.registry, "diff/image")
    with step(f"g: pushing two images of {size / 1e9:.1f} GB"):
        shared = [repository.layer(iter([(f"large{number}", large)])) for number in range(SHARED)]
        before, after = (repository.image(tag, [*shared, _changed_layer(repository, tag)]) for tag in ("1.0", "2.0"))
    command = [sys.executable, "-m", "stacks", "diff", before, after]

    def compare() -> float:
        return run_program(command, cwd=ROOT, env=os.environ).seconds

    def pull() -> float:
        began = time.monotonic()
        with setting.engine.pulled(after):
            return time.monotonic() - began

    title = f"diff of two images of {size / 1e9:.1f} GB, sharing all but {CHANGED_FILES} files each"
    ours, theirs = alternate(setting.rounds(ROUNDS, f"g: {title}"), compare, pull)
    yield Measurement("g", title, ours, "docker pull of one", theirs, target=TARGET)
    peak = run_program(command, cwd=ROOT, env=os.environ, watch=True).peak
    yield Measurement("g", "peak memory of that diff", [peak], "allowed", [_MEMORY_ALLOWED], unit="B", target=MEMORY)
    thorough = run_program([*command, "--thorough"], cwd=ROOT, env=os.environ, watch=True)
    yield Measurement("g", "the same, reading the shared layers too", [thorough.seconds], "docker pull of one", theirs)
    yield Measurement(
        "g", "peak memory of that", [thorough.peak], "allowed", [_MEMORY_ALLOWED], unit="B", target=MEMORY
    )


def _changed_layer(repository: PushRepository, version: str) -> PushedLayer:
    """Push a layer like pip's: packages, each with its metadata."""
    packages = "opt/venv/lib/python3.12/site-packages"
    return repository.layer(
        (f"{packages}/package{number // 10}-{version}.dist-info/METADATA", 0)
        if number % 10 == 0
        else (f"{packages}/package{number // 10}/module{number % 10}.py", _CHANGED_BYTES)
        for number in range(CHANGED_FILES)
    )
