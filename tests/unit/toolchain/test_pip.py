"""Environments of Python on this machine and in images."""

from __future__ import annotations

from stacks.config.stack_file import ROOT
from toolchain.machine import pip


def test_environment_gets_pip_as_in_an_image() -> None:
    assert pip._SEED in (ROOT / "dockerfiles/common/layers/pip-venv").read_text()
