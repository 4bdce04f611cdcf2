"""The script that runs an image's GPU checks and reports what they measured."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from cli.startup import in_container
from containers.evidence import gpu_report
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.fakes import compiling_torch, distributed_torch
from tests.helpers.every import every

SCRIPT = ROOT / CONTEXT / "common/gpu/report.py"
LOGS = Path(__file__).with_name("nccl_logs")
IMAGE = f"r.example/acme/torch@sha256:{'a' * 64}"
CHECKS = """
import json, os, sys
log = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", "1")
with open(log, "w") as file:
    print("node:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", file=file)
    print("node:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)", file=file)
    print("node:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2", file=file)
    print("node:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 2.1", file=file)
    print("node:1:2 [0] NCCL INFO NET/Plugin : Loaded coll plugin SHARP (v6)", file=file)
    print("node:1:2 [0] NCCL INFO TUNER/Plugin: Failed to find ncclTunerPlugin_v2 symbol.", file=file)
    print("node:1:2 [0] NCCL INFO Using network Socket", file=file)
    print("node:1:2 [0] NCCL INFO CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA", file=file)
    print("node:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", file=file)
with open(os.environ["GPU_MEASUREMENTS"], "a") as file:
    print(json.dumps({"busBandwidth": 1.5, "kernels": ["b"]}), file=file)
    print(json.dumps({"busBandwidth": 2.5, "kernels": ["a", "b"]}), file=file)
print("all is well")
"""


def run(folder: Path, code: str, file: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "gpu.py").write_text(code)
    variables = {
        "PATH": os.environ["PATH"],
        "CHECKED_IMAGE": IMAGE,
        "NODE_PROFILE": "eks-p5",
        "GPU_REPORT": file,
        **more,
    }
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
        version="2.28.9+cuda13.0",
        plugins=("Libfabric (v10)", "SHARP (v6)", "aws-ofi-nccl 1.16.2"),
        networks=("Socket",),
        transports=("COLLNET/SHARP", "NET/IB", "P2P/CUMEM", "SHM/direct"),
    )


WARM = "/opt/slipway/warm/0123456789abcdef/inductor"


def first_step(folder: Path, code: str = "", **more: str) -> gpu_report.FirstStep:
    packages = str(compiling_torch.write(folder / "packages"))
    done = run(folder, code, PYTHONPATH=packages, TMPDIR=str(folder), **more)
    assert not [path for path in folder.iterdir() if path.name not in {"gpu.py", "packages"}], "it leaves no caches"
    return gpu_report.parse(done.stdout, "log").measured.first_step


@every("mine, caches", [("", "empty"), ("/tmp", "empty"), (WARM, "warm layer")])
def test_first_compiled_step_names_its_caches(tmp_path: Path, mine: str, caches: str) -> None:
    """What a user has set may have caches in it. The image's Python sets the folder of a warm layer that fits."""
    begins = mine if caches == "warm layer" else str(tmp_path)
    step = first_step(tmp_path, TORCHINDUCTOR_CACHE_DIR=mine, STUB_CACHES=begins)
    assert step.seconds is not None
    assert (step.caches, step.missing) == (caches, "")


@every(
    "fault, missing",
    [
        ("no compiler", "no C compiler"),
        ("no GPU", "torch sees no GPU"),
        ("off", "RuntimeError: torch.compile compiled nothing"),
        ("old", "torch 2.11.0 has no torch.compiler.is_compiling"),
        ("crash", "its process ended with status -6"),
    ],
)
def test_first_step_that_was_not_taken_says_why(tmp_path: Path, fault: str, missing: str) -> None:
    assert first_step(tmp_path, STUB_COMPILE=fault) == gpu_report.FirstStep(missing=missing)


@every("header", [True, False])
def test_failed_compiler_without_headers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, header: bool
) -> None:
    """gcc's own message is not in the error that torch raises."""
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    file, error = tmp_path / "Python.h", "CalledProcessError: Command '['gcc']' returned non-zero exit status 1."
    if header:
        file.touch()
    reason = runpy.run_path(str(SCRIPT))["reason"](RuntimeError(error))
    assert reason == (f"RuntimeError: {error}" if header else f"no {file}")
    assert runpy.run_path(in_container.__file__)["lacking"](error) == ("" if header else f"no {file}")


def test_no_first_step_without_torch_or_after_failure(tmp_path: Path) -> None:
    report = gpu_report.parse(run(tmp_path, "").stdout, "log")
    assert (report.result, report.measured.first_step.missing) == ("PASSED", "no torch")
    assert first_step(tmp_path, "raise SystemExit(1)").missing == "the checks failed"


TORCHRUN = """
import os, subprocess, sys
logs = sys.argv[2:]
variables = {"WORLD_SIZE": str(len(logs)), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
ranks = [
    subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, **variables, "RANK": str(rank), "STUB_LOG": log})
    for rank, log in enumerate(logs)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
"""In place of torchrun: a process of the checks for each log that NCCL writes in it."""
SOCKET = (LOGS / "net.log").read_text()
EFA = (LOGS / "efa-training.log").read_text()
INFINIBAND = """\
node:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin IBext_v8 (v8)
node:1:2 [0] NCCL INFO Using network IBext_v8
node:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 11[3] [send] via NET/IBext_v8/3/GDRDMA
"""


def checked(folder: Path, image: str, *logs: str, report: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """Run an image's GPU checks, with a process for each log and ``more`` variables; with ``report`` by the script."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(distributed_torch.write(folder / "packages")),
        "PYTHONDONTWRITEBYTECODE": "1",  # compiled modules beside the checks would be files of theirs
        **more,
    }
    (folder / "torchrun.py").write_text(TORCHRUN)
    checks = [sys.executable, str(folder / "torchrun.py"), str(ROOT / CONTEXT / image / "checks/gpu.py"), *logs]
    words = [sys.executable, str(SCRIPT), *checks] if report else checks
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


@every(
    "image, log, plugin, network",
    [("efa", EFA, "aws-ofi-nccl 1.13.2-aws", "Libfabric"), ("megatron", INFINIBAND, "IBext_v8 (v8)", "IBext_v8")],
)
def test_report_of_image_has_plugin_and_transports(
    tmp_path: Path, image: str, log: str, plugin: str, network: str
) -> None:
    """These checks judge NCCL's log too, and once had it to themselves."""
    nccl = gpu_report.parse(checked(tmp_path, image, log).stdout, "log").nccl
    assert (nccl.plugins, nccl.networks, nccl.transports) == ((plugin,), (network,), (f"NET/{network}",))


@every("image", ["efa", "megatron"])
def test_checks_with_measurements_alone_have_own_log(tmp_path: Path, image: str) -> None:
    """Whoever wants the measurements without a report names no log."""
    done = checked(tmp_path, image, SOCKET, report=False, GPU_MEASUREMENTS=str(tmp_path / "measured"))
    assert "rank 0: " in done.stderr
    assert "Traceback" not in done.stderr


@every("name", ["all-reduce", "broadcast", "all-gather", "reduce-scatter"])
@every("image", ["efa", "megatron"])
def test_wrong_result_of_operation_fails_by_name(tmp_path: Path, image: str, name: str) -> None:
    done = checked(tmp_path, image, SOCKET, report=False, STUB_WRONG=name)
    assert done.returncode == 1
    assert any(re.match(rf"rank 0: {name} .*is off by 7$", line) for line in done.stderr.splitlines())


@every("report", [True, False])
def test_each_process_of_checks_judges_its_own_log(tmp_path: Path, *, report: bool) -> None:
    done = checked(tmp_path, "efa", EFA, SOCKET, report=report)
    assert done.returncode == 1
    assert "rank 0: bionemo-esm2-worker-0:53: aws-ofi-nccl 1.13.2-aws, provider efa, 1 devices\n" in done.stdout
    faults = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    assert faults
    assert all("rank 1: " in line and "uses the network Socket, not EFA" in line for line in faults)
    if report:
        parsed = gpu_report.parse(done.stdout, "log")
        assert parsed.nccl.networks == ("Libfabric", "Socket")
        assert parsed.networks == {"efa", "Socket"}


@every(
    "end, failure",
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
