"""The batch script for Slurm: what it starts on the nodes, by stand-ins for Slurm's programs that say how they are called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.stack_file import read_stack
from stacks.jobs import slurm
from tests.helpers.every import every

JOB = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
}


def written(stack: str, image: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the script of a stack in a folder with its squashfs, as `slipway job` prints it."""
    assert main(["job", stack, "--slurm"]) == 0
    (folder / f"{image}.sqsh").touch()
    path = folder / f"{stack}.sbatch"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    return written("base-cu121", "torch-extras", tmp_path, capsys)


def run(script: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    programs = script.parent / "bin"
    programs.mkdir()
    for name, says in (("scontrol", 'printf "gpu07\\ngpu08\\n"'), ("srun", "printf '%s\\n' \"$@\"")):
        (programs / name).write_text(f"#!/bin/sh\n[ $# -gt 0 ] && {says}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(script.parent), **JOB, **more}
    return subprocess.run(["bash", script, *arguments], env=environment, capture_output=True, text=True, check=False)


@every(
    "stack, image",
    [
        ("base-cu121", "torch-extras"),
        ("universal-cu102", "train"),  # torch 1.9.1 has no torchrun, and takes no option with dashes
        ("universal-cu113", "train"),
        ("universal-cu132", "train"),
    ],
)
def test_slurm_node_runs_torchrun_and_meets_at_the_first(
    stack: str, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completed = run(written(stack, image, tmp_path, capsys), "train.py", "--name", "a b")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines() == [
        "--kill-on-bad-exit=1",
        f"--container-image={tmp_path}/{image}.sqsh",
        f"--container-mounts={tmp_path}:/workspace",
        "--container-workdir=/workspace",
        *("python", "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "gpu"),
        *("--rdzv_id", "1234567", "--rdzv_backend", "c10d", "--rdzv_endpoint", "gpu07:24567"),
        *("train.py", "--name", "a b"),
    ]


def test_slurm_stack_without_cuda_is_one_line() -> None:
    values = {**read_stack("universal-cu113"), "cuda": False, "cudnn": None, "archList": None}
    planned = plan.make("universal-cu113", values)
    with pytest.raises(SlipwayError) as caught:
        slurm.script(planned, planned.image(), 2)
    assert str(caught.value) == (
        "stack universal-cu113: slipway:cuda: 'false': a job runs a process on each GPU, and the images have no "
        "CUDA; choose a stack that has it"
    )


def test_slurm_missing_squashfs_is_refused(script: Path, tmp_path: Path) -> None:
    completed = run(script, "train.py", IMAGE=f"{tmp_path}/none.sqsh")
    assert completed.returncode == 2
    assert completed.stderr.startswith(f"{tmp_path}/none.sqsh: there is no such squashfs on ")
    assert completed.stdout == ""


def test_slurm_without_script_prints_usage(script: Path) -> None:
    completed = run(script)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == "usage: sbatch base-cu121.sbatch SCRIPT [ARGUMENT...]\n"


@every("stack", ["local", "nccl-cu132", "universal-cu113"])
def test_slurm_script_passes_shellcheck_and_has_its_nodes(stack: str, tmp_path: Path) -> None:
    planned = plan.make(stack)
    text = slurm.script(planned, planned.image(), 3)
    assert "#SBATCH --nodes=3\n" in text
    (tmp_path / "job").write_text(text)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    completed = subprocess.run([shellcheck, tmp_path / "job"], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (0, "")


@every("nodes, gpus", [("aks-ndv5", 8), ("aks-gb300", 4)])
def test_slurm_node_has_the_gpus_of_its_kind(nodes: str, gpus: int) -> None:
    values = {**read_stack("aks-megatron"), "nodes": nodes}
    if nodes == "aks-gb300":
        values["platform"] = "linux/arm64"
    planned = plan.make("aks-megatron", values)
    assert f"#SBATCH --gpus-per-node={gpus}\n" in slurm.script(planned, planned.image(), 2)


def test_slurm_no_node_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "local", "--slurm", "--nodes", "0"]) == 1
    assert capsys.readouterr().err == "--nodes 0: give 1 or more\n"


def test_slurm_script_takes_the_platform_of_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    script = ["job", "nccl-cu132-multi", "--slurm"]
    for words, image in (([], "torch-extras-amd64"), (["--platform", "linux/arm64"], "torch-extras-arm64")):
        assert main([*script, *words]) == 0
        assert f"slipway export nccl-cu132-multi {image} --format sqsh" in capsys.readouterr().out
    assert main([*script, "--platform", "linux/s390x"]) == 1
    assert capsys.readouterr().err == (
        "stack nccl-cu132-multi: torch-extras is for linux/amd64 and linux/arm64, not for linux/s390x\n"
    )
