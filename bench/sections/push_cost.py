"""Section j: the push of a large image with layers of zstd, and the pull after it, against `docker push`.

Then a cold build and push of the same, by a stack with zstd, against `docker buildx bake --push` on the same engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench import buildx, private_engine, program, services, wheels_image
from bench.figures import Measurement, Target, show
from bench.measure import alternate
from bench.private_engine import PrivateEngine
from bench.setting import BenchSetting
from containers.engine import zstd_push
from containers.engine.connection import Address
from containers.engine.engine import Engine
from containers.engine.image_files import EngineImage
from containers.image.registry_image import fetch
from toolchain.machine.steps import say

PUSH: Final = Target("<=", 0.50)
COLD: Final = Target("<=", 0.70)
LEVEL: Final = 4
"""The default of ``slipway:compression``."""
ROUNDS: Final = 3
_PEER: Final = "docker push"


@dataclass(frozen=True)
class PushCost:
    """The seconds of a push to an empty registry and of the pull into an empty engine, and the bytes between them."""

    push: float
    pull: float
    size: float


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Install wheels as one layer, push the image in both ways, and pull it; nothing without engines for that."""
    if why := private_engine.refusal(engines=1):
        say(f"  j: left out: {why}")
        return
    setting.engine.check_space(5_000_000_000 if setting.quick else 60_000_000_000)
    name = f"{setting.registry.address}/pushed:1"
    with (
        private_engine.started(setting.scratch / "builder") as builder,
        private_engine.started(setting.scratch / "empty") as empty,
    ):
        wheels_image.build(setting, builder, name, "j")
        title = f"push of an image of {show(builder.engine.unpacked(name), 'B')}"
        pushes = partial(_zstd, builder, name), partial(_gzip, builder, name)
        actions = [partial(_cost, setting, empty, push) for push in pushes]
        ours, theirs = alternate(setting.rounds(ROUNDS, f"j: {title}"), *actions)
        colds = _slipway(setting, builder), _bake(setting, builder)
        cold = [partial(_cold, setting, each) for each in colds]
        built = alternate(setting.rounds(1, "j: its cold build and push"), *cold)
    yield Measurement("j", title, [each.push for each in ours], _PEER, [each.push for each in theirs], target=PUSH)
    yield Measurement("j", "its pull", [each.pull for each in ours], _PEER, [each.pull for each in theirs])
    yield Measurement("j", "its bytes", [each.size for each in ours], _PEER, [each.size for each in theirs], unit="B")
    yield Measurement("j", "its cold build and push", built[0], "buildx bake --push", built[1], target=COLD)


def _cost(setting: BenchSetting, empty: PrivateEngine, push: Callable[[str, Path], object]) -> PushCost:
    """Push to a registry that has nothing, of which no engine knows anything, and pull from it."""
    folder = setting.scratch / f"registry-{time.monotonic_ns()}"
    with services.registry(setting.checkout, folder) as registry:
        name = f"{registry.address}/pushed:1"
        began = time.monotonic()
        push(name, folder / "records")
        pushed = time.monotonic()
        with empty.engine.pulled(name):
            pulled = time.monotonic()
        return PushCost(pushed - began, pulled - pushed, fetch(name).size)


def _gzip(builder: PrivateEngine, image: str, name: str, _: Path) -> None:
    builder.engine.publish(image, name)


def _zstd(builder: PrivateEngine, image: str, name: str, records: Path) -> None:
    engine = Engine(Address(builder.host))
    held = EngineImage.held(engine.json(f"/images/{image}/json")["Id"], engine)
    zstd_push.push(held, name, LEVEL, None, records, lambda _: None)


_Up = Callable[[str, str], float]
"""Builds and pushes to a registry, ``host:port``, on a parent; returns the seconds."""


def _cold(setting: BenchSetting, up: _Up) -> float:
    """Build on a parent that no cache has, and push to a registry that has nothing; return the seconds of both."""
    mark = f"{time.monotonic_ns()}"
    parent = setting.engine.new_parent(f"{setting.registry.address}/j/parent:{mark}", mark)
    with services.registry(setting.checkout, setting.scratch / f"registry-{mark}") as registry:
        return up(registry.address, parent)


def _slipway(setting: BenchSetting, builder: PrivateEngine) -> _Up:
    config = {"flavor": "many", "count": 1, "compression": {"kind": "zstd", "level": LEVEL}}
    ours = program.slipway(setting.scratch / "cold" / "slipway", setting.registry.address, config)
    ours.environment["DOCKER_HOST"] = builder.host
    wheels_image.write(setting, ours.dockerfiles / "image0")
    ours.begin()

    def up(address: str, parent: str) -> float:
        program.configure(ours, f"{address}/slipway", {**config, "base": parent})
        return ours.up().seconds

    return up


def _bake(setting: BenchSetting, builder: PrivateEngine) -> _Up:
    file = setting.scratch / "cold" / "bake" / "docker-bake.json"
    wheels_image.write(setting, file.parent / "dockerfiles" / "image0")
    bake = buildx.program(setting.checkout)

    def up(address: str, parent: str) -> float:
        buildx.write_bake(file, f"{address}/bake", {"image0": {"BASE_IMAGE": parent}})
        return buildx.bake(bake, file, host=builder.host).seconds

    return up
