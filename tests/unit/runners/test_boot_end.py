"""What a machine on EC2 does each minute to end itself, by the script itself: the keeper, GitHub and AWS are asked nothing.

And what it says and does where its disk is full.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from components.runners.ec2.user_data import _BOOT

SYSTEMCTL = """#!/bin/sh
case $1 in
  is-active) [ -e "$ROOT/active" ] ;;
  *) echo "$*" >>"$ROOT/calls" ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a machine whose runner is to be up in 20 minutes and to have a job in 10."""
    for folder in ("etc/slipway", "proc", "run/systemd/shutdown", "opt/runner/_diag", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/slipway/runner.env").write_text("BOOT=20\nIDLE=10\n")
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    return tmp_path


def calls(root: Path, minutes: int, *files: str, up: int = 60, log: str = os.devnull) -> str:
    """Run the script some minutes after the machine's start, the runner being up for ``up``; return what it does."""
    (root / "proc/uptime").write_text(f"{minutes * 60 + 5}.07 1.0\n")
    for file in files:
        (root / file).touch()
    if (root / "active").exists():
        (root / "run/slipway-started").touch()
        os.utime(root / "run/slipway-started", (time.time() - up * 60,) * 2)
    script = (_BOOT / "end").read_text().replace("/etc/slipway/runner.env", f"{root}/etc/slipway/runner.env")
    environment = {"PATH": f"{root / 'bin'}:/usr/bin:/bin", "ROOT": str(root)}
    with Path(log).open("w") as output:
        subprocess.run(["bash", "-c", script], env=environment, check=True, stdout=output)
    return (root / "calls").read_text().strip() if (root / "calls").exists() else ""


@pytest.mark.parametrize(("minutes", "expected"), [(22, ""), (23, "poweroff"), (600, "poweroff")])
def test_machine_without_a_runner_ends_after_boot(root: Path, minutes: int, expected: str) -> None:
    assert calls(root, minutes) == expected


@pytest.mark.parametrize(
    ("minutes", "up", "expected"),
    [(12, 9, ""), (13, 9, "stop slipway-runner"), (30, 2, ""), (30, 5, "stop slipway-runner")],
)
def test_machine_without_a_job_ends_after_idle(root: Path, minutes: int, up: int, expected: str) -> None:
    assert calls(root, minutes, "active", up=up) == expected


def test_machine_with_a_job_is_never_ended_by_itself(root: Path) -> None:
    assert calls(root, 5000, "active", "opt/runner/_diag/Worker_20260101-000000-utc.log") == ""


def test_machine_after_its_job_has_its_end_scheduled(root: Path) -> None:
    assert calls(root, 5000, "run/systemd/shutdown/scheduled") == ""


def test_runner_just_up_has_its_time_from_then_on(root: Path) -> None:
    (root / "active").touch()
    (root / "run/slipway-started").unlink(missing_ok=True)
    (root / "proc/uptime").write_text("3600.0 1.0\n")
    assert not (root / "run/slipway-started").exists()
    assert calls(root, 60, up=0) == ""


def test_machine_with_a_full_disk_ends_all_the_same(root: Path) -> None:
    """Its log is on that disk. The keeper replaces it before, as it does any machine on which no runner comes up."""
    assert calls(root, 23, log="/dev/full") == "poweroff"
    assert calls(root, 30, "active", up=5, log="/dev/full").endswith("stop slipway-runner")


@pytest.mark.parametrize(
    ("room", "line"), [("0 9 9 /", "the disk is full: /"), ("9999 0 9 /var/log", "the disk is full: /var/log")]
)
def test_setup_on_a_full_disk_says_so_on_the_console(root: Path, room: str, line: str) -> None:
    """Of its log there is nothing left to read."""
    for name, does in {
        "df": f"printf 'Avail IFree Inodes Mounted on\\n9999 0 0 /tmp\\n{room}\\n{room}\\n'",
        "nvidia-smi": "exit 1",
    }.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (root / "bin" / name).chmod(0o755)
    script = (_BOOT / "setup").read_text().replace("/etc/slipway/runner.env", f"{root}/etc/slipway/runner.env")
    script = script.replace("/dev/console", f"{root}/console")
    environment = {"PATH": f"{root / 'bin'}:/usr/bin:/bin", "GPUS": "1"}
    with Path("/dev/full").open("w") as log:
        done = subprocess.run(
            ["bash", "-c", script], env=environment, stdout=log, stderr=subprocess.DEVNULL, check=False
        )
    assert done.returncode != 0
    assert (root / "console").read_text().strip().endswith(f"slipway: error: {line}")
