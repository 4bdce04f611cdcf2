"""Section i: merging platforms, and engines of one core each that build side by side, against one of them alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench import private_engine, program, synthetic_images
from bench.figures import Measurement, Target
from bench.measure import alternate
from bench.private_engine import PrivateEngine
from bench.program import Program
from bench.sections import merge_cost
from bench.setting import BenchSetting
from containers.engine.engine_platforms import PLATFORMS
from containers.platform_name import architecture
from toolchain.machine import apt
from toolchain.machine.steps import say, step
from toolchain.parts import base_image, emulation

PLATFORMS_TARGET: Final = Target("<=", 1.10)
PRODUCTS_TARGET: Final = Target("<=", 0.60)
COUNT: Final = 8
ROUNDS: Final = 3
_IMAGE_SECONDS: Final = 60.0
_PRODUCT_SECONDS: Final = 10.0
_QUICK: Final = 0.25
"""What part of the work `--quick` does."""
_TRIED: Final = 8
"""Rounds of work that are timed, to know how many take so long."""


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Measure merging; then a stack for two platforms and a stack of products, on two engines and on one alone.

    One of the platforms is emulated. QEMU and the parent image for it are set up as `make up` does for a stack.
    """
    yield from merge_cost.run(setting)
    if why := private_engine.refusal(engines=2):
        say(f"  i: engines left out: {why}")
        return
    own = f"linux/{apt.machine()}"
    foreign = next(platform for platform in PLATFORMS if platform != own)
    emulation.get(setting.checkout, foreign)
    base_image.get_for(setting.checkout, foreign)
    with ExitStack() as stack:
        cores = sorted(os.sched_getaffinity(0))[:2]
        engines = [stack.enter_context(private_engine.started(setting.scratch / f"core{core}", core)) for core in cores]
        with step("i: timing the work on each platform"):
            base = setting.engine.parent()
            seconds = {
                platform: _seconds(engine, base, platform)
                for platform, engine in zip((own, foreign), engines, strict=True)
            }
            # Each engine has the parent of each build, as after the first.
            engines[1].engine.output(base, ["true"], own)
        yield from _platforms(setting, seconds, engines)
        yield from _products(setting, own, seconds[own], engines)


def _platforms(
    setting: BenchSetting, seconds: Mapping[str, float], engines: Sequence[PrivateEngine]
) -> Iterator[Measurement]:
    """Measure an image whose build keeps a core busy as long on each platform."""
    rounds = {
        architecture(platform): number_of_rounds(_IMAGE_SECONDS * _part(setting), each)
        for platform, each in seconds.items()
    }
    hosts = {platform: engine.host for platform, engine in zip(seconds, engines, strict=True)}
    both = _stack(setting, "both", 1, rounds, {"platforms": list(hosts), "engines": hosts})
    alone = [
        _stack(setting, architecture(platform), 1, rounds, {"platform": platform, "engines": {platform: host}})
        for platform, host in hosts.items()
    ]
    title = f"{' and '.join(hosts)} on two engines"
    actions = [_built(stack, 1) for stack in (both, *alone)]
    together, *each = alternate(setting.rounds(ROUNDS, f"i: {title}"), *actions)
    slower = [max(pair) for pair in zip(*each, strict=True)]
    yield Measurement("i", title, together, "the slower one alone", slower, target=PLATFORMS_TARGET)


def _products(
    setting: BenchSetting, platform: str, seconds: float, engines: Sequence[PrivateEngine]
) -> Iterator[Measurement]:
    """Measure products that depend on none of the others."""
    rounds = {architecture(platform): number_of_rounds(_PRODUCT_SECONDS * _part(setting), seconds)}
    hosts = [engine.host for engine in engines]
    keys = {"products": True, "platform": platform}
    two, one = (
        _stack(setting, f"pool{len(pool)}", COUNT, rounds, {**keys, "engines": {platform: pool}})
        for pool in (hosts, hosts[:1])
    )
    title = f"{COUNT} independent products on two engines"
    shared, alone = alternate(setting.rounds(ROUNDS, f"i: {title}"), _built(two, COUNT), _built(one, COUNT))
    yield Measurement("i", title, shared, "one of the engines", alone, target=PRODUCTS_TARGET)


def number_of_rounds(seconds: float, each: float) -> int:
    """Return how many rounds of work take so many seconds, if each takes ``each``: at least one."""
    return max(1, round(seconds / each))


def _part(setting: BenchSetting) -> float:
    return _QUICK if setting.quick else 1.0


def _seconds(private: PrivateEngine, base: str, platform: str) -> float:
    """Return the seconds of a round of work on an engine."""
    work = f"{synthetic_images.WORK} > /dev/null"
    timed = f"began=$(date +%s%N); for round in $(seq {_TRIED}); do {work}; done; echo $(($(date +%s%N) - began))"
    return int(private.engine.output(base, ["sh", "-c", f"{work}; {timed}"], platform)) / 1e9 / _TRIED


def _stack(setting: BenchSetting, name: str, count: int, rounds: Mapping[str, int], keys: Mapping[str, Any]) -> Program:
    config = {"flavor": "many", "count": count, "base": setting.engine.parent(), **keys}
    stack = program.slipway(setting.scratch / f"engines-{name}", f"{setting.registry.address}/engines-{name}", config)
    synthetic_images.write_working(stack.dockerfiles, count, rounds)
    stack.begin()
    return stack


def _built(stack: Program, count: int) -> Callable[[], float]:
    """Return an action that builds all images without a cache and returns the seconds."""

    def build() -> float:
        synthetic_images.reseed(stack.dockerfiles, count)
        return stack.up().seconds

    return build
