"""Tags that would stand for two things are found, and those that cannot are not reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import stack_file
from tests.helpers.program_copy import copy_folders


def test_check_with_collision_fails(tmp_path: Path) -> None:
    copy_folders(tmp_path, "cli", "containers", "dockerfiles", "stacks", without=["Pulumi.*.yaml"])
    written = stack_file("base-cu121").read_text()
    stack_file("base-cu121", tmp_path).write_text(written)
    stack_file("other", tmp_path).write_text(written.replace("9.0+PTX", "9.0"))
    done = subprocess.run(
        [sys.executable, "-m", "stacks", "check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert line.startswith("stacks base-cu121 and other: torch, torch-extras would have equal tags in ")
