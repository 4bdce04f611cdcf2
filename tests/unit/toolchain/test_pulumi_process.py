"""Pulumi as a process: its exit status, its lines, and its end where they cannot be followed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.helpers.every import every
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


@every(
    "numbers, received",
    [
        ([signal.SIGHUP, signal.SIGHUP], 1),  # a terminal that is closed may send two
        ([signal.SIGINT, signal.SIGTERM], 1),  # as GitHub's runner ends a job
        ([signal.SIGTERM, signal.SIGINT, signal.SIGINT], 3),  # a user's Ctrl-C
    ],
)
def test_interrupted_process_gets_later_ctrl_c_alone(numbers: list[int], received: int, tmp_path: Path) -> None:
    script = 'trap "echo end >> ended" INT; trap exit USR1; echo $$; while :; do sleep 0.02; done'

    def follow(lines: Iterable[str]) -> None:
        process = int(next(iter(lines)))
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.1)
        os.kill(process, signal.SIGUSR1)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        pulumi_process.run(["sh", "-c", script], os.environ, tmp_path, follow)
    assert (tmp_path / "ended").read_text() == "end\n" * received


def test_interrupted_process_has_no_status_of_success(tmp_path: Path) -> None:
    """Pulumi's destroy ends with 0 where it was cancelled between two resources. A hangup of its group is ignored."""

    def follow(lines: Iterable[str]) -> None:
        os.kill(int(next(iter(lines))), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)

    script = 'trap "exit 0" INT; echo $$; while :; do sleep 0.05; done'
    assert pulumi_process.run(["sh", "-c", script], os.environ, tmp_path, follow) == 130
