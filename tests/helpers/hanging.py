"""Ends a test that hangs: within its limit, with what it and the engine wait for. The hooks are of `tests/conftest.py`."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from containers.engine.connection import Address
from containers.engine.engine import Engine
from containers.errors import SlipwayError

UNIT_SECONDS: Final = 300
SECONDS: Final = 1500
SLOW_SECONDS: Final = 7200
"""The longest that a phase of a test may take, by its kind: three times what it takes on a machine that is busy."""
_handle = signal.signal  # a test may replace it
AGAIN_SECONDS: Final = 30
"""How long after that it is ended again, where something has caught it."""


def limit(item: pytest.Item) -> float:
    """Return the limit of a test: that of its mark `limit`, or of its kind."""
    if mark := item.get_closest_marker("limit"):
        return float(mark.args[0])
    if item.get_closest_marker("slow"):
        return SLOW_SECONDS
    return UNIT_SECONDS if item.nodeid.startswith(("tests/unit/", "tests/programs/")) else SECONDS


def programs(pid: int) -> Iterator[str]:
    """Yield the commands of the programs that a process started, and of those that they did."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield words.strip()[:200] or f"process {child}"
                yield from programs(child)


def waiting() -> str:
    """Return what runs below this process, and where the engine has waited for minutes."""
    lines = [f"  runs: {words}" for words in programs(os.getpid())]
    with suppress(SlipwayError):
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        lines += [f"  the engine has waited for minutes in {place}" for place in Engine(Address(host)).waits()]
    return "\n".join(lines)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what the block does after some seconds. An `except Exception` of it does not catch that."""

    def end(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"hangs: not done within {seconds:.0f} s\n{waiting()}")

    before = _handle(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _handle(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with limited(limit(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with limited(limit(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with limited(limit(item)):
        return (yield)
