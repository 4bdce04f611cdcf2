"""What holds for every test of one module."""

from collections.abc import Iterator

import pytest

from tests.helpers import contents, own_history, own_world


@pytest.fixture(autouse=True, scope="module")
def _no_network() -> Iterator[None]:
    """Have a test reach what it starts alone: no index, proxy, engine, registry or mirror of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        own_world.leave_network(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_search_of_this_history() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        own_history.leave_search(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def _one_reading_of_this_checkout() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        contents.share(patch)
        yield
