"""What the recipes of wheels share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT

SETUP = 'flags = ["-O3", "-std=c++17"]\n"cxx": ["-std=c++17", "-g"],\n'


def mended(folder: Path, torch: str, pattern: str) -> str:
    """Return what `torch_standard` makes of `SETUP` where this torch is installed."""
    (folder / f"torch-{torch}.dist-info").mkdir()
    (folder / f"torch-{torch}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    (folder / "setup.py").write_text(SETUP)
    (folder / "python").symlink_to(sys.executable)
    script = '. "${0%/*}/recipe"; torch_standard "$1" "$2"'
    command = ["sh", "-euc", script, str(ROOT / "dockerfiles/wheels/build"), str(folder / "setup.py"), pattern]
    path = f"{folder}:{os.environ['PATH']}"
    environment = {"COMPONENT": "flash-attention", "VERSION": "", "PATH": path, "PYTHONPATH": str(folder)}
    subprocess.run(command, check=True, env=environment)
    return (folder / "setup.py").read_text()


@pytest.mark.parametrize("torch", ["2.0.1", "2.9.1+cu129", "2.11.0"])
def test_cxx_standard_with_older_torch_is_kept(tmp_path: Path, torch: str) -> None:
    assert mended(tmp_path, torch, "") == SETUP


@pytest.mark.parametrize("torch", ["2.12.0", "2.15.0+cu132", "3.0.0"])
def test_cxx_standard_with_newer_torch_is_that_of_torch(tmp_path: Path, torch: str) -> None:
    assert mended(tmp_path, torch, "") == SETUP.replace("17", "20")


def test_cxx_standard_changes_matching_lines_alone(tmp_path: Path) -> None:
    assert mended(tmp_path, "2.15.0", '"cxx":').splitlines() == [
        'flags = ["-O3", "-std=c++17"]',
        '"cxx": ["-std=c++20", "-g"],',
    ]
