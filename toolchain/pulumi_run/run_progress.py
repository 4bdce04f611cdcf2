"""Progress while Pulumi runs: one line that is rewritten on a terminal, occasional lines in a log."""

import re
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Final, Self

from containers import color
from containers.errors import printable, shown
from toolchain.machine.steps import HEARTBEAT_SECONDS, elapsed, write

_TERMINAL_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class RunProgress:
    """Prints lines, and between them the status of the running steps; nothing if it is ``quiet``."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stdout.isatty()
        self._colored = color.wanted(sys.stdout)
        self._begun: dict[str, float] = {}
        self._status: dict[str, str] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._pulse.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._pulse.join()
        self.say()

    def say(self, *lines: str) -> None:
        """Print lines at once, in place of the line that is rewritten. Steps' output controls no terminal."""
        if self._quiet:
            return
        plain = [line for text in lines for line in shown(_TERMINAL_CODES.sub("", text)).split("\n")]
        erase = "\r\x1b[K" if self._terminal else ""
        text = erase + "".join(f"{color.painted(line) if self._colored else line}\n" for line in plain)
        with self._lock:
            write(text)

    def begin(self, step: str) -> None:
        """Record the start of a step."""
        with self._lock:
            self._begun[step] = time.monotonic()

    def status(self, step: str, line: str) -> None:
        """Record the status of a running step."""
        with self._lock:
            if step in self._begun:
                self._status[step] = printable(_TERMINAL_CODES.sub("", line).strip())

    def end(self, step: str) -> str:
        """Record the end of a step. Returns how long it ran, such as `3 min 9 s`."""
        with self._lock:
            self._status.pop(step, None)
            return elapsed(time.monotonic() - self._begun.pop(step, time.monotonic()))

    def _beat(self) -> None:
        while not self._done.wait(1.0 if self._terminal else HEARTBEAT_SECONDS):
            with self._lock:
                lines = [self._line(step) for step in self._begun]
            if self._terminal and lines and not self._quiet:
                more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
                width = max(shutil.get_terminal_size().columns - len(more) - 1, 1)
                with self._lock:
                    write(f"\r\x1b[K{lines[0][:width]}{more}")
            elif lines:
                self.say(*(f"  still running: {line}" for line in lines))

    def _line(self, step: str) -> str:
        status = self._status.get(step, "")
        return f"{step} ({elapsed(time.monotonic() - self._begun[step])})" + (f": {status}" if status else "")
