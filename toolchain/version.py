"""Versions as they compare."""

import re


def numbers(text: str) -> tuple[int, ...]:
    """Return the first three numbers of a version: `go1.26.8` is (1, 26, 8)."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
