"""``slipway``: what it prints, and one line for each mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT
from tests.helpers.every import every


def test_shown_argument_is_no_command_to_github() -> None:
    """What begins a line with two colons orders GitHub's runner about; click shows an argument as it is."""
    words = ["-c", "from cli.main import run; run()", "show", "local", "a\n::stop-commands::x"]
    printed = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert printed.returncode == 2
    assert printed.stderr.endswith("Error: Got unexpected extra argument (a\n: :stop-commands::x)\n")


@every("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_bake_file_leaves_nothing(number: int, tmp_path: Path) -> None:
    """As an export of an image (`test_export`): the last file is about to be written."""
    program = (
        "import json, os, sys; from cli.export import bake; from cli.main import run; from stacks.identity import history; "
        "history.find = lambda stack, prints, suffixes, files, root, *_: history.newest(prints, root); "
        f"bake.document = lambda _: os.kill(os.getpid(), {int(number)}); sys.argv[1:] = ['export', 'bake', 'local']; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_older_name_of_command_prints_the_same() -> None:
    outputs = {
        subprocess.run([sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in (["-m", "stacks"], ["-c", "from cli.main import run; run()"])
    }
    assert len(outputs) == 1


@every("words", [["doctor"], ["prune"]])
def test_command_of_machine_goes_on_as_toolchain(words: list[str]) -> None:
    """The same as `make` prints, from any folder; it changes nothing."""
    program = f"import sys; from cli.main import run; sys.argv[1:] = {words}; run()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert ".slipway" in done.stdout
