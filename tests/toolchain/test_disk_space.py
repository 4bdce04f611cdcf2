"""A disk that is too small for the tests: said before they begin, and at the end of a run that has filled it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT
from tests.helpers.needs import mounting

FILLING = """\
import os, pathlib, pytest, tempfile
@pytest.mark.parametrize("number", range(100))
def test(number):
    pathlib.Path(tempfile.gettempdir(), str(number)).write_bytes(os.urandom(1 << 20))
"""


def on_small_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose temporary files have a disk of 8 MB."""
    mount = 'mount -t tmpfs -o size=8m tmpfs "$TMPDIR" && exec "$@"'
    return subprocess.run(
        [*mounting(), "sh", "-c", mount, "sh", *command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_test_on_small_disk_says_so_and_goes_on(tmp_path: Path) -> None:
    next_step = "toolchain=echo next step && false"
    done = on_small_disk(tmp_path, "make", "--silent", "test", f"PYTHON={sys.executable}", next_step)
    needed = (
        r"slipway: the disk of \S+ has 0\.0 GB free, and all tests may need \d+\.\d GB; free some, or run a part .*"
    )
    line = done.stderr.splitlines()[0]
    assert re.fullmatch(needed, line), done.stderr
    assert str(tmp_path) in line
    assert done.stdout == "next step\n"


@pytest.mark.parametrize("workers", [0, 2])
def test_run_that_fills_disk_stops_and_says_so(workers: int, tmp_path: Path) -> None:
    small, tests = tmp_path / "small", tmp_path / "test_here.py"
    small.mkdir()
    tests.write_text(FILLING)
    options = ["-q", "-p", "tests.helpers.disk_space", "-p", "no:cacheprovider", f"--numprocesses={workers}"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", "-c", "/dev/null", str(tests)]
    done = on_small_disk(small, *command)
    assert done.returncode == 2, done.stdout
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "is full" in line]
    assert len(lines) == 1
    assert re.fullmatch(rf"slipway: the disk of {re.escape(str(small))} is full: 0 MB left as \S+ failed", lines[0])
    [failed] = re.findall(r"(\d+) failed", done.stdout)
    assert int(failed) <= max(workers, 1)
