"""The upstreams and the built chains of the universal stacks, once for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.engine import base_image, docker
from tests.images.once import once

STACKS = ("universal-cu102", "universal-cu113", "universal-cu132")

PEOPLE: list[dict[str, Any]] = [
    {"tz": "Asia/Seoul"},
    {
        "name": "alice",
        "uid": 1234,
        "gid": 100,
        "apt": ["less", "sudo"],
        "conda": ["tree=2.1.1"],
        "pip": ["einops"],
        "env": {"WANDB_MODE": "offline", "A_SENTENCE": "two  $words", **{f"ONE_OF_{n}": str(n) for n in range(6)}},
    },
    {"name": "root", "uid": 0, "gid": 0, "tz": "America/Los_Angeles"},
    {"name": "daemon", "uid": 1, "gid": 1, "tz": "US/Pacific"},
]
"""The defaults, a user with every key, root, and a user who replaces a system account."""

Built = Callable[..., chain.Chain]


def upstreams() -> World:
    """Make and serve the upstreams of all universal stacks."""
    served = chain.world([(stack, {}) for stack in STACKS], name="universal")
    ubuntu = f"{os.environ['SLIPWAY_REGISTRY']}/standin/library/ubuntu"
    # A company's own parent image may run as an unprivileged user.
    docker("build", f"--tag={ubuntu}:20.04", "-", text=f"FROM {base_image()}\nUSER nobody\n")
    docker("push", "--quiet", f"{ubuntu}:20.04")
    served.mirrors["images"]["docker.io/library/ubuntu"] = ubuntu
    return served


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The upstreams of all universal stacks, served to builds."""
    served = upstreams()
    yield served
    served.server.close()


@pytest.fixture(scope="session")
def built(world: World) -> Iterator[Built]:
    """A function that builds a stack's chain once for each set of further keys."""
    with once(lambda stack, **more: chain.built(stack, world, **more), chain.remove) as get:
        yield get
