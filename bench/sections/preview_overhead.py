"""Section a: the overhead of Slipway's graph without builds, against bare ``docker.Image`` resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bench import program, synthetic_images
from bench.figures import Measurement, Target
from bench.measure import MeasuredRun, alternate
from bench.program import Program
from bench.setting import BenchSetting
from toolchain.machine.steps import step

TARGET: Final = Target("<=", 1.15)
ROUNDS: Final = {1: 7, 20: 7, 100: 5, 500: 3}
"""Rounds by number of images."""
QUICK: Final = (1, 20)
_PEER: Final = "bare docker.Image"


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Measure ``preview`` and ``up`` without changes, and the memory of ``up`` without the engine's."""
    for count, rounds in ROUNDS.items():
        if not setting.quick or count in QUICK:
            yield from _count(setting, count, rounds)


def _count(setting: BenchSetting, count: int, rounds: int) -> Iterator[Measurement]:
    images_of = f"{count} image{'s' if count > 1 else ''}"
    folder = setting.scratch / f"graph{count}"
    registry = f"{setting.registry.address}/graph{count}"
    ours = program.slipway(folder / "slipway", f"{registry}/slipway", {"flavor": "many", "count": count})
    arguments = {
        name: {"BASE_IMAGE": "scratch", "NUMBER": str(number)}
        for number, name in enumerate(synthetic_images.names(count))
    }
    theirs = program.bare(folder / "bare", f"{registry}/bare", arguments)
    for each in (ours, theirs):
        synthetic_images.write(each.dockerfiles, count)
        each.begin()
    with step(f"a: first up of {images_of}, Slipway's and the bare program's"):
        # The bare program is first: the second finds the layers in the engine.
        for each in (theirs, ours):
            each.up()
    memory = [each.up(watch=True).peak for each in (ours, theirs)]
    for title, action in (("preview", Program.preview), ("up, no change", Program.up)):
        rows = alternate(
            setting.rounds(rounds, f"a: {title}, {images_of}"), _timed(action, ours), _timed(action, theirs)
        )
        yield Measurement("a", f"{title}, {images_of}", rows[0], _PEER, rows[1], target=TARGET)
    yield Measurement("a", f"peak memory of up, {images_of}", memory[:1], _PEER, memory[1:], unit="B")


def _timed(action: Callable[[Program], MeasuredRun], program_: Program) -> Callable[[], float]:
    return lambda: action(program_).seconds
