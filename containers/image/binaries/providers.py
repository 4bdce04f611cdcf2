"""The package that would provide a missing library: packages by the library's name."""

from __future__ import annotations

import fnmatch
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

_TABLE: Final = Path(__file__).with_name("providers.toml")


@cache
def _rows() -> tuple[tuple[str, str], ...]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple((pattern, row["provider"]) for row in table["library"] for pattern in row["names"])


def provider(library: str) -> str:
    """Return what provides a library, by its soname; empty if the table has it not."""
    return next((name for pattern, name in _rows() if fnmatch.fnmatchcase(library, pattern)), "")


def is_of_system(library: str) -> bool:
    """Return whether a distribution's package provides a library, by its soname."""
    return provider(library).startswith("Debian's ")
