"""Signals that end a command as Ctrl-C does, and the command's leftovers."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def ending_signals() -> list[signal.Signals]:
    """Return the signals besides SIGINT that end a command. A hangup that is ignored, as below nohup, is none."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def end_quietly() -> None:
    """Have Ctrl-C end this process without a traceback, as while it imports; until :func:`interrupt_on_signals`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in a background job
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_on_signals() -> None:
    """Have the ending signals raise KeyboardInterrupt. After one, only Ctrl-C does so again: the command is ending.

    A closed terminal's shell sends a hangup, and the kernel may send another. GitHub's runner sends SIGINT to a
    cancelled job, and SIGTERM 7.5 s later (actions/runner 258d6c85, src/Runner.Sdk/ProcessInvoker.cs:448).
    """
    interrupted = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        again, interrupted = interrupted, True
        if not again or number == signal.SIGINT:
            raise KeyboardInterrupt

    # Ctrl-C is ignored in a background job of a script.
    numbers = [signal.SIGINT] if signal.getsignal(signal.SIGINT) != signal.SIG_IGN else []
    for number in (*numbers, *ending_signals()):
        signal.signal(number, interrupt)


@contextmanager
def undivided() -> Iterator[None]:
    """Run a block to its end before a signal ends the command. The programs that it starts are left alone, too.

    It is for a program that changes several files within seconds: `subprocess.run` kills what it waits for.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remove_folder(folder: Path) -> None:
    """Remove a folder. A command that ends meanwhile leaves all of it, or nothing of this name."""
    gone = folder if folder.name.startswith(".") else folder.with_name(f".{folder.name}-gone")
    if gone != folder:
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(OSError):
            folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
