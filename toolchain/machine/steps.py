"""Long steps: a line at the start, progress, and a line with the duration at the end. Two may run at once."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from containers.child_program import run_program
from toolchain.machine.toolchain_error import ToolchainError

HEARTBEAT_SECONDS: Final = 20.0
"""Interval of progress lines in a log."""
TICK_SECONDS: Final = 1.0
"""Interval in which a terminal shows what runs, and for how long."""
END_SECONDS: Final = 5.0
"""How long a program may take to end where the run is interrupted."""

LONGEST_SECONDS: Final = 7200
"""How long a step's program may take: Pulumi's build takes minutes, a slow download an hour."""

_ERASE: Final = "\r\x1b[K"
"""Moves a terminal to the start of its line, and empties that."""

_running: dict[str, float] = {}
"""The steps that run, and when each began."""
_printing: Final = threading.RLock()
_programs: set[subprocess.Popen[bytes]] = set()
"""The programs that :func:`command` runs."""
_ended = threading.Event()
"""Set once the run is to end: then no program is started."""
_starting: Final = threading.Lock()

inherited: list[int] = []
"""File descriptors that every program of a step gets: the checkout's lock."""


def elapsed(seconds: float) -> str:
    """Return a duration as text: `4 s`, `3 min 9 s`."""
    rounded = round(seconds)
    return f"{rounded} s" if rounded < 60 else f"{rounded // 60} min {rounded % 60} s"


def say(line: str) -> None:
    """Print a line."""
    write(f"{line}\n")


def write(text: str) -> None:
    """Print at once and in one piece: a log that is read while it grows has it in order, and other threads print too.

    Where nobody reads standard output any more, as after `| head`, standard error is the output from now on: what runs
    is not ended by that, and how it ends is told. Where nobody reads that either, the rest goes nowhere.
    """
    with _printing:
        try:
            print(text, end="", flush=True)
        except BrokenPipeError:
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what a buffer still has would fail once more
            if sys.stdout is not sys.stderr:
                sys.stdout = sys.stderr
                write(text)


@contextmanager
def step(title: str, detail: str = "") -> Iterator[None]:
    """Print that a step runs, and its duration at the end. After a failure only the error follows.

    `detail` is printed once, at the beginning.
    """
    begun = time.monotonic()
    done = threading.Event()
    terminal = sys.stdout.isatty()

    def beat() -> None:
        while not done.wait(TICK_SECONDS if terminal else HEARTBEAT_SECONDS):
            now = time.monotonic()
            with _printing:
                if terminal:
                    durations = ", ".join(f"{each} ... {elapsed(now - since)}" for each, since in _running.items())
                    write(f"{_ERASE}{durations} ")
                else:
                    write(f"  still running: {title} ({elapsed(now - begun)})\n")

    heading = f"{title} ({detail})" if detail else title
    with _printing:
        _running[title] = begun
        if terminal:
            write(f"{_ERASE}{heading}\n" if detail else f"{_ERASE}{heading} ...")
        else:
            write(f"{heading} ...\n")
    pulse = threading.Thread(target=beat, daemon=True)
    pulse.start()
    finished = False
    try:
        yield
        finished = True
    finally:
        done.set()
        pulse.join()
        with _printing:
            del _running[title]
            if finished:
                start = _ERASE if terminal else ""
                write(f"{start}{title}: done in {elapsed(time.monotonic() - begun)}\n")
            elif terminal:
                write("\n")


def last_line(text: str) -> str:
    """Return the last line of a program's output that is not blank, for an error of one line."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


def command(
    argv: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = LONGEST_SECONDS,
) -> None:
    """Run a program to its end, its output in `log`.

    `timeout` is in seconds. Raises ToolchainError after a failure: one line with the program's last line and the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            with _starting:
                if _ended.is_set():
                    raise ToolchainError(f"`{argv[0]}` was not started, as the run was ended")
                process = subprocess.Popen(
                    [str(word) for word in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=child_environment(argv[0]) if env is None else env,
                    cwd=cwd,
                    pass_fds=inherited,
                )
                _programs.add(process)
            with process:
                try:
                    code = process.wait(timeout)
                finally:
                    process.kill()  # which does nothing after its end
                    with _starting:
                        _programs.discard(process)
        except FileNotFoundError:
            raise ToolchainError(f"`{argv[0]}` is not installed on this machine") from None
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"`{argv[0]}` did not end within {timeout:.0f} s; its output is in {log}") from None
    if code:
        words = last_line(log.read_text(errors="replace"))
        raise ToolchainError(
            f"`{' '.join(str(word) for word in argv[:4])} ...` failed ({code}): {words}; all output is in {log}"
        )


def end_programs() -> None:
    """End what :func:`command` runs in other threads, and let it start nothing more.

    A program that has not ended some seconds after it was asked to is killed.
    """
    with _starting:
        _ended.set()
        for process in _programs:
            process.terminate()
        for process in _programs:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()


def output(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 10.0
) -> str:
    """Run a short program and return its stdout without the final newline.

    Raises ToolchainError with its last line if it fails, is missing or does not end within `timeout` seconds.
    """
    try:
        done = run_program(argv, timeout, env=env, cwd=cwd)
    except OSError as error:
        raise ToolchainError(f"`{argv[0]}`: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"`{argv[0]}` did not answer within {timeout:.0f} s") from None
    if done.returncode:
        raise ToolchainError(last_line(done.stderr or done.stdout))
    return done.stdout.rstrip("\n")
