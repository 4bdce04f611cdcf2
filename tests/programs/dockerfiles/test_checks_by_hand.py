"""Checks of wheels that are started by hand, without the arguments that the build gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every

CHECKS = sorted((ROOT / CONTEXT / "wheels/checks").iterdir())


@every("check", CHECKS)
def test_check_of_wheel_without_its_arguments_names_them(check: Path) -> None:
    process = subprocess.run([sys.executable, check], env={}, capture_output=True, text=True, check=False)
    (line,) = process.stderr.splitlines()
    assert process.returncode == 1
    assert line.startswith("set ")
    assert line.endswith(", as dockerfiles/wheels/Dockerfile describes")
