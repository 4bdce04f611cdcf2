"""The upstreams of the Megatron-LM image, and images built of them, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.upstreams.megatron_upstreams import Upstreams
from tests.images.engine import Image, remove
from tests.images.once import once

Built = Callable[..., Image]


@pytest.fixture(scope="session")
def upstreams() -> Iterator[Upstreams]:
    """What the stacks fetch, served to builds."""
    made = Upstreams()
    yield made
    made.server.close()


@pytest.fixture(scope="session")
def built(upstreams: Upstreams) -> Iterator[Built]:
    """Have a stack's image, with other keys than its file's if some are given, built the first time."""
    with once(upstreams.built, remove) as get:
        yield get
