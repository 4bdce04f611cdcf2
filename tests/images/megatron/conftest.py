"""The upstreams of the Megatron-LM image, and images built from them, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.upstreams.megatron_upstreams import Upstreams
from tests.images.engine import Image, remove
from tests.images.once import once

Built = Callable[..., Image]


@pytest.fixture(scope="session")
def upstreams() -> Iterator[Upstreams]:
    """A server of the stacks' downloads."""
    served = Upstreams()
    yield served
    served.server.close()


@pytest.fixture(scope="session")
def built(upstreams: Upstreams) -> Iterator[Built]:
    """A function that builds a stack's image once for each set of further keys."""
    with once(upstreams.built, remove) as get:
        yield get
