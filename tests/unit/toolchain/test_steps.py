"""Steps and programs that run at once: whole lines, one status, and an end of all."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolchain import environment, modes, ready
from toolchain.checkout import Checkout
from toolchain.machine import steps
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import python_env
from toolchain.parts.part import Kind, Part


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a run that has not ended, whatever a test does."""
    monkeypatch.setattr(steps, "_ended", threading.Event())


def test_terminal_shows_all_steps_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr(steps, "TICK_SECONDS", 0.02)
    with steps.step("Building", "3 minutes"):
        with steps.step("Fetching"):
            time.sleep(0.1)
        time.sleep(0.1)
    written = terminal.getvalue().split("\r\x1b[K")
    assert written[:3] == ["", "Building (3 minutes)\n", "Fetching ..."]
    assert "Building ... 0 s, Fetching ... 0 s " in written
    assert "Fetching: done in 0 s\n" in written
    assert written[-2:] == ["Building ... 0 s ", "Building: done in 0 s\n"]


def test_failed_step_on_terminal_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with pytest.raises(ToolchainError), steps.step("Fetching"):
        raise ToolchainError("no route")
    assert terminal.getvalue() == "\r\x1b[KFetching ...\n"
    assert not steps._running


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo here; exec sleep 60", r"failed \(-15\): here;"),
        (
            "trap 'echo clean; exit 4' TERM; echo here; sleep 0.1 & while :; do wait; sleep 0.1; done",
            r"failed \(4\): clean;",
        ),
        ("trap : TERM; echo here; while :; do sleep 0.1; done", r"failed \(-9\): here;"),
    ],
)
def test_ended_run_ends_programs_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(steps, "END_SECONDS", 1.0)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(steps.command, ["sh", "-c", script], tmp_path / "log")
        while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
            assert time.monotonic() < begun + 30
            time.sleep(0.01)
        steps.end_programs()
        with pytest.raises(ToolchainError, match=words):
            running.result()
    assert time.monotonic() < begun + 50
    with pytest.raises(ToolchainError, match="^`touch` was not started, as the run was ended$"):
        steps.command(["touch", tmp_path / "new"], tmp_path / "log")
    assert not (tmp_path / "new").exists()


class Parts:
    """A program and a service as the parts of the toolchain, in a checkout."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout = Checkout(folder)
        self.reached = {name: threading.Event() for name in ("program", "service")}
        self.saved: list[str] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(modes, "normalize", lambda _: None)
        monkeypatch.setattr(python_env, "get", lambda _: None)
        monkeypatch.setattr(environment, "save", lambda _, parts: self.saved.extend(part.name for part in parts))

    def ready(self, program: Callable[[], None], service: Callable[[], None]) -> None:
        """Have both parts, each by a function."""

        def kind(name: str, get: Callable[[], None]) -> Kind:
            def had(_: Checkout) -> Part:
                get()
                return Part(name, "", "")

            return Kind(name, lambda _: None, had)

        kinds = kind("program", program), kind("service", service)
        self._monkeypatch.setattr(ready, "KINDS", kinds)
        self._monkeypatch.setattr(ready, "_SERVICES", kinds[1:])
        ready.ready(self.checkout)

    def meet(self, name: str, other: str) -> None:
        """Say that one is being had, and wait until the other is, too."""
        self.reached[name].set()
        assert self.reached[other].wait(30), f"{other} is not had meanwhile"


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(tmp_path, monkeypatch)


def test_services_are_had_beside_programs(parts: Parts) -> None:
    parts.ready(lambda: parts.meet("program", "service"), lambda: parts.meet("service", "program"))
    assert parts.saved == ["program", "service"]


def test_failed_service_fails_ready(parts: Parts) -> None:
    def fail() -> None:
        raise ToolchainError("no engine")

    with pytest.raises(ToolchainError, match="^no engine$"):
        parts.ready(lambda: None, fail)
    assert not parts.saved


def test_interrupted_ready_ends_what_services_run(parts: Parts, tmp_path: Path) -> None:
    def interrupted() -> None:
        while not steps._programs:
            time.sleep(0.01)
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        parts.ready(interrupted, lambda: steps.command(["sleep", "60"], tmp_path / "log"))
    assert time.monotonic() < begun + 50
    assert not steps._programs
