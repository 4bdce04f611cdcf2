"""The single values in which two nested mappings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


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
