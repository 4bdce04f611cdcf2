"""The runtime's setting: what goes to the engine and what does not."""

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


def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Hasten, then send a line of each severity; return those that the engine gets."""
    lines: list[Any] = []
    engine = SimpleNamespace(Log=lines.append)
    monkeypatch.setattr(runtime, "get_engine", lambda: engine)
    runtime.hasten()
    for severity in SEVERITIES:
        engine.Log(engine_pb2.LogRequest(severity=severity, message="a line"))
    return [line.severity for line in lines]


def test_debug_lines_stay_and_all_others_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime.DEBUG_VARIABLE, raising=False)
    assert sent(monkeypatch) == SEVERITIES[1:]


def test_debug_lines_are_kept_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(runtime.DEBUG_VARIABLE, "1")
    assert sent(monkeypatch) == SEVERITIES


def test_without_an_engine_there_is_nothing_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "get_engine", lambda: None)
    runtime.hasten()
    assert not gc.isenabled()
