"""Compare nested mappings value by value, and write file lists so that Pulumi prints only their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from containers.errors import one_line, quoted

_MOST_LISTED: Final = 3
"""Differences that are printed for an image; the first ones are the causes."""
_LONGEST: Final = 60
"""Characters of a value that are printed."""
_DERIVED: Final = {"suffix", "labels"}
"""Parts that mostly follow from arguments: they are printed only where nothing else differs."""


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


def causes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return in words what differs between the facts of two images (:attr:`stacks.identity.content.Content.facts`)."""
    ours, theirs = dict(leaves(before)), dict(leaves(after))
    keys = {**theirs, **ours}
    parts = list(dict.fromkeys(part for part, *_ in keys))
    different = sorted((key for key in keys if ours.get(key) != theirs.get(key)), key=lambda key: parts.index(key[0]))
    primary = [key for key in different if key[0] not in _DERIVED]
    return [_difference(key, ours.get(key), theirs.get(key)) for key in primary or different]


def _difference(keys: tuple[str, ...], before: object, after: object) -> str:
    name = " ".join(one_line(key) for key in keys)
    if keys[0] == "files":
        return f"{name} {'added' if before is None else 'removed' if after is None else 'changed'}"
    return f"{name} {quoted(before, _LONGEST)} -> {quoted(after, _LONGEST)}"


def first_ones(reasons: Sequence[str]) -> str:
    """Return reasons on one line: the first ones, and how many more there are."""
    more = len(reasons) - _MOST_LISTED
    return "; ".join([*reasons[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])])
