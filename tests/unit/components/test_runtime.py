"""The program's runtime: which log lines reach the engine."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi.runtime.proto import engine_pb2

from components import runtime

SEVERITIES = [engine_pb2.DEBUG, engine_pb2.INFO, engine_pb2.WARNING, engine_pb2.ERROR]


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def received(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the severities that reach the engine, of one line each."""
    lines: list[Any] = []
    engine = SimpleNamespace(Log=lines.append)
    monkeypatch.setattr(runtime, "get_engine", lambda: engine)
    runtime.reduce_overhead()
    for severity in SEVERITIES:
        engine.Log(engine_pb2.LogRequest(severity=severity, message="a line"))
    return [line.severity for line in lines]


def test_engine_without_debug_receives_all_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime.DEBUG_VARIABLE, raising=False)
    assert received(monkeypatch) == SEVERITIES[1:]


def test_engine_with_debug_variable_receives_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runtime.DEBUG_VARIABLE, "1")
    assert received(monkeypatch) == SEVERITIES


def test_reduce_overhead_without_an_engine_stops_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "get_engine", lambda: None)
    runtime.reduce_overhead()
    assert not gc.isenabled()


def settled(*outputs: asyncio.Future[int]) -> bool:
    """Say whether the wait for some outputs ends, once the loop has nothing else to do."""

    async def wait() -> bool:
        waiting = asyncio.ensure_future(runtime.settle_outputs())
        await asyncio.sleep(0.01)
        return waiting.done() or not waiting.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "SETTINGS", SimpleNamespace(outputs=set(outputs)))
        return outputs[0].get_loop().run_until_complete(wait())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    created = asyncio.new_event_loop()
    yield created
    created.close()


def test_settle_outputs_waits_for_the_last_one(loop: asyncio.AbstractEventLoop) -> None:
    first, last = loop.create_future(), loop.create_future()
    loop.call_soon(first.set_result, 1)
    assert not settled(first, last)
    last.set_result(2)
    assert settled(first, last)


def test_settle_outputs_ends_when_one_fails(loop: asyncio.AbstractEventLoop) -> None:
    failed, pending = loop.create_future(), loop.create_future()
    loop.call_soon(failed.set_exception, ValueError("no such image"))
    assert settled(failed, pending)
