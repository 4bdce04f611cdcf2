"""Color on a terminal: new is green, gone or wrong red, changed yellow."""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

_COLORS: Final = (
    (re.compile(r"\s*\+- "), "33"),
    (re.compile(r"\s*\+\??\s"), "32"),
    (re.compile(r"\s*-\??\s"), "31"),
    (re.compile(r"\s*[~!]\??\s"), "33"),
    (re.compile(r"error: |slipway: "), "1;31"),
    (re.compile(r"warning: "), "33"),
)
"""The beginnings of lines that have a color, and its code (ECMA-48, SGR); the first match counts."""


def wanted(stream: TextIO) -> bool:
    """Return whether lines for a stream have colors: on a terminal, unless NO_COLOR is set; FORCE_COLOR wins over both.

    Each counts if it is not empty (https://no-color.org, https://force-color.org).
    """
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def code(line: str) -> str | None:
    """Return the code of the color of a line; None for one without."""
    return next((color for pattern, color in _COLORS if pattern.match(line)), None)


def painted(line: str) -> str:
    """Return a line with the control characters of its color. The line itself must have none."""
    color = code(line)
    return f"\x1b[{color}m{line}\x1b[0m" if color else line


def write(text: str, stream: TextIO, *, plain: bool = False) -> None:
    """Write a text and a line feed, with color if the stream wants it; ``plain`` is for what has a form of its own."""
    control = getattr(stream, "write_control", stream.write)
    colored = not plain and wanted(stream)
    for line in text.split("\n"):
        start = code(line) if colored else None
        if start:
            control(f"\x1b[{start}m")
        stream.write(line)
        if start:
            control("\x1b[0m")
        stream.write("\n")
