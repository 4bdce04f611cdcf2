"""The upstreams of the EFA image, and images built of them, once for all tests."""

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
    """What the stacks fetch, served to builds."""
    made = Upstreams()
    yield made
    made.server.close()


@pytest.fixture(scope="session")
def published(upstreams: Upstreams, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The `efa` stack, up."""
    return upstreams.published(tmp_path_factory.mktemp("efa"))


@pytest.fixture(scope="session")
def built(upstreams: Upstreams, published: Published) -> Iterator[Built]:
    """Have a stack's image, with other keys than its file's if some are given, built the first time.

    That of `efa` as it is, is the published one.
    """
    own = Image(published.refs()["efa"])
    with once(upstreams.built, remove) as get:
        yield lambda *stack, **more: get(*stack, **more) if stack or more else own
