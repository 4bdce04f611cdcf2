"""Section a: what Slipway's graph costs when nothing is to be built, against a bare ``docker.Image`` each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bench import program, synthetic_images
from bench.figures import Row, Target
from bench.measure import Run, alternate
from bench.program import Program
from bench.setting import Setting
from toolchain.machine.steps import step

TARGET: Final = Target("<=", 1.15)
ROUNDS: Final = {1: 7, 20: 7, 100: 5, 500: 3}
"""How many images, and how many rounds each."""
QUICK: Final = (1, 20)
_BESIDE: Final = "bare docker.Image"


def run(setting: Setting) -> Iterator[Row]:
    """Measure ``preview`` and ``up`` with nothing changed, and the memory that ``up`` takes beside the engine."""
    for count, rounds in ROUNDS.items():
        if not setting.quick or count in QUICK:
            yield from _count(setting, count, rounds)


def _count(setting: Setting, count: int, rounds: int) -> Iterator[Row]:
    images_of = f"{count} image{'s' if count > 1 else ''}"
    folder = setting.scratch / f"graph{count}"
    registry = f"{setting.registry.address}/graph{count}"
    ours = program.slipway(folder / "slipway", f"{registry}/slipway", {"flavor": "many", "count": count})
    arguments = {
        name: {"BASE_IMAGE": "scratch", "NUMBER": str(number)}
        for number, name in enumerate(synthetic_images.names(count))
    }
    theirs = program.bare(folder / "bare", f"{registry}/bare", arguments)
    for made in (ours, theirs):
        synthetic_images.write(made.dockerfiles, count)
        made.begin()
    with step(f"a: first up of {images_of}, Slipway's and the bare program's"):
        # The bare program goes first: whichever is second finds the layers in the engine.
        for made in (theirs, ours):
            made.up()
    memory = [made.up(watch=True).peak for made in (ours, theirs)]
    for what, action in (("preview", Program.preview), ("up, no change", Program.up)):
        rows = alternate(
            setting.rounds(rounds, f"a: {what}, {images_of}"), _timed(action, ours), _timed(action, theirs)
        )
        yield Row("a", f"{what}, {images_of}", rows[0], _BESIDE, rows[1], target=TARGET)
    yield Row("a", f"peak memory of up, {images_of}", memory[:1], _BESIDE, memory[1:], unit="B")


def _timed(action: Callable[[Program], Run], made: Program) -> Callable[[], float]:
    return lambda: action(made).seconds
