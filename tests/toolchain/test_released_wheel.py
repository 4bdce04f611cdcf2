"""A released wheel in an environment of its own, and a repository that it makes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.toolchain.clone import ROOT


def test_wheel_makes_a_repository_whose_stack_is_ok(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path / "home")}

    def run(*words: str, folder: Path = tmp_path) -> str:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python = sys.executable
    run(python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}", str(ROOT))
    (wheel,) = tmp_path.glob("slipway-*.whl")
    run(python, "-m", "venv", "slipway")
    run("slipway/bin/pip", "install", f"./{wheel.name}")
    assert "a repository with Slipway" in run("slipway/bin/slipway", "init", "team")
    team = tmp_path / "team"
    assert "local: 2 images, ok" in run("../slipway/bin/slipway", "check", folder=team)
    assert "torch -> trainer" in run("../slipway/bin/slipway", "list", folder=team)
    assert "trainer" in run("../slipway/bin/slipway", "show", "local", folder=team)
    assert not (team / "dockerfiles").exists()
