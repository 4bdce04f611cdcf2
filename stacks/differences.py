"""Compare nested mappings value by value, and write file lists so that Pulumi prints only their changes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from containers.errors import one_line, quoted
from containers.platform_name import architecture
from containers.secret_words import HIDDEN, continued_secrets, without_secrets

_MOST_LISTED: Final = 3
"""Differences that are printed for an image; the first ones are the causes."""
_LONGEST: Final = 60
"""Characters of a value that are printed."""
_MOST_LINES: Final = 8
"""Changed lines of a file that are printed."""
_MOST_COMPARED: Final = 5000
"""Lines of a file that is compared."""
_LINE: Final = 120
"""Characters of a line that are printed; one with more is divided where a command of a shell or an option begins."""
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


def listed_files(text: str) -> dict[str, str]:
    """Return the hash of each file of :func:`file_list`."""
    return {path: content for content, _, path in (line.partition("  ") for line in text.splitlines()[3:])}


def published_contents(outputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the contents of an image (:attr:`stacks.plan.PlannedImage.contents`) by its stack's outputs.

    They are empty for an image without any.
    """
    known = outputs.get("plan", {}).get(name, {})
    listed = outputs.get("planFiles", {}).get(name, "")
    return {**known, "files": listed_files(listed)} if known or listed else {}


def platform_parts(images: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the images in a stack's outputs by their names in the stack: in place of an index, its platforms'."""
    result: dict[str, Mapping[str, Any]] = {}
    for name, image in images.items():
        platforms = image.get("platforms")
        own = {f"{name}-{architecture(platform)}": part for platform, part in platforms.items()} if platforms else {}
        result |= own or {name: image}
    return result


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


def changed_lines(before: str, after: str) -> list[str]:
    """Return the lines that differ, after ``-`` or ``+``: the first ones, without secrets, and how many more there are.

    None is returned of texts that are too long to compare.
    """
    ours, theirs = _parts(before), _parts(after)
    if max(len(ours), len(theirs)) > _MOST_COMPARED:
        return []
    sides = [[*zip(side, continued_secrets(side), strict=True)] for side in (ours, theirs)]
    lines = [
        f"{mark} {HIDDEN if inside else without_secrets(line, _LINE)}"
        for op, *(start, end, first, last) in difflib.SequenceMatcher(None, ours, theirs).get_opcodes()
        if op != "equal"
        for mark, side in (("-", sides[0][start:end]), ("+", sides[1][first:last]))
        for line, inside in side
    ]
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"... and {more} more lines"] if more > 0 else [])]


_DIVISION: Final = re.compile(r" (?=(?:&&|\|\||--[a-z]+=) ?\S)|(?<=;) ")


def _parts(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in (_DIVISION.split(line) if len(line) > _LINE else [line])]


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
