"""Signals that end a command as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


def interrupt_on_signals() -> None:
    """Have SIGTERM and SIGHUP raise KeyboardInterrupt; a hangup that is ignored, as below nohup, stays so."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)


def _hang_up(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt once: a closed terminal's shell sends a hangup, and the kernel may send another."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
