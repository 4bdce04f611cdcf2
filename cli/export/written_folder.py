"""A folder that an export has written: whether all in it is still as it was written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from containers.errors import SlipwayError, one_line

RECORD: Final = ".slipway-export"
"""The file in the folder that names each other one, with its SHA-256 and whether it can be run.

Other bits of a mode are a umask's: a copy or a clone of the folder has those of whoever made it.
"""


def record(folder: Path) -> None:
    """Write down what is in a folder."""
    (folder / RECORD).write_text(json.dumps(_files(folder), indent=2) + "\n", encoding="utf-8")


def is_as_written(folder: Path) -> bool:
    """Return whether an export wrote a folder.

    Raises SlipwayError: it did, and a file was edited, added or removed by hand.
    """
    try:
        written = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(written, dict):
        return False
    there = _files(folder)
    edited = sorted(path for path in {*written, *there} if written.get(path) != there.get(path))
    if edited:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        raise SlipwayError(
            f"{one_line(str(folder))}: changed by hand since the export: {one_line(edited[0])}{more}; choose another "
            "output, or delete this folder first"
        )
    return True


def _files(folder: Path) -> dict[str, str]:
    files = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            value = f"link to {path.readlink()}"
        elif path.is_file():
            value = f"{755 if path.stat().st_mode & 0o100 else 644} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            continue
        files[path.relative_to(folder).as_posix()] = value
    files.pop(RECORD, None)
    return files
