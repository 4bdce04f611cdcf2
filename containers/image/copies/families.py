"""The table of libraries with one copy in a process, and of copies that are known to break."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from packaging.specifiers import SpecifierSet

from containers.image.owners.ownership_records import Owner

_TABLE: Final = Path(__file__).with_name("families.toml")
_REPAIRED: Final = re.compile(r"(?:-[0-9a-f]{8})+(?=\.so)")
"""What auditwheel adds to the name of a library that it copies into a wheel (pypa/auditwheel, repair.py, `copylib`)."""

_GRAFTED: Final = re.compile(r".*-packages/[^/]+\.libs/[^/]+")
"""Where it copies them to."""


@dataclass(frozen=True)
class Family:
    """Libraries of one kind; the fields are those of `families.toml`."""

    name: str
    libraries: tuple[str, ...]
    version: str = ""
    rivals: bool = False
    by_name: bool = False
    of_system: bool = False
    variables: tuple[str, ...] = ()

    def rank(self, library: str) -> int | None:
        """Return which of the family's patterns has a plain name, None if none has."""
        matches = (number for number, row in enumerate(self.libraries) if fnmatch.fnmatchcase(library, row))
        return next(matches, None)

    def part(self, library: str) -> tuple[int, str]:
        """Return what a plain name is of the family: libraries of one part are copies of each other."""
        return (0, "") if self.rivals else (self.rank(library) or 0, library.partition(".so")[0])


@dataclass(frozen=True)
class Case:
    """Two copies that are known to break; the fields are those of `families.toml`."""

    family: str
    how: tuple[str, ...]
    one: str
    other: str
    fails: str
    mend: str
    source: str
    releases: str = ""
    unless: str = ""
    names: tuple[str, ...] = ("*",)

    def has(self, library: str) -> bool:
        """Return whether the case is about a library of a plain name."""
        return any(fnmatch.fnmatchcase(library, pattern) for pattern in self.names)

    def is_of(self, owner: Owner | None, other: Owner | None) -> bool:
        """Return whether the case is about copies of two owners, None for no package."""
        first, second = (f"{each.manager}:{each.name}" if each else ":" for each in (owner, other))
        if self.one != "*" and fnmatch.fnmatchcase(second, self.one):
            return False
        known = not (self.releases and owner) or _admits(self.releases, owner.version)
        return known and fnmatch.fnmatchcase(first, self.one) and fnmatch.fnmatchcase(second, self.other)


def _admits(releases: str, version: str) -> bool:
    try:
        return SpecifierSet(releases).contains(version, prereleases=True)
    except ValueError:  # of thousands of digits
        return False


@dataclass(frozen=True)
class Opened:
    """Files that a package opens by path; the fields are those of `families.toml`."""

    files: tuple[str, ...]
    everywhere: bool = False
    beside: str = ""

    def has(self, file: str) -> bool:
        """Return whether a file is one of them, by its path below the folder of packages, or by its whole one."""
        return any(fnmatch.fnmatchcase(file, pattern) for pattern in self.files)


@dataclass(frozen=True)
class FamilyTable:
    """The rows of `families.toml`."""

    families: tuple[Family, ...]
    opened: tuple[Opened, ...]
    cases: tuple[Case, ...]

    def family(self, library: str) -> Family | None:
        """Return the family of a library by its plain name."""
        return next((family for family in self.families if family.rank(library) is not None), None)


@cache
def table() -> FamilyTable:
    """Return the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return FamilyTable(
        tuple(Family(**_fields(row)) for row in rows["family"]),
        tuple(Opened(**_fields(row)) for row in rows["opened"]),
        tuple(Case(**_fields(row)) for row in rows["case"]),
    )


def plain(library: str) -> str:
    """Return a library's name without what the repair of a wheel added to it."""
    return _REPAIRED.sub("", library)


def is_grafted(path: str) -> bool:
    """Return whether the repair of a wheel copied the library at a path, for files of the wheel alone."""
    name = posixpath.basename(path)
    return plain(name) != name and bool(_GRAFTED.fullmatch(path))


def former_names(library: str) -> tuple[str, ...]:
    """Return a library's name, or its names before a repair, which appends a full version."""
    name = plain(library)
    if name == library:
        return (library,)
    stem, _, version = name.partition(".so")
    numbers = version.split(".")
    return tuple(f"{stem}.so{'.'.join(numbers[:count])}" for count in range(len(numbers), 0, -1))


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
