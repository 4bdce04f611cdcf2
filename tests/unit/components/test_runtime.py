"""The program's runtime: which log lines reach the engine."""

from __future__ import annotations

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
