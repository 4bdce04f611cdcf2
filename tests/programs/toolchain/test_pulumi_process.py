"""Pulumi as a process: its exit status, its lines, and its end where they cannot be followed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.every import every
from toolchain.pulumi_run import pulumi_process


@every("terminals", [(True, True), (True, False), (False, True), (False, False)])
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
