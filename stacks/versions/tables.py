"""Reading the tables: one TOML file each beside this module, parsed at its first use and kept."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@functools.cache
def table(name: str) -> Mapping[str, Any]:
    """Return the parsed ``<name>.toml``. Callers must not change it."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


@functools.cache
def order(version: str) -> tuple[int, ...]:
    """Return a sort key of a dotted version; what follows the numbers (``rc1``, ``-1``) does not count."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def satisfies(version: str, specifier: str) -> bool:
    """Say whether ``version`` meets ``specifier``, a comma-separated list of ``==``, ``>=`` and ``<`` as in the tables.

    An empty specifier is met by nothing: a package that does not say what it goes with is not known to go with it.
    """

    def met(clause: str) -> bool:
        operator, wanted = (clause[:2], clause[2:]) if clause[1:2] == "=" else (clause[:1], clause[1:])
        ours, theirs = order(version), order(wanted)
        return {"==": ours == theirs, ">=": ours >= theirs, "<": ours < theirs}[operator]

    return bool(specifier) and all(met(clause) for clause in specifier.split(","))
