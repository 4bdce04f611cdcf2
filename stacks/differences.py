"""What an image is made of, in the terms in which a preview and ``python -m stacks diff`` compare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

SHORT: Final = 12
"""Hexadecimal digits of a file's hash that are shown."""


def shown(
    *,
    args: Mapping[str, str],
    files: Mapping[str, str],
    labels: Mapping[str, str],
    parents: Mapping[str, str],
    platform: str,
    tag: str,
    target: str | None,
) -> dict[str, Any]:
    """Return what an image is made of, all of it known before anything is built.

    ``files`` are SHA-256 in hexadecimal; ``parents`` maps arguments to the ``name:tag`` of sibling images.
    """
    return {
        "args": dict(args),
        "files": {path: content[:SHORT] for path, content in files.items()},
        "labels": dict(labels),
        "parents": dict(parents),
        "platform": platform,
        "tag": tag,
        "target": target,
    }


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
