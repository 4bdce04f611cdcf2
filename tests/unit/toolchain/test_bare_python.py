"""The first commands of a fresh checkout: they run before any package is installed."""

import subprocess
import sys

import pytest

from stacks.config.stack_file import ROOT


@pytest.mark.parametrize("module", ["toolchain.verbs", "tests.helpers.disk_space"])
def test_module_imports_without_packages(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {module}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
