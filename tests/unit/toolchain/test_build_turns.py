"""How many builds an engine gets at a time, of more images than that."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containers.engine.connection import Address
from containers.engine.engine import Engine
from tests.helpers.every import every
from toolchain.provider import build, provider
from toolchain.provider.inputs import image
from toolchain.provider.provider_base import Cancelled, Host, Operation, Turns

SECONDS = 30


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> tuple[queue.Queue[str], threading.Event]:
    """The names of the builds that have begun, and what lets them end."""
    names: queue.Queue[str] = queue.Queue()
    end = threading.Event()

    def builds(work: Any, *_: object) -> str:
        names.put(work.image.name)
        assert end.wait(SECONDS)
        return "sha256:1"

    monkeypatch.setattr(build._Work, "build", builds)
    monkeypatch.setattr(build._Work, "wait_for", lambda *_: None)
    monkeypatch.setattr(build._Work, "identity", lambda _: "sha256:1")
    return names, end


def producing(folder: Path) -> Callable[[str, Turns, Operation, Callable[[str], None]], str]:
    (folder / "Dockerfile").write_text("FROM scratch\n")

    def produce(name: str, turns: Turns, operation: Operation, status: Callable[[str], None]) -> str:
        described = {"context": str(folder), "dockerfile": str(folder / "Dockerfile")}
        made = image({"imageName": name, "skipPush": True, "build": described})
        display = build.Display(status, lambda *_: None, str)
        outputs = build.produce(made, Engine(Address("tcp://unused")), display, operation, push=False, turns=turns)
        return str(outputs["imageName"])

    return produce


def test_more_images_than_turns_wait_and_a_cancelled_one_ends(
    tmp_path: Path, begun: tuple[queue.Queue[str], threading.Event]
) -> None:
    names, end = begun
    waiting: queue.Queue[str] = queue.Queue()
    turns, produce = Turns(3), producing(tmp_path)
    operations = {f"image{number}": Operation() for number in range(6)}

    def say(name: str) -> Callable[[str], None]:
        return lambda line: waiting.put(name) if line == "Waiting for another build to end" else None

    with ThreadPoolExecutor(len(operations)) as threads:
        results = {
            name: threads.submit(produce, name, turns, operation, say(name)) for name, operation in operations.items()
        }
        try:
            building = {names.get(timeout=SECONDS) for _ in range(3)}
            left = [waiting.get(timeout=SECONDS) for _ in range(3)]
            assert building.isdisjoint(left)
            assert names.empty()
            operations[left[0]].cancel()
            with pytest.raises(Cancelled):
                results[left[0]].result(SECONDS)
            assert names.empty(), "nobody's turn has come"
        finally:
            end.set()
        built = {results[name].result(SECONDS) for name in operations if name != left[0]}
    assert built == {*operations} - {left[0]}
    assert {names.get_nowait() for _ in range(2)} == {*left[1:]}


@every(
    "host, cores, most",
    [
        ("unix:///var/run/docker.sock", 2, 3),
        ("ssh://builder", 16, 16),
        ("tcp://10.0.0.8:2376", None, 3),
        ("unix://.slipway/engines/t-amd64.sock", 16, None),  # several engines may be behind it
    ],
)
def test_engine_gets_a_build_for_each_core(
    host: str, cores: int | None, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(provider, "Turns", made.append)
    engine: Any = SimpleNamespace(address=Address(host), json=lambda path, **_: {"/info": {"NCPU": cores}}[path])
    provider.DockerProvider(Host(""))._turns_on(engine)
    assert made == ([] if most is None else [most])


def test_line_that_pulumi_is_slow_to_take_holds_no_build() -> None:
    turns, operation = Turns(1), Operation()
    with ThreadPoolExecutor(1) as thread:
        building = turns.one(operation, lambda: None)
        thread.submit(building.__enter__).result(SECONDS)

        def waits() -> None:
            thread.submit(operation.cancel).result(SECONDS)
            thread.submit(building.__exit__, None, None, None).result(SECONDS)

        with turns.one(Operation(), waits):
            pass
