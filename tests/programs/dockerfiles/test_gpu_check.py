"""Torch's GPU checks whose process ends in the middle of an operation."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stacks.config.stack_file import ROOT
from tests.unit.dockerfiles.test_gpu_check import CHECK


@pytest.mark.slow
def test_operation_that_hangs_fails_in_one_line() -> None:
    """As the broadcast of aws-ofi-nccl 1.18.0 does."""
    program = f"""
import runpy, sys, time
from tests.fakes import gpu_torch
from tests.unit.dockerfiles.test_gpu_check import CHECK, HEALTH, driver
sys.modules.update(gpu_torch.modules(HEALTH))
driver(setattr)
sys.modules["torch.cuda.nccl"].broadcast = sys.modules["torch.cuda"].nccl.broadcast = lambda _: time.sleep(1000)
runpy.run_path("{CHECK}", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "NCCL's broadcast over 2 GPUs has not ended after 120 s\n")
