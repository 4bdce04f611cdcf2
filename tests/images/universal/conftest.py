"""The upstreams and the built chains of the universal stacks, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.images import chain
from tests.images.world.upstreams import World

STACKS = ("universal-cu113", "universal-cu132")

Built = Callable[..., chain.Chain]


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The upstreams of all universal stacks, served to builds."""
    made = chain.world([(stack, {}) for stack in STACKS], name="universal")
    yield made
    made.server.close()


@pytest.fixture(scope="session")
def built(world: World) -> Iterator[Built]:
    """Have a stack's chain, with other keys than its file's if some are given, built the first time."""
    chains: dict[str, chain.Chain] = {}

    def get(stack: str, **more: Any) -> chain.Chain:
        key = f"{stack} {more}"
        if key not in chains:
            chains[key] = chain.built(stack, world, **more)
        return chains[key]

    yield get
    for made in chains.values():
        chain.remove(made)
