"""The order of versions and their release lines, by the numbers in them."""

from __future__ import annotations

import functools
import re


@functools.cache
def order(version: str) -> tuple[int, ...]:
    """Return a sort key of a version: the numbers in it (``2.18.3-1`` -> ``(2, 18, 3, 1)``)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def older(version: str, than: str) -> bool:
    """Return whether a version is older than another, by their common numbers: ``9`` is not older than ``9.3``."""
    numbers = order(version)
    return numbers < order(than)[: len(numbers)]


def line(version: str) -> str:
    """Return the release line of a version: ``12.1.1`` -> ``12.1``."""
    return ".".join(version.split(".")[:2])
