"""Section b: a cold build and push, and a rebuild after one edit, against ``docker buildx bake --push``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench import buildx, program, synthetic_images
from bench.figures import Measurement, Target
from bench.measure import MeasuredRun, alternate
from bench.setting import BenchSetting
from toolchain.machine.steps import step

COLD: Final = Target("<=", 1.05)
WARM: Final = Target("<=", 1.00)
COUNT: Final = 4
LAYER_BYTES: Final = 64_000_000
"""Small for a GPU image: Pulumi's own time matters less in larger builds."""
ROUNDS: Final = 5
_BAKE: Final = "buildx bake --push"
_BARE: Final = "bare docker.Image"


@dataclass(frozen=True)
class BuildTool:
    """One of the three tools: its own build context, and ``up``, which builds and pushes all images.

    The argument of ``up`` is whether to measure memory.
    """

    dockerfiles: Path
    up: Callable[[bool], MeasuredRun]

    def cold(self) -> float:
        """Build and push images without a cache; return the seconds."""
        synthetic_images.reseed(self.dockerfiles, COUNT)
        return self.up(False).seconds

    def warm(self) -> float:
        """Change one small file of one image, build and push; return the seconds."""
        with (self.dockerfiles / synthetic_images.names(COUNT)[0] / "file.txt").open("a") as file:
            file.write("edited\n")
        return self.up(False).seconds

    def memory(self) -> int:
        """Return the peak memory of a cold build and push, without the engine's."""
        synthetic_images.reseed(self.dockerfiles, COUNT)
        return self.up(True).peak


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Measure both builds, and the memory of each tool."""
    bake = _bake(setting)
    with step(f"b: writing {COUNT} images, and their tools"):
        tools = (*_programs(setting), bake)
    with step("b: first build of each"):
        memory = [tool.memory() for tool in tools]
    size = COUNT * synthetic_images.LAYERS * LAYER_BYTES / 1e6
    title = f"cold build and push, {COUNT} images, {size:.0f} MB of new layers"
    ours, bare, peer = alternate(setting.rounds(ROUNDS, f"b: {title}"), *(tool.cold for tool in tools))
    yield Measurement("b", title, ours, _BAKE, peer, target=COLD)
    yield Measurement("b", "the same, by the bare program", bare, _BAKE, peer)
    title = "rebuild and push, one file of one image"
    ours, bare, peer = alternate(setting.rounds(ROUNDS, f"b: {title}"), *(tool.warm for tool in tools))
    yield Measurement("b", title, ours, _BAKE, peer)
    yield Measurement("b", "the same, by the bare program", bare, _BAKE, peer)
    yield Measurement(
        "b", "the rebuild over bake's", _over(ours, peer), "bare over bake", _over(bare, peer), unit="x", target=WARM
    )
    yield Measurement("b", "peak memory of a cold build", memory[:1], _BAKE, memory[2:], unit="B")
    yield Measurement("b", "peak memory of a cold build", memory[:1], _BARE, memory[1:2], unit="B")


def _over(values: Sequence[float], peer: Sequence[float]) -> list[float]:
    return [value / other for value, other in zip(values, peer, strict=True)]


def _arguments(setting: BenchSetting) -> dict[str, dict[str, str]]:
    base = setting.engine.parent()
    return {
        name: {"BASE_IMAGE": base, "NUMBER": str(number)} for number, name in enumerate(synthetic_images.names(COUNT))
    }


def _programs(setting: BenchSetting) -> Iterator[BuildTool]:
    folder, registry = setting.scratch / "build", f"{setting.registry.address}/build"
    config = {"flavor": "many", "count": COUNT, "base": setting.engine.parent()}
    ours = program.slipway(folder / "slipway", f"{registry}/slipway", config)
    bare = program.bare(folder / "bare", f"{registry}/bare", _arguments(setting))
    for each in (ours, bare):
        synthetic_images.write(each.dockerfiles, COUNT, layer_bytes=LAYER_BYTES)
        each.begin()
        yield BuildTool(each.dockerfiles, partial(_up, each))


def _up(program_: program.Program, watch: bool) -> MeasuredRun:
    return program_.up(watch=watch)


def _bake(setting: BenchSetting) -> BuildTool:
    folder = setting.scratch / "build-bake"
    (folder / "dockerfiles").mkdir(parents=True)
    synthetic_images.write(folder / "dockerfiles", COUNT, layer_bytes=LAYER_BYTES)
    file = folder / "docker-bake.json"
    buildx.write_bake(file, f"{setting.registry.address}/build/bake", _arguments(setting))
    bake = buildx.program(setting.checkout)
    return BuildTool(folder / "dockerfiles", lambda watch: buildx.bake(bake, file, watch=watch))
