"""The check that torch in the image `serve` is the parent's: a list of files that is as it was says nothing of a file."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT

CHECK = ROOT / CONTEXT / "serve/checks/build/10-torch.py"
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"


def installed(site: Path, name: str, version: str, *files: str) -> str:
    """Write a package as pip installs it; return its line in the list of what is held."""
    place = f"{name.replace('-', '_')}-{version}.dist-info"
    rows = []
    for file in (*files, f"{place}/METADATA"):
        content = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.append(f"{file},sha256={digest},{len(content)}\n")
    # What pip compiles has no digest, and what bytecode a wheel has is made anew.
    rows += [f"{name}/__pycache__/gone.pyc,,\n", f"{name}/gone.pyc,sha256=gone,4\n"]
    record = "".join([*rows, f"{place}/RECORD,,\n"])
    (site / place / "RECORD").write_text(record)
    return f"{name}=={version} {hashlib.sha256(record.encode()).hexdigest()}\n"


def checked(folder: Path, held: str) -> str:
    (folder / "held").write_text(held)
    code = CHECK.read_text().replace("/media/held", str(folder / "held"))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stdout or done.stderr


@pytest.fixture
def held(tmp_path: Path) -> str:
    return installed(tmp_path, "torch", "2.14.0", "torch/lib/libtorch.so") + installed(
        tmp_path, "nvidia-nccl-cu13", "2.30.7", LIBRARY
    )


def test_held_packages_as_in_the_parent_pass(tmp_path: Path, held: str) -> None:
    assert checked(tmp_path, held) == "2 packages are as they were\n"


def test_overwritten_file_of_a_held_package_is_refused(tmp_path: Path, held: str) -> None:
    (tmp_path / LIBRARY).write_text("another NCCL")
    assert checked(tmp_path, held) == f"nvidia-nccl-cu13 2.30.7: {LIBRARY} is not that of the parent\n"


def test_missing_file_of_a_held_package_is_refused(tmp_path: Path, held: str) -> None:
    (tmp_path / LIBRARY).unlink()
    assert checked(tmp_path, held) == f"nvidia-nccl-cu13 2.30.7: {LIBRARY} is not that of the parent\n"


def test_other_list_of_files_is_refused(tmp_path: Path, held: str) -> None:
    installed(tmp_path, "torch", "2.14.0", "torch/lib/libtorch.so", "torch/lib/more.so")
    assert checked(tmp_path, held) == "torch 2.14.0: its files are not those of the parent\n"
