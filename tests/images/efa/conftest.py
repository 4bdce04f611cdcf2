"""The upstreams of the EFA image, and images built from them, once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.upstreams.efa_upstreams import Upstreams
from tests.images.engine import Image, remove
from tests.images.once import once
from tests.images.published import Published

Built = Callable[..., Image]


@pytest.fixture(scope="session")
def upstreams() -> Iterator[Upstreams]:
    """A server of the stacks' downloads."""
    served = Upstreams()
    yield served
    served.server.close()


@pytest.fixture(scope="session")
def published(upstreams: Upstreams, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The `efa` stack, up."""
    return upstreams.published(tmp_path_factory.mktemp("efa"))


@pytest.fixture(scope="session")
def built(upstreams: Upstreams, published: Published) -> Iterator[Built]:
    """A function that builds a stack's image once for each set of further keys; `efa` itself is published already."""
    default = Image(published.refs()["efa"])
    with once(upstreams.built, remove) as get:
        yield lambda *stack, **more: get(*stack, **more) if stack or more else default
