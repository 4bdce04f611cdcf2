"""Section e: ``affected`` in a long history with many images, against its limit of one second."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from bench import program, synthetic_images
from bench.figures import Measurement, Target
from bench.measure import run as run_program
from bench.program import Program
from bench.setting import BenchSetting
from toolchain.machine.steps import step

COMMITS: Final = 5_000
COUNT: Final = 200
ROUNDS: Final = 7
TARGET: Final = Target("<", 1.00)
_ALLOWED: Final = ("allowed", [1.0])
_SINCE: Final = {"the first commit": f"HEAD~{COMMITS - 1}", "the last commit": "HEAD"}


def run(setting: BenchSetting) -> Iterator[Measurement]:
    """Measure ``affected`` after changes of all images, and after none."""
    folder = setting.scratch / "affected"
    with step(f"e: {COMMITS} commits of {COUNT} images"):
        copy = program.slipway(folder, f"{setting.registry.address}/affected", {"flavor": "many", "count": COUNT})
        synthetic_images.write(copy.dockerfiles, COUNT)
        copy.commit()
        edit(copy)
    for start, ref in _SINCE.items():
        title = f"affected since {start}, {COMMITS} commits, {COUNT} images"
        command = [sys.executable, "-m", "stacks", "affected", "--since", ref, "--json"]
        rounds = setting.rounds(ROUNDS, f"e: {title}")
        ours = [run_program(command, cwd=folder, env=os.environ).seconds for _ in rounds]
        yield Measurement("e", title, ours, *_ALLOWED, target=TARGET)


def edit(copy: Program) -> None:
    """Add the commits after the first, each an edit of a file of one image."""
    stream = "".join(
        f"commit refs/heads/main\ncommitter bench <bench@localhost> {number} +0000\ndata 0\n"
        f"{'from refs/heads/main^0' if number == 1 else ''}\n"
        f"M 100644 inline dockerfiles/image{number % COUNT}/file.txt\ndata {len(str(number))}\n{number}\n"
        for number in range(1, COMMITS)
    )
    copy.git("fast-import", "--quiet", stdin=stream)
    copy.git("reset", "--quiet", "--hard")
