"""The script that runs an image's GPU checks and reports what they measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oci.evidence import gpu_report
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT

SCRIPT = ROOT / CONTEXT / "common/gpu/report.py"
IMAGE = f"r.example/acme/torch@sha256:{'a' * 64}"
CHECKS = """
import json, os, sys
log = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", "1")
with open(log, "w") as file:
    print("node:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", file=file)
    print("node:1:2 [0] NCCL INFO Using network Socket", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", file=file)
with open(os.environ["GPU_MEASUREMENTS"], "a") as file:
    print(json.dumps({"busBandwidth": 1.5, "kernels": ["b"]}), file=file)
    print(json.dumps({"busBandwidth": 2.5, "kernels": ["a", "b"]}), file=file)
print("all is well")
"""


def run(folder: Path, code: str, file: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "gpu.py").write_text(code)
    variables = {"PATH": os.environ["PATH"], "CHECKED_IMAGE": IMAGE, "NODE_PROFILE": "eks-p5", "GPU_REPORT": file}
    words = [sys.executable, str(SCRIPT), sys.executable, str(folder / "gpu.py")]
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


def test_report_follows_the_output_of_the_checks(tmp_path: Path) -> None:
    done = run(tmp_path, CHECKS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("all is well\n{")
    report = gpu_report.parse(done.stdout, "log")
    assert (report.result, report.image, report.profile) == ("PASSED", IMAGE, "eks-p5")
    assert report.checks == ("all is well",)
    assert (report.measured.bus_bandwidth, report.measured.kernels) == (2.5, ("a", "b"))
    assert report.nccl == gpu_report.Nccl(
        version="2.28.9+cuda13.0", networks=("Socket",), transports=("NET/IB", "P2P/CUMEM", "SHM/direct")
    )


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("sys.exit('NCCL is slow')", "NCCL is slow"),
        ("print('rank 1: slow\\n=====', file=sys.stderr); sys.exit(1)", "rank 1: slow"),
        ("os._exit(7)", "exit status 7"),
    ],
)
def test_failed_checks_are_reported_and_fail(tmp_path: Path, end: str, failure: str) -> None:
    file = tmp_path / "report.json"
    done = run(tmp_path, CHECKS + end, str(file))
    assert done.returncode == (7 if "7" in end else 1)
    assert "gpuChecks" not in done.stdout
    report = gpu_report.parse(file.read_text(), "log")
    assert (report.result, report.failure, report.measured.bus_bandwidth) == ("FAILED", failure, 2.5)


def test_checks_that_cannot_be_run_are_one_line() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "no-such-program"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "report.py: no-such-program cannot be run: No such file or directory\n",
    )
