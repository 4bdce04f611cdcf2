"""Signals that end a command as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


def ending_signals() -> list[signal.Signals]:
    """Return the signals besides SIGINT that end a command. A hangup that is ignored, as below nohup, is none."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def interrupt_on_signals() -> None:
    """Have the ending signals raise KeyboardInterrupt."""
    for number in ending_signals():
        signal.signal(number, _hang_up if number == signal.SIGHUP else signal.default_int_handler)


def _hang_up(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt once: a closed terminal's shell sends a hangup, and the kernel may send another."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
