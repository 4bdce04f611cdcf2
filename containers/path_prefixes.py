"""The folders that a path leads through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate


def prefixes(path: str) -> Iterator[str]:
    """Yield the folders above a path without a slash at its beginning, the highest first, and the path itself."""
    return accumulate(path.split("/"), "{}/{}".format)
