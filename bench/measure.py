"""Run a program and measure its time, and the memory of it and its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.bench_error import BenchError

_SAMPLE_SECONDS: Final = 0.02
"""Interval of memory samples, in runs that measure memory."""
_TERM_SECONDS: Final = 10.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Run:
    """A successful run of a program.

    ``seconds`` is wall time; ``peak`` is the largest resident size of its processes in bytes, 0 if not watched.
    """

    seconds: float
    peak: int
    output: str


def run(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], watch: bool = False, seconds: float = 1800
) -> Run:
    """Run a program to its end; ``watch`` samples its memory, which takes some of the machine's time.

    Raises:
        BenchError: the program is missing, fails or takes longer than ``seconds``; with the end of its output.
    """
    argv = [str(word) for word in words]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(f"`{argv[0]}`: {error.strerror}") from None
        with _stopped(process), _watched(process.pid) if watch else nullcontext(lambda: 0) as peak:
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise BenchError(f"`{' '.join(argv[:3])}` did not end within {seconds:.0f} s") from None
        duration = time.monotonic() - began
        log.seek(0)
        output = log.read()
    if code:
        lines = " | ".join(line.strip() for line in output.splitlines() if line.strip())
        raise BenchError(f"`{' '.join(argv[:3])}` in {cwd} failed ({code}): ...{lines[-600:]}")
    return Run(duration, peak(), output)


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the program and its children if this run ends first, for example on Ctrl-C."""
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
def _watched(pid: int) -> Iterator[Callable[[], int]]:
    peak = 0
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_SECONDS):
            peak = max(peak, resident(pid))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        done.set()
        thread.join()


def resident(root: int) -> int:
    """Return the resident bytes of a process and its descendants; shared memory counts for each."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process ended
        # proc(5), /proc/[pid]/stat: after the name come state, ppid, ...; rss is field 24, counted from the pid as 1.
        pid = int(folder.name)
        parents[pid], pages[pid] = int(fields[1]), int(fields[21])
    family = {root} & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return _PAGE * sum(pages[pid] for pid in family)


def alternate(rounds: Iterator[int], *actions: Callable[[], float]) -> list[list[float]]:
    """Run the actions in turn and return the values of each, so that other load affects them alike."""
    values: list[list[float]] = [[] for _ in actions]
    for number in rounds:
        order = list(enumerate(actions))
        for index, action in order if number % 2 == 0 else reversed(order):
            values[index].append(action())
    return values
