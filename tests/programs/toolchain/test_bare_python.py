"""The first commands of a fresh checkout: they run before any package is installed."""

import signal
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from tests.helpers.every import every
from toolchain.parts import python_env


@every("module", ["toolchain.verbs", "tests.helpers.disk_space"])
def test_module_imports_without_packages(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {module}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_the_command_imports_has_no_traceback(tmp_path: Path) -> None:
    module = tmp_path / "cli" / "main.py"
    module.parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('went on')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{python_env._COMMAND}"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
