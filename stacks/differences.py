"""The single values in which two nested mappings differ, and a form of file lists in which Pulumi prints no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def file_list(files: Mapping[str, str]) -> str:
    """Return files and their hashes as a text: how many there are, then a line `hash  path` for each.

    Pulumi prints no more than three lines of a text that has not changed, and of one that has only the lines around
    the changes. The two blank lines leave the number alone to be printed.
    """
    lines = (f"{content}  {path}" for path, content in sorted(files.items()))
    return "\n".join([f"{len(files)} files", "", "", *lines])


def listed_files(text: str | Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each file of :func:`file_list`. A mapping is what older states have instead of the text."""
    if not isinstance(text, str):
        return dict(text)
    return {path: content for content, _, path in (line.partition("  ") for line in text.splitlines()[3:])}


def leaves(value: Any, *way: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the single values of nested mappings, each with the way to it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, *way, key)
    else:
        yield way, value


def differences(before: Any, after: Any) -> list[tuple[tuple[str, ...], Any, Any]]:
    """Return the single values that differ, each with the way to it; None where there is none."""
    ours, theirs = dict(leaves(before)), dict(leaves(after))
    ways = {**theirs, **ours}
    return [(way, ours.get(way), theirs.get(way)) for way in ways if ours.get(way) != theirs.get(way)]
