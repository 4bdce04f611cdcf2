"""The progress of an export on standard error: updated in place on a terminal, occasional lines in a log."""

from __future__ import annotations

import io
import sys
import time
from typing import IO, Any, Final, cast

from containers.errors import one_line
from containers.image.node_pull import size

_INTERVALS: Final = (0.5, 20.0)
"""Seconds between two reports on a terminal, and in a log."""


class Progress:
    """Counts the bytes of one step against their expected total."""

    def __init__(self, title: str, total: int) -> None:
        self._title = one_line(title)
        self._total = total
        self._done = 0
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + _INTERVALS[not self._terminal]

    def through(self, stream: IO[bytes], before: int) -> IO[bytes]:
        """Return a stream that counts the bytes read from it; ``before`` are those of earlier streams."""
        self._done = before
        return cast("IO[bytes]", io.BufferedReader(_Counted(stream, self), 1 << 16))

    def add(self, count: int) -> None:
        """Count bytes, and report them after each interval."""
        self._done += count
        if time.monotonic() >= self._next:
            self._report("\r" if self._terminal else "", "" if self._terminal else "\n")
            self._next = time.monotonic() + _INTERVALS[not self._terminal]

    def close(self) -> None:
        """Report the final number."""
        self._total = self._done
        self._report("\r" if self._terminal else "", "\n")

    def _report(self, start: str, end: str) -> None:
        total = f" of {size(self._total)}" if self._done < self._total else ""
        rest = "\x1b[K" if self._terminal else ""  # clears the rest of a longer line
        line = f"{start}{self._title}: {size(self._done)}{total}{rest}{end}"
        getattr(sys.stderr, "write_control", sys.stderr.write)(line)
        sys.stderr.flush()


class _Counted(io.RawIOBase):
    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream = stream
        self._progress = progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._progress.add(len(chunk))
        return len(chunk)
