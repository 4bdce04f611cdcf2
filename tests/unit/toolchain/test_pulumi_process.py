"""Pulumi as a process: its exit status, its lines, and its end where they cannot be followed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolchain.pulumi_run import pulumi_process

INTERRUPTED = 'trap "echo end > ended; exit 0" INT; echo one; while :; do sleep 0.05; done'


def test_process_killed_by_signal_has_status_of_shell(tmp_path: Path) -> None:
    assert pulumi_process.run(["sh", "-c", "kill -9 $$"], os.environ, tmp_path) == 137


def test_process_lines_are_followed(tmp_path: Path) -> None:
    lines: list[str] = []
    assert pulumi_process.run(["sh", "-c", "echo one; echo two; exit 3"], os.environ, tmp_path, lines.extend) == 3
    assert lines == ["one\n", "two\n"]


def test_process_is_interrupted_where_following_fails(tmp_path: Path) -> None:
    def follow(lines: Iterable[str]) -> None:
        raise ValueError(next(iter(lines)))

    with pytest.raises(ValueError, match="one"):
        pulumi_process.run(["sh", "-c", INTERRUPTED], os.environ, tmp_path, follow)
    assert (tmp_path / "ended").read_text() == "end\n"


@pytest.mark.parametrize("terminals", [(True, True), (True, False), (False, True), (False, False)])
def test_process_shares_the_terminal_where_both_ends_are_one(
    terminals: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then gets the terminal's Ctrl-C, and asks there. Else it is in a group of its own, and reads nothing."""
    for name, terminal in zip(("stdin", "stdout"), terminals, strict=True):
        monkeypatch.setattr(sys, name, SimpleNamespace(isatty=lambda terminal=terminal: terminal))
    script = "import os, sys; print(os.getpgrp() == os.getpid(), os.fstat(0)[:3] == os.stat(os.devnull)[:3])"
    lines: list[str] = []
    with (tmp_path / "typed").open("w") as typed:
        stdin = os.dup(0)
        os.dup2(typed.fileno(), 0)
        try:
            assert pulumi_process.run([sys.executable, "-c", script], os.environ, tmp_path, lines.extend) == 0
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
    apart = not all(terminals)
    assert lines == [f"{apart} {apart}\n"]


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGHUP, signal.SIGHUP]])
def test_interrupted_process_gets_no_second_signal(numbers: list[int], tmp_path: Path) -> None:
    """A terminal that is closed may send two hangups."""
    script = 'trap "echo end >> ended" INT; echo one; until [ -e ended ]; do sleep 0.05; done; sleep 1'

    def follow(lines: Iterable[str]) -> None:
        next(iter(lines))
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.3)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        pulumi_process.run(["sh", "-c", script], os.environ, tmp_path, follow)
    assert (tmp_path / "ended").read_text() == "end\n"
