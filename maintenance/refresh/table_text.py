"""The text of a table with further rows: everything else in it, comments too, stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from containers.errors import SlipwayError
from containers.image.gpu.release_order import order

_WIDTH = 120
_INDENT = "  "


def with_items(text: str, keys: Collection[str], items: Collection[str]) -> str:
    """Return the text of a table with further strings in one of its lists, which is made if it is not there.

    The last of ``keys`` is the list's own. Its strings are in the order of versions.
    """
    *section, key = keys
    start, end = _section(text, section)
    quoted = key if re.fullmatch(r"\w+", key) else f'"{key}"'
    match = re.compile(rf'^"?{re.escape(key)}"? = \[[^\]]*\]$', re.MULTILINE).search(text, start, end)
    before: list[str] = tomllib.loads(match[0])[key] if match else []
    listed = sorted({*before, *items}, key=lambda item: (order(item), item))
    array = _array(quoted, listed)
    if match:
        return text[: match.start()] + array + text[match.end() :]
    return _inserted(text, start, end, key, array)


def with_row(text: str, section: Collection[str], release: str, row: Mapping[str, Any]) -> str:
    """Return the text of a table with a further row, behind those of older releases.

    ``section`` are the keys that lead to the rows; none where they are at the top of the file. A row's values are
    texts, lists of texts, and mappings of such.
    """
    start, end = _section(text, section)
    return _inserted(text, start, end, release, f'"{release}" = {inline(row)}')


def inline(value: Any) -> str:
    """Return a text, a list of texts or a mapping of such as TOML on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {inline(cell)}" for key, cell in value.items()) + " }" if value else "{}"
    if isinstance(value, str):
        if re.search(r'["\\\n]', value):
            raise SlipwayError(f"a table takes no text with quotes or backslashes: {value!r}")
        return f'"{value}"'
    return "[" + ", ".join(map(inline, value)) + "]"


def replace(path: Path, text: str) -> None:
    """Write the text of a table in one step.

    Raises SlipwayError: a row or a value that the file has is not in the text, or it is no TOML. Nothing is written.
    """
    before = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SlipwayError(f"{path.name}: the new rows do not fit ({error}); nothing was written") from None
    if lost := _lost(before, after, ()):
        raise SlipwayError(f"{path.name}: {'.'.join(lost)} would be lost; nothing was written")
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _lost(before: Any, after: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys with a missing target; none if all is."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key, value in before.items():
            if key not in after:
                return (*keys, key)
            if lost := _lost(value, after[key], (*keys, key)):
                return lost
        return ()
    if isinstance(before, list) and isinstance(after, list):
        kept = [item for item in after if item in before]
        return () if kept == before else keys
    return () if before == after else keys


def _section(text: str, keys: Collection[str]) -> tuple[int, int]:
    """Return where a section's lines begin and end; for no keys, those above the first section."""
    start = 0
    if keys:
        match = re.search(rf"^\[{re.escape('.'.join(keys))}\]\n", text, re.MULTILINE)
        if not match:
            raise SlipwayError(f"the table has no section [{'.'.join(keys)}]")
        start = match.end()
    following = re.compile(r"^\[", re.MULTILINE).search(text, start)
    return start, following.start() if following else len(text)


def _inserted(text: str, start: int, end: int, key: str, line: str) -> str:
    """Return the text with a line behind those of a section whose keys are older."""
    place = start
    for row in re.compile(r'^"?([\w.-]+)"? = (?:.*|\[[^\]]*\])$', re.MULTILINE).finditer(text, start, end):
        if order(row[1]) <= order(key) or place == start:
            place = row.end() + 1
    return text[:place] + line + "\n" + text[place:]


def _array(name: str, items: Collection[str]) -> str:
    line = f"{name} = {inline(items)}"
    if len(line) <= _WIDTH:
        return line
    lines, current = [f"{name} = ["], ""
    for item in items:
        cell = f'"{item}",'
        if current and len(_INDENT + current) + 1 + len(cell) > _WIDTH:
            lines.append(_INDENT + current)
            current = ""
        current = f"{current} {cell}".strip()
    return "\n".join([*lines, _INDENT + current, "]"])
