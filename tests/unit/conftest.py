"""What holds for every test of one module."""

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

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


_now: list[str] = []
"""The unit test that runs."""


@pytest.fixture(autouse=True)
def _no_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a test start no Python directly: it costs as much as forty tests of its process. Those that must are in `tests/programs`."""
    _now.append(request.node.name)
    yield
    _now.clear()


def _refuse_python(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _now:
        program, words = arguments[:2]
        name = PurePath(str(program or words[0])).name
        if name.startswith("python") or name in {"pip", "uv", "pytest"}:
            pytest.fail(f"{_now[0]} starts {name}: such a test is of tests/programs")


sys.addaudithook(_refuse_python)
