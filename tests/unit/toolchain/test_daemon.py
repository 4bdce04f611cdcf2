"""Services that the toolchain starts, and ends: by their own pid, and none that is not theirs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolchain.machine.daemon import Daemon
from toolchain.machine.toolchain_error import ToolchainError

WAITS = "import time; print('it waits', flush=True); time.sleep(300)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    own = Daemon("the service", tmp_path / "run/own.pid", tmp_path / "logs/own.log", str(tmp_path / "own.sock"))
    yield own
    own.stop(1)


def start(daemon: Daemon, code: str, *, ready: bool = True, seconds: float = 60) -> None:
    def answers() -> bool:
        return ready and "it waits" in daemon.log.read_text()

    daemon.start([sys.executable, "-c", code, daemon.mark], answers, env={}, seconds=seconds)


@pytest.mark.limit(60)
@pytest.mark.parametrize(("code", "seconds"), [(WAITS, 30), (DEAF, 0.2)], ids=["by request", "by force"])
def test_service_runs_until_it_is_stopped(daemon: Daemon, code: str, seconds: float) -> None:
    start(daemon, code)
    pid = daemon.pid()
    assert pid is not None
    assert os.getsid(pid) == pid  # a terminal's Ctrl-C is not for it
    assert daemon.stop(seconds) is True
    assert (daemon.pid(), daemon.pid_file.exists()) == (None, False)
    assert daemon.stop() is False


@pytest.mark.limit(60)
def test_wrapped_service_gets_the_signal(daemon: Daemon, tmp_path: Path) -> None:
    """A wrapper such as unshare passes none on, and ends with its one child."""
    child = f"import pathlib, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path({str(tmp_path / 'asked')!r}).touch())); {WAITS}"
    start(daemon, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    assert daemon.stop() is True
    assert (tmp_path / "asked").exists()


@pytest.mark.limit(60)
def test_service_that_does_not_start_says_its_last_words(daemon: Daemon) -> None:
    with pytest.raises(ToolchainError) as caught:
        start(daemon, "raise SystemExit('no room')")
    assert str(caught.value) == f"the service ended as soon as it was started: no room; all output is in {daemon.log}"
    with pytest.raises(ToolchainError) as caught:
        start(daemon, WAITS, ready=False, seconds=2)
    assert str(caught.value) == f"the service was not ready within 2 s: it waits; all output is in {daemon.log}"
    assert daemon.pid() is None
