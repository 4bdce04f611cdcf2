"""A copy of the Pulumi program, whose images a test edits."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stacks.config.stack_file import ROOT


def copy_file(source: str, target: str) -> str:
    """Copy a file; a compiled module is linked, where it can be. Python writes another in its place, and never into it."""
    if source.endswith(".pyc"):
        Path(target).unlink(missing_ok=True)
        with suppress(OSError):  # another file system, or a file of another user
            os.link(source, target)
            return target
    return shutil.copy2(source, target)


def copy_folders(to: Path, *names: str, without: Iterable[str] = ()) -> None:
    """Copy folders of this checkout with their compiled modules; ``without`` has patterns of names that are left out.

    A module that another test compiles meanwhile is first a file ``*.pyc.<number>``, which may be gone when it is copied.
    """
    for name in names:
        ignored = shutil.ignore_patterns("*.pyc.*", *without)
        shutil.copytree(ROOT / name, to / name, ignore=ignored, copy_function=copy_file, dirs_exist_ok=True)


def write(folder: Path) -> None:
    """Copy the program without stacks and Dockerfiles, and say where its Python is."""
    copy_folders(folder, "cli", "components", "containers", "scaler", "stacks", without=["Pulumi.*.yaml"])
    for file in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / file, folder / file)
    (folder / ".slipway").mkdir()
    (folder / ".slipway/venv").symlink_to(sys.prefix)  # where Pulumi.yaml has it
