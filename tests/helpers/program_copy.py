"""A copy of the Pulumi program, whose images a test edits."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from stacks.config.stack_file import ROOT


def write(folder: Path) -> None:
    """Copy the program without stacks and Dockerfiles, and say where its Python is."""
    ignore = shutil.ignore_patterns("Pulumi.*.yaml")
    for package in ("cli", "components", "oci", "stacks"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignore)
    for file in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / file, folder / file)
    (folder / ".slipway").mkdir()
    (folder / ".slipway/venv").symlink_to(sys.prefix)  # where Pulumi.yaml has it
