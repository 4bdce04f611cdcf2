"""Signals that end a command: which of them, and when."""

from __future__ import annotations

import signal
import subprocess

import pytest

from containers.interruption import undivided


def test_undivided_block_and_its_program_end_before_signal() -> None:
    """The program, too, would end of the signal."""
    ended = []

    def change() -> None:
        with undivided():
            signal.raise_signal(signal.SIGINT)
            ended.append(subprocess.run(["sh", "-c", "kill -INT $$; kill -TERM $$"], check=False).returncode)

    with pytest.raises(KeyboardInterrupt):
        change()
    assert ended == [0]
