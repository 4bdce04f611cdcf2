"""Environments of Python on this machine and in images."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.machine import pip


def test_link_to_another_environment_is_replaced_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "_SEED", "")  # its own pip takes seconds
    shared = tmp_path / "shared"
    (shared / "bin").mkdir(parents=True)
    (tmp_path / "venv").symlink_to(shared)
    pip.environment(tmp_path / "venv", tmp_path / "venv.log")
    assert (shared / "bin").is_dir()
    assert (tmp_path / "venv/bin/python").exists()
    assert not (tmp_path / "venv").is_symlink()
