"""Environments of Python on this machine and in images."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from toolchain.machine import pip
from toolchain.machine.toolchain_error import ToolchainError

RETRIED = "WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError()': /simple/x/"
MISMATCH = "Got        5f2e"
MISSING = "ERROR: No matching distribution found for x==1"


def failing(folder: Path, *lines: str) -> Path:
    """Make a pip that prints these lines and fails."""
    program = folder / "interpreter"
    program.write_text("#!/bin/sh\ncat << 'END'\n" + "\n".join(lines) + "\nEND\nexit 1\n")
    program.chmod(0o755)
    return program


def test_warning_of_a_retry_hides_no_other_failure(tmp_path: Path) -> None:
    for lines, expected in (
        ((RETRIED, MISMATCH), MISMATCH),
        ((RETRIED, MISSING), r"^pip does not reach the index: 'ReadTimeoutError\(\)'"),
        ((MISSING,), MISSING),
    ):
        with pytest.raises(ToolchainError, match=expected):
            pip.install(failing(tmp_path, *lines), tmp_path / "lock", tmp_path / "log")


def test_download_by_an_address_names_no_index(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=MISSING):
        pip.download(failing(tmp_path, RETRIED, MISSING), "https://h/x.whl", tmp_path, tmp_path / "log")


def test_environment_gets_pip_as_in_an_image() -> None:
    assert pip._SEED in (ROOT / "dockerfiles/common/layers/pip-venv").read_text()
