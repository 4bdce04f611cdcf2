"""The tables, which are TOML files in this folder: each is parsed at its first use and kept."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from containers.errors import SlipwayError
from containers.image.gpu.release_order import order

T = TypeVar("T")


class _Row(dict[str, Any]):
    """A row of a table, or the table itself. A key that it lacks is a mistake in the file.

    Args:
        place: the file, and the keys that lead to the row.
        values: what it holds.
    """

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        super().__init__((key, _rows(f"{place} [{key}]", value)) for key, value in values.items())
        self.place = place

    def __missing__(self, key: str) -> Any:
        raise SlipwayError(f"{self.place} has no '{key}'; add it: the comments of the file say what it is")


def _rows(place: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_rows(place, each) for each in value]
    return _Row(place, value) if isinstance(value, dict) else value


@functools.cache
def table(name: str) -> Mapping[str, Any]:
    """Return the parsed ``<name>.toml``. Callers must not change it.

    To look up a key that the file lacks raises SlipwayError.
    """
    path = Path(__file__).with_name(f"{name}.toml")
    return _Row(f"stacks/versions/{name}.toml:", tomllib.loads(path.read_text(encoding="utf-8")))


class Reliance(NamedTuple):
    """What a stack takes from a table.

    Attributes:
        table: its name.
        row: its row, with a dot between the keys that lead to it.
        keys: those of the row's keys that the stack relies on.
    """

    table: str
    row: tuple[str, ...]
    keys: tuple[str, ...]


def facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what it says of itself: its ``source``, and its ``weak`` keys."""
    return {key: value for key, value in row.items() if key not in {"source", "weak"}}


def weak_keys(reliance: Reliance) -> tuple[str, ...]:
    """Return the keys in use by a stack without a public source; none of a row that is not there."""
    row: Any = functools.reduce(lambda rows, key: rows.get(key, {}), reliance.row, table(reliance.table))
    return tuple(key for key in reliance.keys if key in row and key in row.get("weak", ()))


def weak_line(reliances: Iterable[Reliance]) -> list[str]:
    """Return one line that names all weak keys; no line without any."""
    weak = [(reliance, keys) for reliance in reliances if (keys := weak_keys(reliance))]
    named = "; ".join(f"{'.'.join((of.table, *of.row))}: {', '.join(keys)}" for of, keys in weak)
    files = ", ".join(dict.fromkeys(f"stacks/versions/{of.table}.toml" for of, _ in weak))
    return [f"no public source confirms {named}; check before you rely on it, {files}"] if weak else []


def newest_from(rows: Iterable[str], version: str) -> str | None:
    """Return the newest of ``rows`` that is not newer than ``version``: rows apply from their version on."""
    return max((row for row in rows if order(row) <= order(version)), key=order, default=None)


def applying(rows: Mapping[str, T], version: str) -> T:
    """Return the row that applies to ``version``: the newest that is not newer, or else the oldest."""
    return rows[newest_from(rows, version) or min(rows, key=order)]


def satisfies(version: str, specifier: str) -> bool:
    """Return whether ``version`` meets ``specifier``, the tables' comma-separated list of ``==``, ``>=`` and ``<``.

    No version meets an empty specifier: a package without requirements is not known to go with any.
    """

    def met(clause: str) -> bool:
        operator, bound = (clause[:2], clause[2:]) if clause[1:2] == "=" else (clause[:1], clause[1:])
        left, right = order(version), order(bound)
        return {"==": left == right, ">=": left >= right, "<": left < right}[operator]

    return bool(specifier) and all(met(clause) for clause in specifier.split(","))
