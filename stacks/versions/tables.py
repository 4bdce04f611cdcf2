"""The tables, which are TOML files in this folder: each is parsed at its first use and kept.

A repository of one's own adds rows to them, in the file of that name in its folder ``tables``. It changes none. A row
may stay there after an upgrade to a release that has it too.
"""

from __future__ import annotations

import functools
import posixpath
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from packaging.specifiers import SpecifierSet

from containers.errors import SlipwayError, one_line, suggest
from containers.image.gpu.release_order import order
from stacks.places import CODE, ROOT, TABLES

T = TypeVar("T")

_OF_A_ROW: Final = {"source", "weak"}
"""The keys that say something of their row, and nothing of what it is for."""


class _Row(dict[str, Any]):
    """A row of a table, or the table itself, at its ``place``: the file, and the keys that lead to the row.

    A key that it lacks is a mistake in the file.
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
    return _Row(f"stacks/versions/{name}.toml:", _with_own_rows().get(name) or _parsed(_path(name), f"{name}.toml"))


def use_own_rows(texts: Mapping[str, str]) -> None:
    """Take a repository's own rows from texts by the names of their files, in place of those that it has now.

    Much of what tables say is kept, from the first import on: so nothing may have read a table before.

    Raises RuntimeError: a table was read.
    """
    if table.cache_info().currsize:
        raise RuntimeError("a table was read before its rows were given")
    _own_files().clear()
    _own_files().update(texts)


def _path(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.toml")


@functools.cache
def _own_files() -> dict[str, Path | str]:
    """Return the files, or their texts, with a repository's own rows, by name."""
    return {file.name: file for file in sorted((ROOT / TABLES).glob("*"))} if ROOT != CODE else {}


def _parsed(file: Path | str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file if isinstance(file, str) else file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SlipwayError(f"{where}: not TOML: {one_line(str(error))}") from None


@functools.cache
def _with_own_rows() -> Mapping[str, dict[str, Any]]:
    """Return the tables to which a repository of one's own adds rows. All of them are looked at before any is used.

    Raises SlipwayError: a file is not TOML, Slipway has no table of that name, or a row cannot be added.
    """
    known = {path.stem for path in Path(__file__).parent.glob("*.toml")}
    tables = {}
    for name, file in _own_files().items():
        where, (stem, suffix) = f"{TABLES}/{name}", posixpath.splitext(name)
        if suffix != ".toml" or stem not in known:
            raise SlipwayError(
                f"{where}: Slipway has no such table{suggest(stem, known)}; it has {', '.join(sorted(known))}"
            )
        tables[stem] = _parsed(_path(stem), name)
        _add(tables[stem], _parsed(file, where), where, ())
    return tables


def _add(ours: dict[str, Any], own: Mapping[str, Any], where: str, way: tuple[str, ...]) -> None:
    """Add a repository's own rows to a table's.

    Raises SlipwayError: a row is there already with another value, or stands in no part of the table.
    """
    rows = [isinstance(value, dict) for value in ours.values()]
    # Rows by their names, or values by theirs. A row itself takes no more keys.
    is_open = bool(way) and (all(rows) or (len(way) == 1 and not any(rows)))
    for key, value in own.items():
        named = ".".join((*way, key))
        if isinstance(ours.get(key), dict) and isinstance(value, dict):
            _add(ours[key], value, where, (*way, key))
        elif (key in _OF_A_ROW and not is_open) or (key in ours and value == ours[key]):
            continue  # a newer release has the row too
        elif key in ours:
            raise SlipwayError(f"{where}: {one_line(named)} is Slipway's own, which stays as it is; leave it out")
        elif not is_open:
            raise SlipwayError(
                f"{where}: {one_line(named)} is nothing that Slipway reads; "
                f"there {'it' if way else 'the table'} has {', '.join(map(str, ours))}"
            )
        elif isinstance(value, dict) != all(rows):
            raise SlipwayError(
                f"{where}: {one_line(named)} is not of the form of the other rows, such as {next(iter(ours))}"
            )
        elif isinstance(value, dict) and (unknown := value.keys() - set().union(*ours.values())):
            raise SlipwayError(
                f"{where}: {one_line(named)}: no other row has '{one_line(min(unknown))}'; "
                f"they have {', '.join(sorted(set().union(*ours.values())))}"
            )
        else:
            ours[key] = value


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
    return {key: value for key, value in row.items() if key not in _OF_A_ROW}


def weak_keys(reliance: Reliance) -> tuple[str, ...]:
    """Return the keys in use by a stack without a public source; none of a row that is not there."""
    row: Any = functools.reduce(lambda rows, key: rows.get(key, {}), reliance.row, table(reliance.table))
    return tuple(key for key in reliance.keys if key in row and key in row.get("weak", ()))


def weak_line(reliances: Iterable[Reliance]) -> list[str]:
    """Return one line that names all weak keys; no line without any."""
    weak = [(reliance, keys) for reliance in reliances if (keys := weak_keys(reliance))]
    named = "; ".join(f"{'.'.join((each.table, *each.row))}: {', '.join(keys)}" for each, keys in weak)
    files = ", ".join(dict.fromkeys(f"stacks/versions/{each.table}.toml" for each, _ in weak))
    return [f"no public source confirms {named}; check before you rely on it, {files}"] if weak else []


def newest_from(rows: Iterable[str], version: str) -> str | None:
    """Return the newest of ``rows`` that is not newer than ``version``: rows apply from their version on."""
    return max((row for row in rows if order(row) <= order(version)), key=order, default=None)


def failing(rows: Mapping[str, Mapping[str, Any]], version: str) -> Mapping[str, Any] | None:
    """Return the row of what fails with ``version``: each is from its version on, and before the one in ``below``."""
    first = newest_from(rows, version)
    return rows[first] if first and order(version) < order(rows[first]["below"]) else None


def applying(rows: Mapping[str, T], version: str) -> T:
    """Return the row that applies to ``version``: the newest that is not newer, or else the oldest."""
    return rows[newest_from(rows, version) or min(rows, key=order)]


def satisfies(version: str, specifier: str) -> bool:
    """Return whether ``version`` meets ``specifier``, the tables' comma-separated list of ``==``, ``>=`` and ``<``.

    No version meets an empty specifier: a package without requirements is not known to go with any.
    """
    return bool(specifier) and SpecifierSet(specifier).contains(version, prereleases=True)
