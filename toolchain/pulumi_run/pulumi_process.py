"""Pulumi as a child process, which gets Ctrl-C exactly once."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from containers.interruption import INTERRUPTED, ending_signals
from toolchain.machine import steps


def run(
    argv: list[str], environment: Mapping[str, str], cwd: Path, follow: Callable[[Iterable[str]], None] | None = None
) -> int:
    """Run Pulumi and return its exit status as a shell gives it. `follow` takes the lines that it prints.

    After a signal it is INTERRUPTED: a `pulumi destroy` that was cancelled between two resources ends with 0.

    A second Ctrl-C makes Pulumi drop everything at once, and SIGTERM counts as one (pulumi v3.256.0,
    pkg/backend/cancellation_scope.go:118): after the first signal, only a user's Ctrl-C is passed on. A terminal sends
    Ctrl-C to all of its foreground processes, Pulumi among them. Without a terminal Pulumi has a process group of its
    own, and gets the signals that this process gets.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    process: subprocess.Popen[str] | None = None
    interrupted = threading.Event()
    early = False

    def forward(number: int, _frame: object) -> None:
        nonlocal early
        again = interrupted.is_set() and number != signal.SIGINT
        interrupted.set()
        if process is None:
            early = True
        elif not again and not (terminal and number == signal.SIGINT):
            process.send_signal(signal.SIGINT)

    handlers = {number: signal.signal(number, forward) for number in (signal.SIGINT, *ending_signals())}
    try:
        # A closed terminal hangs up on Pulumi too, which would end at once. What is ignored stays so in a program.
        hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd=cwd,
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=subprocess.PIPE if follow else None,
            text=True,
            errors="replace",
            process_group=None if terminal else 0,
            pass_fds=steps.inherited,
        )
        signal.signal(signal.SIGHUP, hangup)
        if early:
            process.send_signal(signal.SIGINT)
        if follow:
            _follow(process, follow, interrupted)
        code = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if interrupted.is_set():
        return INTERRUPTED
    return code if code >= 0 else 128 - code


def _follow(
    process: subprocess.Popen[str], follow: Callable[[Iterable[str]], None], interrupted: threading.Event
) -> None:
    """Pass the lines on. If that fails, interrupt Pulumi and read to its end: otherwise it would block or crash.

    Ctrl-C in `make up | tee log` ends `tee` too: Pulumi is interrupted already when its lines cannot be printed.
    """
    lines = iter(process.stdout or ())
    try:
        follow(lines)
    except BaseException:
        if not interrupted.is_set():
            process.send_signal(signal.SIGINT)
        for _ in lines:
            pass
        process.wait()
        raise
