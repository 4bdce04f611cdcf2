"""The upstreams and the built chains, once for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stacks.source import ROOT
from tests.images import chain
from tests.images.world.upstreams import World

STACKS = [f"{variant}-{cuda}" for variant in ("nccl", "base") for cuda in ("cu118", "cu120", "cu121", "cu129", "cu132")]


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The upstreams of all stacks of the family, served to builds."""
    made = chain.world(ROOT / ".slipway/cache/world", os.environ["SLIPWAY_REGISTRY"], chain.debian(), STACKS, {})
    yield made
    made.server.close()


@pytest.fixture(scope="session")
def built(world: World) -> Iterator[Callable[..., chain.Chain]]:
    """Build a stack's chain, or the same one again."""
    chains: dict[str, chain.Chain] = {}

    def get(stack: str, name: str = "", **more: Any) -> chain.Chain:
        key = name or stack
        if key not in chains:
            chains[key] = chain.Chain(stack, chain.values(stack, world, more), key).build()
        return chains[key]

    yield get
    for made in chains.values():
        made.remove()
