"""The record of what each stack builds, in git: with it, older code need not run to say what it built.

Each line of ``stacks/fingerprints.txt`` has a stack, an image and its fingerprint. A command writes it
(``python -m tests.unit.golden_images``), and a test holds it against the stacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stacks.identity.git import git

FILE: Final = "stacks/fingerprints.txt"

_LINE: Final = re.compile(r"([A-Za-z0-9_.-]+) ([a-z0-9._-]+) ([0-9a-f]{64})")

Record = Mapping[str, Mapping[str, str]]
"""Fingerprints by stack, and by the name of an image or an index."""


def text(record: Record) -> str:
    """Return the file's text."""
    lines = [f"{stack} {name} {value}" for stack, images in record.items() for name, value in images.items()]
    return "".join(f"{line}\n" for line in lines)


def at(commit: str, root: Path) -> Record:
    """Return a commit's record; empty for a commit without one. Lines of another form are left out."""
    lines = git(root, "cat-file", "blob", f"{commit}:./{FILE}") or ""
    record: dict[str, dict[str, str]] = {}
    for match in filter(None, map(_LINE.fullmatch, lines.splitlines())):
        record.setdefault(match[1], {})[match[2]] = match[3]
    return record
