"""The table of libraries that a library opens by name while it runs: plugins and parts of it."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from containers.image.copies.families import former_names

_TABLE: Final = Path(__file__).with_name("plugins.toml")
_LITERAL: Final = re.compile(rb"[\w-]+")


@dataclass(frozen=True)
class NamePattern:
    """A pattern of names in the read-only data of a library; ``start`` is the literal text that each begins with."""

    start: bytes
    pattern: re.Pattern[bytes]


@dataclass(frozen=True)
class Opener:
    """A library that opens others by name; the fields are those of `plugins.toml`."""

    library: str
    always: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    holds: tuple[NamePattern, ...] = ()
    components: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    cuda: re.Pattern[bytes] | None = None
    settings: str = ""
    linked: bool = False

    @property
    def holds_names(self) -> bool:
        """Whether its data has the name of a plugin, or its CUDA."""
        return bool(self.holds or self.cuda)

    def one_of(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the patterns of which one file each must be in its folder, in an environment."""
        return (*self.some, *(pattern for name, pattern in self.defaults.items() if not environment.get(name)))

    def cuda_in(self, data: bytes) -> str:
        """Return the release line of CUDA that a library names in its data as its own; empty without one."""
        match = self.cuda.search(data) if self.cuda else None
        return match[1].decode() if match else ""

    def held_in(self, data: bytes) -> Iterator[str]:
        """Yield the names that a library holds in its data, each once."""
        names: set[bytes] = set()
        for held in self.holds:
            place = data.find(held.start)
            while place >= 0:
                if (match := held.pattern.match(data, place)) and match[0] not in names:
                    names.add(match[0])
                    yield match[0].decode()
                place = data.find(held.start, place + len(held.start))


@cache
def openers() -> tuple[Opener, ...]:
    """Return the table."""
    return tuple(_opener(row) for row in tomllib.loads(_TABLE.read_text(encoding="utf-8"))["opener"])


def opener(soname: str) -> Opener | None:
    """Return the row of a library, under the name that the repair of a wheel gave it too."""
    names = former_names(soname) if soname.startswith("lib") else ()
    return next((row for name in names for row in openers() if fnmatch.fnmatchcase(name, row.library)), None)


def _opener(row: Mapping[str, Any]) -> Opener:
    fields: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in row.items()}
    fields["holds"] = tuple(map(_name_pattern, row.get("holds", [])))
    fields["cuda"] = re.compile(row["cuda"].encode()) if "cuda" in row else None
    return Opener(**fields)


def _name_pattern(pattern: str) -> NamePattern:
    start = _LITERAL.match(pattern.encode())
    if start is None:
        raise ValueError(f"{_TABLE.name}: '{pattern}' begins with no letter")
    return NamePattern(start[0], re.compile(pattern.encode()))
