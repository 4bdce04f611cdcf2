"""Runs a program and measures it: the time it takes, and the memory that it and its children hold."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.bench_error import BenchError

_LOOK_SECONDS: Final = 0.02
"""How often memory is looked at, in the runs that measure it."""
_TERM_SECONDS: Final = 10.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Run:
    """A program that ended well.

    ``seconds`` is wall time, ``peak`` the most bytes that its processes held at once (0 where not watched).
    """

    seconds: float
    peak: int
    output: str


def run(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], watch: bool = False, seconds: float = 1800
) -> Run:
    """Run a program to its end; with ``watch`` look at its memory, which costs some of the machine's time.

    Raises:
        BenchError: the program is missing, fails or takes longer than ``seconds``; with its last words.
    """
    argv = [str(word) for word in words]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(f"`{argv[0]}`: {error.strerror}") from None
        with _ended(process), _watching(process.pid) if watch else _blind() as peak:
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise BenchError(f"`{' '.join(argv[:3])}` did not end within {seconds:.0f} s") from None
        took = time.monotonic() - began
        said.seek(0)
        output = said.read()
    if code:
        words_of = " | ".join(line.strip() for line in output.splitlines() if line.strip())
        raise BenchError(f"`{' '.join(argv[:3])}` in {cwd} failed ({code}): ...{words_of[-600:]}")
    return Run(took, peak(), output)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the program and its children when this run ends before it, on Ctrl-C for instance."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_TERM_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def _blind() -> Iterator[Callable[[], int]]:
    yield lambda: 0


@contextmanager
def _watching(pid: int) -> Iterator[Callable[[], int]]:
    peak = 0
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(_LOOK_SECONDS):
            peak = max(peak, resident(pid))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        done.set()
        thread.join()


def resident(root: int) -> int:
    """Return the resident bytes of a process and all its descendants; what they share counts for each."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        # proc(5), /proc/[pid]/stat: after the name come state, ppid, ...; rss is field 24, counted from the pid as 1.
        pid = int(folder.name)
        parents[pid], pages[pid] = int(fields[1]), int(fields[21])
    family = {root} & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return _PAGE * sum(pages[pid] for pid in family)


def alternate(rounds: Iterator[int], *actions: Callable[[], float]) -> list[list[float]]:
    """Do all actions in turn, A B A B, and return each one's values: what disturbs the machine disturbs them alike."""
    values: list[list[float]] = [[] for _ in actions]
    for number in rounds:
        order = list(enumerate(actions))
        for place, action in order if number % 2 == 0 else reversed(order):
            values[place].append(action())
    return values
