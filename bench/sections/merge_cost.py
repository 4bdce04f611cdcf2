"""Section i: merging the platforms of an image into one index, against its limits and ``docker buildx imagetools``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import buildx, program, synthetic_images
from bench.figures import Measurement, Target
from bench.measure import MeasuredRun, alternate
from bench.measure import run as run_program
from bench.program import Program
from bench.setting import BenchSetting
from containers.engine.engine_platforms import PLATFORMS
from containers.image.registry_image import fetch
from containers.registry.reference import Reference
from stacks.config.stack_file import ROOT
from toolchain.machine.steps import step

SECONDS: Final = Target("<", 1.00)
BYTES: Final = Target("<=", 0.00)
_SECONDS_ALLOWED: Final = 2.0
LAYER_BYTES: Final = 64_000_000
ROUNDS: Final = 5


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Push an image for two platforms, and merge them again and again: alone, and in an update of nothing else."""
    tool = buildx.program(setting.checkout)
    stack = _stack(setting)
    with step("i: first up of an image for two platforms"):
        stack.up()
    image = stack.outputs()["images"]["image0"]
    parts = {platform: part["ref"] for platform, part in image["platforms"].items()}
    layers = sum(layer.size for part in parts.values() for layer in fetch(part).layers)
    sent: list[float] = []
    name = f"{Reference.of(image['ref']).repository}:{image['tag']}"
    merge = [sys.executable, "-m", "bench.programs.merge", name, *(f"{key}={part}" for key, part in parts.items())]

    def merging(action: Callable[[], MeasuredRun]) -> float:
        setting.registry.delete(image["ref"])
        before = len(setting.registry.uploads())
        seconds = action().seconds
        sent.append(sum(setting.registry.uploads()[before:]))
        return seconds

    def update() -> float:
        stack.forget("ImageIndex")
        return merging(stack.up)

    title = "merging the platforms of an image"
    ours, peer, updated, unchanged = alternate(
        setting.rounds(ROUNDS, f"i: {title}"),
        lambda: merging(partial(run_program, merge, cwd=ROOT, env=os.environ)),
        partial(_imagetools, setting, tool, list(parts.values())),
        update,
        lambda: stack.up().seconds,
    )
    yield Measurement("i", title, ours, "allowed", [_SECONDS_ALLOWED], target=SECONDS)
    yield Measurement("i", "the same", ours, "buildx imagetools create", peer)
    yield Measurement("i", "up that only merges", updated, "up, no change", unchanged)
    yield Measurement("i", "layers that merging sends", sent, "layers of the image", [layers], unit="B", target=BYTES)


def _stack(setting: BenchSetting) -> Program:
    config: dict[str, Any] = {"flavor": "many", "count": 1, "platforms": list(PLATFORMS)}
    stack = program.slipway(setting.scratch / "merged", f"{setting.registry.address}/merged", config)
    synthetic_images.write(stack.dockerfiles, 1)
    (stack.dockerfiles / "image0" / "file.txt").write_bytes(os.urandom(LAYER_BYTES))
    stack.begin()
    return stack


def _imagetools(setting: BenchSetting, tool: Path, parts: list[str]) -> float:
    """Merge images with buildx, which pushes the index anew; return the seconds."""
    name = f"{Reference.of(parts[0]).repository}:{os.urandom(4).hex()}"
    environment = {**os.environ, "BUILDX_CONFIG": str(setting.scratch / "buildx")}
    words: list[str | Path] = [tool, "imagetools", "create", "--tag", name, *parts]
    return run_program(words, cwd=setting.scratch, env=environment).seconds
