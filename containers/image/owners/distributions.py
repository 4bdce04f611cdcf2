"""What a Python package says of itself: its name, its version, and what it requires (PyPA, core metadata)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from containers import budget

_METADATA: Final = re.compile(
    r"(?P<folder>.*)/(?:[^/]+\.dist-info/METADATA|(?P<egg>[^/]+)\.egg-info(?P<requires>/requires\.txt|/PKG-INFO)?)"
)
"""What a wheel leaves, and what setuptools and distutils leave, as Debian's packages have it."""
_WHEEL: Final = re.compile(r".*/(?P<name>[^/-]+)-(?P<version>[^/-]+)\.dist-info/METADATA")
"""A wheel's folder: pip and uv take the name and the version from it, whatever the file says (pip 26.3, uv 0.13.8)."""
_EGG: Final = re.compile(r"(?P<name>[^-]+)(?:-(?P<version>[^-]+)(?:-py3[.\d]*)?)?")
"""A folder of setuptools, whose `requires.txt` names no package; that of a package in development has no version."""
_SECTION: Final = re.compile(rb"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]*))?\]")
"""How a part of `requires.txt` begins that an extra or a marker is for."""
LARGEST: Final = 1 << 20
"""Bytes of the beginning of a file of metadata that are read: its fields come before the description."""
_LONGEST: Final = 1 << 10
"""Characters of the longest requirement that is read."""
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
"""What Python calls the architectures of platforms."""
NEWEST_PATCH: Final = 99
"""Stands for the last number of Python's release, which no file's path has."""
_FIELD: Final = re.compile(rb"(Name|Version|Requires-Python|Requires-Dist):[ \t]*([^\r\n]*)", re.IGNORECASE)
_FOLD: Final = re.compile(rb"\r?\n(?=[ \t])")
"""Where a field goes on in the next line."""


class Distribution(NamedTuple):
    """A Python package; ``requires`` are its requirements without those of extras, ``python`` that of a Python."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    python: str = ""

    def joined(self, other: Distribution) -> Distribution:
        """Return this one with the requirements of another file of the same package."""
        if other is self or (other.version != self.version and other.version and self.version):
            return self
        return Distribution(
            self.name, self.version or other.version, self.requires + other.requires, self.python or other.python
        )

    def __str__(self) -> str:
        """Return the name with the version."""
        return f"{self.name} {self.version}"


def is_metadata(path: str) -> bool:
    """Return whether a file has the metadata of an installed package."""
    return path.endswith(("/METADATA", "-info", "-info/PKG-INFO", "/requires.txt")) and bool(_METADATA.fullmatch(path))


def folder(path: str) -> str:
    """Return the folder of packages that a file of metadata is in."""
    match = _METADATA.fullmatch(path)
    return match["folder"] if match else ""


def distribution(path: str, content: bytes) -> Distribution | None:
    """Return what a file of metadata says; None if it has no name or version."""
    if path.endswith("/requires.txt"):
        match = _METADATA.fullmatch(path)
        egg = _EGG.fullmatch(match["egg"]) if match else None
        requires = tuple(_of_egg(content))
        return Distribution(canonicalize_name(egg["name"]), egg["version"] or "", requires) if egg else None
    name = version = python = ""
    required: list[str] = []
    for field, value in _fields(content):
        if field == b"name":
            name = canonicalize_name(value)
        elif field == b"version":
            version = value
        elif field == b"requires-python":
            python = value
        elif not re.search(r"\bextra\s*==", value) or " or " in value:
            required.append(value)
    if wheel := _WHEEL.fullmatch(path):
        name, version = canonicalize_name(wheel["name"]), wheel["version"]
    return Distribution(name, version, tuple(required), python) if name and version else None


def _of_egg(content: bytes) -> Iterator[str]:
    """Yield the requirements of a file of setuptools, without those of extras."""
    extra, marker = b"", b""
    for line in map(bytes.strip, content.split(b"\n")):
        budget.check()
        if match := _SECTION.fullmatch(line):
            extra, marker = match["extra"], match["marker"] or b""
        elif line and not extra and len(line) <= _LONGEST:
            yield (line + b"; " + marker if marker else line).decode(errors="replace")


def _fields(content: bytes) -> Iterator[tuple[bytes, str]]:
    for line in _FOLD.sub(b"", content).split(b"\n"):
        budget.check()
        if line in {b"", b"\r"}:
            return
        if (match := _FIELD.match(line)) and len(match[2]) <= _LONGEST:
            yield match[1].lower(), match[2].decode(errors="replace").strip()


@lru_cache(1 << 14)
def requirement(text: str) -> Requirement | None:
    """Return what a line requires; None if it cannot be read."""
    try:
        return Requirement(text)
    except (InvalidRequirement, RecursionError):  # a marker of a thousand brackets
        return None


def applies(requirement: Requirement, version: str, architecture: str) -> bool:
    """Return whether a requirement is one of a Python, as ``3.11``, on an architecture; without a marker it is."""
    python, machine = f"{version}.{NEWEST_PATCH}", _MACHINES.get(architecture, architecture)
    values = {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python,
        "python_version": version,
        "sys_platform": "linux",
    }
    try:
        return requirement.marker is None or requirement.marker.evaluate(values)
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return False
