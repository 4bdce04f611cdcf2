"""The error that a user sees: one line for each mistake, never a traceback."""

from __future__ import annotations

import difflib
import io
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath
from typing import Final

MOST_LINES: Final = 30
"""Lines of one error, below its header."""

_NO_ZSTD: Final = re.compile(r"failed to (?:register|extract) layer\b.*archive/tar: invalid tar header")
"""What an engine says of a layer of zstd that it cannot read: Docker 20.10.24, at a pull, a run and a build, and
containerd 1.4.11, of a pod (home-operations/containers#1177)."""

MALFORMED: Final = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What is raised where a document that was read is not of the shape that its source documents."""


class SlipwayError(Exception):
    """A mistake of the user, or a fault of the machine; ``str()`` has one line for each, without control characters."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shown(str(message)))


def one_line(value: object, limit: int = 120) -> str:
    """Show ``value`` on one line, at most ``limit`` characters long.

    Control characters are escaped. In an address, everything up to the last ``@`` may be a credential and is starred.
    """
    text = value if isinstance(value, str) else repr(value)
    start, end = text.find("//"), text.rfind("@")
    if 0 <= start < end - 1:
        text = f"{text[:start]}//***{text[end:]}"
    text = printable(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """Return a text with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """Return a text of several lines with its other control characters escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(printable, text.split("\n")))


class Shown(io.TextIOWrapper):
    """A stream of text that somebody reads: a terminal, or the log of a job, which takes some lines as commands.

    Names, labels, versions and messages come from images, registries, engines and clusters. So everything that is
    printed passes here, whatever it is: control characters are escaped, and no line begins a command of GitHub's
    (actions/runner, src/Runner.Common/ActionCommand.cs: ``::`` at the beginning, ``##[`` anywhere).
    """

    _blank = True

    def write(self, text: str, /) -> int:
        """Write a text, which may be a part of a line."""
        lines = shown(text).split("\n")
        for number, line in enumerate(lines):
            self._blank = self._blank if number == 0 else True
            start = line.lstrip()
            if self._blank and start.startswith("::"):
                line = line.replace("::", ": :", 1)  # noqa: PLW2901 - the line that is written
            lines[number] = line.replace("##[", "## [")
            self._blank = self._blank and not start
        super().write("\n".join(lines))
        return len(text)

    def write_control(self, text: str) -> int:
        """Write a text of ours with its control characters."""
        return super().write(text)


def clean_output() -> None:
    """Let all that this process prints pass :class:`Shown`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, Shown):
            buffering, encoding = stream.line_buffering, stream.encoding
            setattr(sys, name, Shown(stream.detach(), encoding, "backslashreplace", line_buffering=buffering))


def abridged(names: Sequence[str], most: int = 1) -> str:
    """Return the first ``most`` names as words of a line, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def quoted(value: object, limit: int = 120) -> str:
    """Return a value on one line in quotes, or ``none`` for None."""
    return "none" if value is None else f"'{one_line(value, limit)}'"


def suggest(value: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest of ``allowed``, or an empty text when none is near."""
    near = difflib.get_close_matches(value, list(allowed), cutoff=0.61)  # `target` is no `args`
    return f" (did you mean '{near[0]}'?)" if near else ""


def engine_advice(message: str) -> str:
    """Return what to do about an engine's message, as the end of its line; empty if that is not known."""
    if not _NO_ZSTD.search(message):
        return ""
    return (
        "; an engine that knows no zstd says so: update it, Docker to 23.0 or containerd to 1.5, or publish the image "
        "with slipway:compression: {kind: gzip}"
    )


def builds_no(name: str, names: Collection[str]) -> str:
    """Return the end of an error about an unknown image: its name, the nearest one, and what the stack builds."""
    return f"builds no image '{one_line(name)}'{suggest(name, names)}; it builds: {', '.join(names) or 'none'}"


def listing(header: str, lines: Sequence[str], rest: str = "") -> str:
    """Return a header with its lines below, at most :data:`MOST_LINES`; ``rest`` says where the others are."""
    more = [f"and {len(lines) - MOST_LINES} more{rest}"] if len(lines) > MOST_LINES else []
    return "\n".join([header, *(f"  {line}" for line in [*lines[:MOST_LINES], *more])])


def out_of_time(command: object, seconds: float) -> str:
    """Say on one line which program did not end. Its arguments may hold a credential, so only its name is given."""
    program = command[0] if isinstance(command, list | tuple) else command
    name = one_line(PurePath(str(program)).name)
    return f"{name} did not end within {seconds:.0f} s: it may wait for a network or a lock; run this again"
