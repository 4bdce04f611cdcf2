"""Section e: what a change touches, in a long history with many images, against the second that it may take."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import images, program
from bench.figures import Row, Target
from bench.measure import run as run_program
from bench.setting import Setting
from toolchain.steps import step

COMMITS: Final = 5_000
COUNT: Final = 200
ROUNDS: Final = 7
TARGET: Final = Target("<", 1.00)
_ALLOWED: Final = ("allowed", [1.0])
_SINCE: Final = {"the first commit": f"HEAD~{COMMITS - 1}", "the last commit": "HEAD"}


def run(setting: Setting) -> Iterator[Row]:
    """Measure ``affected`` where all of the images have changed, and where none has."""
    folder = setting.scratch / "affected"
    with step(f"e: {COMMITS} commits of {COUNT} images"):
        program.slipway(folder, f"{setting.registry.address}/affected", {"flavor": "many", "count": COUNT})
        images.write(folder / "dockerfiles", COUNT)
        commit(folder)
    for what, ref in _SINCE.items():
        title = f"affected since {what}, {COMMITS} commits, {COUNT} images"
        command = [sys.executable, "-m", "stacks", "affected", "--since", ref, "--json"]
        rounds = setting.rounds(ROUNDS, f"e: {title}")
        ours = [run_program(command, cwd=folder, env=os.environ).seconds for _ in rounds]
        yield Row("e", title, ours, *_ALLOWED, target=TARGET)


def commit(folder: Path) -> None:
    """Make a repository of a folder, and a history in which each commit edits a file of one image."""
    stream = "".join(
        f"commit refs/heads/main\ncommitter bench <bench@localhost> {number} +0000\ndata 0\n"
        f"{'from refs/heads/main^0' if number == 1 else ''}\n"
        f"M 100644 inline dockerfiles/image{number % COUNT}/file.txt\ndata {len(str(number))}\n{number}\n"
        for number in range(1, COMMITS)
    )
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
    for words in (
        ("init", "--quiet", "--initial-branch", "main"),
        ("add", "--all"),
        (*identity, "commit", "--quiet", "--message", "As measured"),
        ("fast-import", "--quiet"),
        ("reset", "--quiet", "--hard"),
    ):
        subprocess.run(["git", *words], cwd=folder, input=stream, text=True, check=True)
