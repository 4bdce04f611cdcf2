"""The table of torch's features: written by a program that stands in for a Python with torch, and read by stacks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from maintenance.refresh import torch_features
from tests.helpers.every import every
from tests.unit.cli.test_torch_features import python


def test_read_release_is_added_and_others_stay(tmp_path: Path) -> None:
    output = tmp_path / "features.toml"
    output.write_text('["2.1.0"]\nsource = "a wheel"\ngpu = ["cuda"]\ncpu = []\n')
    says = "case $2 in --list) echo gpu magma nccl; echo cpu mkl ;; *) echo torch 2.0.0+cu118, CUDA 11.8, abc ;; esac"
    torch_features.main(["2.0.0", "--python", python(tmp_path, says), "--output", str(output)])
    rows = tomllib.loads(output.read_text())
    assert list(rows) == ["2.0.0", "2.1.0"]
    assert rows["2.0.0"] == {"source": "torch 2.0.0+cu118, CUDA 11.8, abc", "gpu": ["magma", "nccl"], "cpu": ["mkl"]}
    assert rows["2.1.0"] == {"source": "a wheel", "gpu": ["cuda"], "cpu": []}


def test_torch_that_does_not_import_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "features.toml"
    with pytest.raises(SystemExit, match="has no torch that works: no such module; nothing was written"):
        torch_features.main(
            ["2.0.0", "--python", python(tmp_path, "echo no such module >&2; exit 1"), "--output", str(output)]
        )
    assert not output.exists()


TORCH = """\
__version__ = "2.15.0"
float32 = float64 = complex64 = complex128 = None
class backends:
    class mkl:
        is_available = staticmethod(lambda: True)
    class mkldnn:
        is_available = staticmethod(lambda: False)
"""
"""A torch with MKL and without oneDNN."""


@every(
    "words, output, code",
    [
        ("mkl -mkldnn", "1 features of the published wheel\noff, as slipway:cmake says so: mkldnn\n", 0),
        ("-mkldnn", "no published wheel of this release was read\noff, as slipway:cmake says so: mkldnn\n", 0),
        ("mkldnn", "torch 2.15.0 lacks what the published wheel of its release has: mkldnn\n", 1),
        ("-mkl", "torch 2.15.0 has what slipway:cmake switches off: mkl\n", 1),
        ("mkl +mkl", "1 features of the published wheel\non, as slipway:cmake says so: mkl\n", 0),
        ("+mkl", "no published wheel of this release was read\non, as slipway:cmake says so: mkl\n", 0),
        ("mkl +mkldnn", "torch 2.15.0 lacks what slipway:cmake switches on: mkldnn\n", 1),
        ("+cuddles", "FEATURES names what this check cannot try: cuddles\n", 1),
        ("-cuddles", "FEATURES names what this check cannot try: cuddles\n", 1),
    ],
)
def test_check_holds_torch_against_its_features(tmp_path: Path, words: str, output: str, code: int) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    done = subprocess.run(
        [sys.executable, torch_features.PROBE],
        env={"PYTHONPATH": str(tmp_path), "FEATURES": words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout + done.stderr, done.returncode) == (output, code)
