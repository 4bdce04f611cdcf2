"""The bytecode that steps of a build run pip with: of pip, and for its source alone."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks.config.stack_file import ROOT

SCRIPT = ROOT / "dockerfiles/common/layers/pip-bytecode"


def source_of(prefix: Path, compiled: Path) -> Path:
    """Return the module that a file of bytecode is of."""
    return Path("/", compiled.relative_to(prefix)).with_name(f"{compiled.name.partition('.')[0]}.py")


def test_pip_starts_from_bytecode_of_its_source_alone(tmp_path: Path) -> None:
    """Flags and hash as PEP 552 has them: 3 is a hash that Python checks. One test, as compiling pip takes seconds.

    The environment is that of a parent image which lets Python write no bytecode.
    """
    prefix = tmp_path / "prefix"
    parent = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "parent"), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, SCRIPT, prefix], check=True, env=parent)
    bytecode = sorted(prefix.rglob("*.pyc"))
    for compiled in bytecode:
        source = source_of(prefix, compiled).read_bytes()
        assert compiled.read_bytes()[4:16] == b"\3\0\0\0" + importlib.util.source_hash(source), compiled
    names = {str(source_of(prefix, compiled)) for compiled in bytecode}
    for module in ("pip/_internal/operations/install/wheel", "email/parser"):
        assert [name for name in names if name.endswith(f"/{module}.py")], module
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(prefix), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-v", "-m", "pip", "install", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    loaded = re.findall(r"# code object from '(\S+)'", done.stderr)
    assert loaded
    assert not [path for path in loaded if not path.startswith(f"{prefix}/")]


def test_folder_exists_before_pip_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would make a missing folder of / below the working directory, and write no bytecode.

    No test may write to /, so this one looks when pip would start.
    """
    prefix, was_folder = tmp_path / "above/prefix", []

    def start(_: list[str], **__: Any) -> None:
        was_folder.append(prefix.is_dir())

    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(prefix)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert was_folder == [True]
