"""The disk that tests fill: `make test` says at its start that too little is free, and a run that has filled it ends with that.

`python -m tests.helpers.disk_space` is the first step of `make test`. It needs Python alone.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolchain.verbs import FULL_BYTES

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parents[2]
TEMPORARY: Final = Path(os.environ.get("TMPDIR") or "/tmp")
"""Where temporary files are. `tempfile` would take another folder where that disk is full."""
ENGINE_BYTES: Final = 15_000_000_000
"""What the engine holds at most while `make test` runs: 13.8 GB on 2 cores, of which the stack `local` has 11 as it is built."""
CHECKOUT_BYTES: Final = 3_000_000_000
"""What `make ready` builds and installs, and the registry: 2.2 GB."""
TEMPORARY_BYTES: Final = 2_000_000_000
"""What the tests of all workers write at a time: 0.4 GB; and the caches of pip and Go while `make ready` builds."""
WRITTEN_BYTES: Final = 5_000_000_000
"""The largest that one step writes. Where it finds no space, as much can be free again a moment later."""


def engine_folder() -> Path:
    """Return where the engine in use keeps its images, on this machine; the checkout where that is not known."""
    command = ["docker", "info", "--format", "{{.DockerRootDir}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ROOT
    folder = Path(done.stdout.strip())
    return folder if folder.is_absolute() and folder.is_dir() else ROOT


def shortage(needs: Mapping[Path, int]) -> str:
    """Return a line about the disk that has least of what its folders need, or an empty one."""
    disks: dict[int, list[Path]] = defaultdict(list)
    for folder in needs:
        disks[folder.stat().st_dev].append(folder)
    fullest = min(disks.values(), key=lambda folders: _free(folders[0]) / sum(needs[folder] for folder in folders))
    free, needed = _free(fullest[0]), sum(needs[folder] for folder in fullest)
    if free >= needed:
        return ""
    return (
        f"the disk of {fullest[0]} has {free / 1e9:.1f} GB free, and all tests may need {needed / 1e9:.1f} GB; "
        "free some, or run a part of them, such as `make test TESTS=tests/unit`"
    )


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class FullDisk:
    """Ends a run at its first failure for want of disk, as hundreds would follow, and has its last line say so."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._line = session, ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._look(report.nodeid, report.longreprtext)

    def pytest_internalerror(self, excrepr: object) -> None:
        self._look("pytest itself", str(excrepr))

    def _look(self, failed: str, text: str) -> None:
        limit = WRITTEN_BYTES if os.strerror(errno.ENOSPC) in text else FULL_BYTES
        for folder in (ROOT, TEMPORARY, engine_folder()):
            if not self._line and (free := _free(folder)) < limit:
                self._line = f"the disk of {folder} is full: {free // 1_000_000} MB left as {failed} failed"
                self._session.shouldstop = "full disk"

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self._line and not hasattr(config, "workerinput"):
            sys.stderr.write(f"slipway: {self._line}\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch the disk in each worker, which ends itself, and in the process that gets all reports."""
    session.config.pluginmanager.register(FullDisk(session))


def main() -> None:
    """Print a line where all tests may fill a disk. They run all the same: an engine may hold much of it already."""
    needs: dict[Path, int] = defaultdict(int)
    for folder, needed in (
        (ROOT, CHECKOUT_BYTES),
        (TEMPORARY, TEMPORARY_BYTES),
        (engine_folder(), ENGINE_BYTES),
    ):
        needs[folder] += needed
    if line := shortage(needs):
        sys.stderr.write(f"slipway: {line}\n")


if __name__ == "__main__":
    main()
