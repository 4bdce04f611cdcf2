"""What a Python package says of itself: its name, its version, and what it requires (PyPA, core metadata)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from packaging.utils import canonicalize_name

from containers import budget

_METADATA: Final = re.compile(r"(?:.*/)?(?:site|dist)-packages/[^/]+\.dist-info/METADATA")
LARGEST: Final = 1 << 20
"""Bytes of the beginning of a file of metadata that are read: its fields come before the description."""
_LONGEST: Final = 1 << 10
"""Characters of the longest requirement that is read."""
_FIELD: Final = re.compile(rb"(Name|Version|Requires-Python|Requires-Dist): *([^\r\n]*)")


class Distribution(NamedTuple):
    """A Python package; ``requires`` are its requirements without those of extras, ``python`` that of a Python."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    python: str = ""

    def __str__(self) -> str:
        """Return the name with the version."""
        return f"{self.name} {self.version}"


def is_metadata(path: str) -> bool:
    """Return whether a file has the metadata of an installed package."""
    return path.endswith(".dist-info/METADATA") and bool(_METADATA.fullmatch(path))


def distribution(content: bytes) -> Distribution | None:
    """Return what metadata says; None if it has no name or version."""
    name = version = python = ""
    requires: list[str] = []
    for field, value in _fields(content):
        if field == b"Name":
            name = canonicalize_name(value)
        elif field == b"Version":
            version = value
        elif field == b"Requires-Python":
            python = value
        elif not re.search(r"\bextra\s*==", value) or " or " in value:
            requires.append(value)
    return Distribution(name, version, tuple(requires), python) if name and version else None


def _fields(content: bytes) -> Iterator[tuple[bytes, str]]:
    for line in content.split(b"\n"):
        budget.check()
        if line in {b"", b"\r"}:
            return
        if (match := _FIELD.match(line)) and len(match[2]) <= _LONGEST:
            yield match[1], match[2].decode(errors="replace").strip()
