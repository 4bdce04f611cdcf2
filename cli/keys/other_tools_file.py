"""The file of another tool that ``slipway new --from`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from containers.errors import SlipwayError

_MOST: Final = 1 << 20
"""Most bytes of a file."""


def content(path: Path, expected: str) -> bytes:
    """Return a file's content; ``expected`` is the kind of file, for the error.

    Raises SlipwayError: it cannot be read, or is too large.
    """
    try:
        read = path.read_bytes()
    except OSError as error:
        raise SlipwayError(f"--from {path}: cannot be read: {error.strerror}") from None
    if len(read) > _MOST:
        raise SlipwayError(f"--from {path}: is larger than {_MOST >> 20} MiB: expected {expected}")
    return read
