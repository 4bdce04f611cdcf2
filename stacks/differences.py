"""Compare nested mappings value by value, and write file lists so that Pulumi prints only their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def file_list(files: Mapping[str, str]) -> str:
    """Return files and their hashes as a text: how many there are, then a line `hash  path` for each.

    Pulumi prints at most three lines of an unchanged text. Of a changed text it prints the lines around the changes.
    With two blank lines after the number, an unchanged list prints its number alone. Each line has its end, so that a
    new last line changes no other.
    """
    lines = (f"{content}  {path}" for path, content in sorted(files.items()))
    return "\n".join([f"{len(files)} files", "", "", *lines, ""])


def listed_files(text: str | Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each file of :func:`file_list`. Older states hold a mapping instead of the text."""
    if not isinstance(text, str):
        return dict(text)
    return {path: content for content, _, path in (line.partition("  ") for line in text.splitlines()[3:])}


def leaves(value: Any, *way: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the single values of nested mappings, each after the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, *way, key)
    else:
        yield way, value


def differences(before: Any, after: Any) -> list[tuple[tuple[str, ...], Any, Any]]:
    """Return the single values that differ, each after its keys; None is a missing value."""
    ours, theirs = dict(leaves(before)), dict(leaves(after))
    ways = {**theirs, **ours}
    return [(way, ours.get(way), theirs.get(way)) for way in ways if ours.get(way) != theirs.get(way)]
