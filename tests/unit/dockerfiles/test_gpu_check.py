"""Torch's GPU checks on machines as they were measured, healthy and with planted faults, and on others made of these."""

from __future__ import annotations

import ctypes
import json
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.evidence import gpu_report
from stacks.config.gates.promotion_gate import GpuChecksConfig
from stacks.config.stack_file import ROOT
from tests.fakes import gpu_torch
from tests.fakes.gpu_torch import Machine
from tests.helpers import gpu_reports
from tests.helpers.every import every

CHECK = ROOT / "dockerfiles/torch/checks/gpu.py"


def machine(row: dict[str, Any]) -> Machine:
    operations = {
        name: {int(size): took for size, took in each.items()} for name, each in row.pop("operations").items()
    }
    return Machine(**{key: value for key, value in row.items() if key != "name"}, operations=operations)


ROWS = [json.loads(line) for line in Path(__file__).with_name("gpu_machines.jsonl").read_text().splitlines()]
MACHINES = {row["name"]: machine(row) for row in ROWS}
"""Two H100 with NVLink, and four, and four H200, of which three as well (torch 2.11.0, NCCL 2.28.9, driver 580.159.04),
with each fault and without.

``ring`` of the four H100 was measured on the first of them alone. What the check no longer measured on a busy GPU is of
the healthy machine.
"""
HARMLESS = {"NCCL_PROTO=Simple", "4 H200: NCCL_MAX_NCHANNELS=16"}
"""NCCL's protocol for large vectors costs nothing but at 1 MiB, and 16 of 24 channels 12 % at most from 4 MiB on."""
HEALTHY = [name for name in MACHINES if "healthy" in name or name in HARMLESS]


def driver(change: Callable[[object, str, object], None]) -> None:
    """Have a driver for CUDA 13.0 on this machine."""

    class Driver:
        def cuDriverGetVersion(self, number: Any) -> None:  # noqa: N802 - its name
            number._obj.value = 13000

    change(ctypes, "CDLL", lambda _: Driver())


class Run:
    """A run of the check: its last line, whether it failed, and what it measured."""

    def __init__(self, on: Machine, folder: Path, patch: pytest.MonkeyPatch, capsys: Any, **variables: str) -> None:
        with patch.context() as patched:
            for name, module in gpu_torch.modules(on).items():
                patched.setitem(sys.modules, name, module)
            driver(patched.setattr)
            for name, value in {"GPU_MEASUREMENTS": str(folder / "measured"), **variables}.items():
                patched.setenv(name, value)
            self.failure = ""
            try:
                runpy.run_path(str(CHECK), run_name="__main__")
            except SystemExit as end:
                self.failure = str(end.code)
        self.lines = capsys.readouterr().out.splitlines()
        self.measured: dict[str, Any] = {}
        for line in (folder / "measured").read_text().splitlines():
            self.measured |= json.loads(line)


def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda on, **variables: Run(on, tmp_path, monkeypatch, capsys, **variables)


run = pytest.fixture(runner, name="run")


@every("name", HEALTHY)
def test_healthy_machine_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    done = run(MACHINES[name])
    assert done.failure == ""
    assert re.fullmatch(
        rf"NCCL adds up right: 3[2345]\d GB/s bus bandwidth over {len(MACHINES[name].own)} GPUs; "
        r"one copies to another at 3[89]\d GB/s",
        done.lines[-1],
    )


A100 = {1: 63e-6, 2: 69e-6, 4: 86e-6, 8: 133e-6, 16: 189e-6, 32: 285e-6, 64: 537e-6, 128: 975e-6}
"""Seconds of an all-reduce over four A100 (rcgsheffield/sheffield_hpc at 50304ec, stanage/software/libs/cuda.rst)."""


def test_four_a100_pass(run: Any) -> None:
    """They wait longer than H100. Each two copy 260 GB/s in each direction (NVIDIA/nccl-tests#149)."""
    done = run(
        replace(
            FOUR,
            pairs=tuple(tuple((1 << 28) / 260e9 if a != b else 0 for b in range(4)) for a in range(4)),
            exchange=(1 << 30) / 260e9,
            ring=(1 << 30) / 260e9,
            operations={name: A100 if name == "all-reduce" else dict.fromkeys(A100, 1e-6) for name in FOUR.operations},
            memory=512 << 20,
        )
    )
    assert done.failure == ""


@every("name", [name for name in MACHINES if name not in HEALTHY])
def test_planted_fault_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    setting, count = name.rpartition(": ")[2], len(MACHINES[name].own)
    variable, _, value = setting.partition("=")
    done = run(MACHINES[name], **({variable: value} if value else {}))
    if value:
        pattern = (
            rf"NCCL is slow: \S+ of \d+ MiB over {count} GPUs moves \d+ GB/s of \d+ expected of GPUs that copy 3[89]\d "
            rf"to each other: \d\d% are lost, and too much in \d+ of 44 measurements; look at {setting}, .*nvidia-smi.*"
        )
    else:
        pattern = r"GPU [013] is slow: it .*, and GPU [012] .*: \d\d% are lost; look at .*nvidia-smi.*"
    assert re.fullmatch(pattern, done.failure)
    assert len(done.failure) < 300  # what a report keeps


@every("name", [name for name in MACHINES if "=" in name and name not in HEALTHY])
def test_forged_pass_of_slow_nccl_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    run_of = run(MACHINES[name])
    gpus = json.loads(gpu_reports.text("good"))["gpus"][:1] * len(MACHINES[name].own)
    report = gpu_report.parse(gpu_reports.text("good", measured=run_of.measured, gpus=gpus), "log")
    (line,) = gpu_report.violations(report, GpuChecksConfig())
    assert line.startswith("the report says PASSED, but ")


HEALTH = MACHINES["healthy"]


FOUR = MACHINES["4: healthy"]


def slower(machine: Machine, size: int, share: float) -> Machine:
    """Return a machine on which each operation loses a share of its rate on vectors of so many MiB."""
    return replace(
        machine,
        operations={name: {**took, size: took[size] / (1 - share)} for name, took in machine.operations.items()},
    )


@pytest.mark.parametrize("name", ["healthy", "4: healthy", "4 H200: healthy", "3 H200: healthy"])
@pytest.mark.parametrize(("size", "share", "slow"), [(1024, 0.15, 4), (256, 0.15, 4), (64, 0.25, 4), (1024, 0.1, 0)])
def test_loss_on_one_size_is_found_for_each_operation(run: Any, name: str, size: int, share: float, slow: int) -> None:
    failure = run(slower(MACHINES[name], size, share)).failure
    if slow:
        of = f"of {size} MiB over {len(MACHINES[name].own)} GPUs"
        assert re.match(rf"NCCL is slow: \S+ {of} moves .*: \d\d% are lost, and too much in {slow} of 44 ", failure)
    else:
        assert failure == ""


def test_accepted_loss_lets_a_slow_machine_pass_and_no_slower(run: Any) -> None:
    machine, gpus = MACHINES["4: NCCL_MAX_NCHANNELS=8"], json.loads(gpu_reports.text("good"))["gpus"] * 2
    assert "53% are lost" in run(machine, ACCEPTED_LOSS="0.5").failure
    done = run(machine, ACCEPTED_LOSS="0.55")
    assert done.failure == ""
    report = gpu_report.parse(gpu_reports.text("good", measured=done.measured, gpus=gpus), "log")
    # The machine that ran the checks does not say what its own promotion accepts.
    (line,) = gpu_report.violations(report, GpuChecksConfig())
    assert line.startswith("the report says PASSED, but ")
    assert [*gpu_report.violations(report, GpuChecksConfig.model_validate({"acceptedLoss": 0.55}))] == []


@every("share", ["0", "1", "-0.2", "nan", "15%"])
def test_accepted_loss_that_is_no_share_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], share: str
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    failure = run(HEALTH, ACCEPTED_LOSS=share).failure
    assert failure == f"ACCEPTED_LOSS is '{share}'; give a share between 0 and 1, such as 0.4, or leave it out"


def test_accepted_loss_excuses_no_slow_gpu(run: Any) -> None:
    assert run(MACHINES["4: GPU 3 busy"], ACCEPTED_LOSS="0.9").failure.startswith("GPU 3 is slow: ")


def test_one_gpu_passes_and_says_so(run: Any) -> None:
    done = run(replace(HEALTH, own=HEALTH.own[:1], products=HEALTH.products[:1], pairs=((0,),)))
    assert (done.failure, done.lines[-1]) == ("", "1 GPU: none to compare it with, and nothing for NCCL to add up")


def over_pcie(times: float) -> Machine:
    """Return GPUs that reach each other at 20 GB/s, and NCCL so many times slower than over NVLink."""
    rate = 20e9
    return replace(
        HEALTH,
        pairs=((0, (1 << 28) / rate), ((1 << 28) / rate, 0)),
        exchange=(1 << 30) / rate,
        wait=1e-3,
        operations={
            name: {size: took * times for size, took in each.items()} for name, each in HEALTH.operations.items()
        },
    )


@every("times", [20, 100])
def test_machine_without_nvlink_is_measured_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: float
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    done = run(over_pcie(times))
    assert done.failure == ""
    assert done.lines[-1].endswith("one copies to another at 20 GB/s; without NVLink, rates are not judged")
    assert done.measured["rates"]["broadcast"]["1024"] > 0


@pytest.mark.parametrize(
    ("machine", "failure"),
    [
        (
            replace(FOUR, own=(*FOUR.own[:3], FOUR.own[3] * 2)),
            "GPU 3 is slow: it copies 744 GB/s within its memory, and",
        ),
        (
            replace(FOUR, products=(FOUR.products[0] * 1.2, *FOUR.products[1:])),
            "GPU 0 is slow: it multiplies at 42.0 ",
        ),
        (
            replace(FOUR, pairs=tuple(tuple(1e-3 if 2 not in {a, b} else 1e-2 for b in range(4)) for a in range(4))),
            "GPU 2 is slow: it copies 27 GB/s to another, and GPU 0 copies 268 GB/s to another: 90% are lost; look at",
        ),
        (replace(HEALTH, wait=2e-3), "the GPUs are busy: a number takes 2000 microseconds from one to another, and at"),
        *((replace(HEALTH, wrong=name), f"GPU 0: NCCL's {name} is off by 7") for name in HEALTH.operations),
    ],
)
def test_fault_of_gpu_is_named(run: Any, machine: Machine, failure: str) -> None:
    assert run(machine).failure.startswith(failure)


@every(
    "machine",
    [
        # Two pairs with a bridge each, as of cards for PCIe.
        replace(
            FOUR,
            pairs=tuple(tuple(1e-3 if a // 2 == b // 2 else 1e-2 for b in range(4)) for a in range(4)),
            exchange=(1 << 30) / 30e9,
            ring=(1 << 30) / 30e9,
        ),
        # Links of their own between each two: a third of them leads to the next.
        replace(FOUR, exchange=FOUR.ring, ring=FOUR.ring * 3),
        replace(
            FOUR,
            names=("NVIDIA A100",) * 2 + ("NVIDIA A10",) * 2,
            own=(*FOUR.own[:2], *(took * 3 for took in FOUR.own[2:])),
        ),
        # NVLink's multicast: the switch adds up.
        replace(
            HEALTH,
            operations={
                **HEALTH.operations,
                "all-reduce": {k: t / 1.5 for k, t in HEALTH.operations["all-reduce"].items()},
            },
        ),
        replace(HEALTH, hiccup=13),
        replace(HEALTH, late=500),
    ],
)
def test_unusual_but_healthy_machine_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], machine: Machine
) -> None:
    run = runner(tmp_path, monkeypatch, capsys)
    assert run(machine).failure == ""


def test_small_memory_has_smaller_vectors(run: Any) -> None:
    done = run(replace(HEALTH, memory=(1 << 30) + 5))
    assert done.failure == ""
    assert max(map(int, done.measured["rates"]["all-gather"])) == 256
    assert done.measured["busBandwidth"] == done.measured["rates"]["all-reduce"]["256"]
