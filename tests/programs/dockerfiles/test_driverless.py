"""What the checks of images do without a GPU: Triton, which asks for its driver too early, gets one that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every

CHECKS = ROOT / CONTEXT / "common/checks"
DRIVER = """\
class Config:
    @property
    def active(self):
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    def set_active(self, given):
        Config.active = given


driver = Config()
"""
"""The driver of Triton 3.2 where there is no GPU, as far as its autotuner asks."""


def imported(code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_tuned_kernel_is_decorated_without_gpu(tmp_path: Path) -> None:
    (tmp_path / "triton/runtime").mkdir(parents=True)
    (tmp_path / "triton/__init__.py").touch()
    (tmp_path / "triton/runtime/__init__.py").write_text(DRIVER)
    code = "from triton.runtime import driver; driver.active.get_benchmarker(); print('decorated')"
    assert "0 active drivers" in imported(code, tmp_path).stderr
    done = imported(code, CHECKS, tmp_path)
    assert (done.stdout, done.stderr) == ("decorated\n", "")


@every("code", ["", "import triton"])
def test_driverless_without_triton_changes_nothing(code: str) -> None:
    done = imported(code, CHECKS)
    assert done.stderr.count("Error") == bool(code)
