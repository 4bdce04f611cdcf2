"""A wheel of the Python index."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def fetched(requirement: str, folder: Path) -> zipfile.ZipFile:
    """Download one wheel, as pip is configured here, and open it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob(f"{requirement.partition('==')[0].replace('-', '_')}-*.whl")
    return zipfile.ZipFile(wheel)
