"""The upstreams and the built chains, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from stacks.config.stack_file import read_stack
from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.once import once
from tests.images.published import Published

STACKS = [f"{variant}-{cuda}" for variant in ("nccl", "base") for cuda in ("cu118", "cu120", "cu121", "cu129", "cu132")]
PUBLISHED = ("base-cu121", "nccl-cu121")
"""The stacks that `pulumi up` builds and pushes; the others are built by the engine alone."""

QUICK = {"base-cu121"}
"""The stacks that `make test` builds."""


def stacks(*names: str) -> list[ParameterSet]:
    """Return stacks as a test's parameters; those that take minutes are marked slow."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


OLD = {"deepspeed": "0.9.4", "flashAttention": "2.0.2", "apex": "38a1269"}
"""The extras of the stacks of torch 2.0.1."""

XFORMERS = {"extras": {**OLD, "xformers": "0.0.20"}}

FRONTEND = {"transformerEngine": "2.18"}
"""The first TransformerEngine that needs cuDNN's frontend to build."""

_ATTENTION4, _DEEPEP = "4.0.0.beta27", "567632d"

ATTENTION4 = {
    "transformerEngine": False,
    "flashAttention3": False,
    "extras": {"deepspeed": False, "apex": False, "flashAttention": "2.8.3", "flashAttention4": _ATTENTION4},
}
"""FlashAttention 4 beside FlashAttention 2.8.3, which has a copy of it."""

DEEPEP = {
    "transformerEngine": False,
    "flashAttention3": False,
    "extras": {"deepspeed": False, "apex": False, "flashAttention": False, "deepep": _DEEPEP},
}

NEWEST = [f"{variant}-{cuda}" for cuda in ("cu129", "cu132") for variant in ("base", "nccl")]
"""The stacks of today's torch."""


def every_switch(stack: str) -> dict[str, Any]:
    """Return the keys with which a stack of today's torch has all that the family offers beside what the stack's file has."""
    extras = {**read_stack(stack)["extras"], "xformers": "0.0.35", "flashAttention4": _ATTENTION4}
    if stack.startswith("nccl"):
        extras["deepep"] = _DEEPEP
    return {"extras": extras, "cudnn": "9.26.0.51", "cmake": {"USE_MKLDNN": 0}, "march": "x86-64-v3"}


MORE: list[chain.Variation] = [
    ("base-cu121", XFORMERS),
    ("base-cu129", FRONTEND),
    ("base-cu132", ATTENTION4),
    ("nccl-cu132", DEEPEP),
    *((stack, every_switch(stack)) for stack in NEWEST),
]

Built = Callable[..., chain.Chain]
Up = Callable[[str], tuple[chain.Chain, Published]]


def upstreams() -> World:
    """Make and serve the upstreams of all stacks of the family."""
    return chain.world([*((stack, {}) for stack in STACKS), *MORE])


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The upstreams of all stacks of the family, served to builds."""
    served = upstreams()
    yield served
    served.server.close()


@pytest.fixture(scope="session")
def up(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A function that builds and pushes a stack by `pulumi up`, the first time."""

    def make(stack: str) -> tuple[chain.Chain, Published]:
        return chain.published(stack, world, tmp_path_factory.mktemp(stack))

    with once(make, lambda pair: chain.remove(pair[0])) as get:
        yield get


@pytest.fixture(scope="session")
def built(world: World, up: Up) -> Iterator[Built]:
    """A function that builds a stack's chain once for each set of further keys."""
    with once(lambda stack, **more: chain.built(stack, world, **more), chain.remove) as get:
        yield lambda stack, **more: up(stack)[0] if stack in PUBLISHED and not more else get(stack, **more)
