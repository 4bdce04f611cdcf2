"""Run a program and measure its time, and the CPU time and memory of it and its descendants."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from containers.errors import SlipwayError

_SAMPLE_SECONDS: Final = 0.02
"""Interval of memory samples, in runs that measure memory."""
_TERM_SECONDS: Final = 10.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
"""CPU time of a second, as `/proc` counts it."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class MeasuredRun:
    """A successful run of a program.

    ``seconds`` is wall time; ``peak`` is the largest resident size of its processes in bytes, 0 if not watched.
    ``cpu`` is their CPU time in seconds.
    """

    seconds: float
    peak: int
    output: str
    cpu: float


def run(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], watch: bool = False, seconds: float = 1800
) -> MeasuredRun:
    """Run a program to its end; ``watch`` samples its memory, which takes some of the machine's time.

    Raises:
        SlipwayError: the program is missing, fails or takes longer than ``seconds``; with the end of its output.
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
            raise SlipwayError(f"`{argv[0]}`: {error.strerror}") from None
        before = _of_children()  # not earlier: a new process reaps those that were left
        with _stopped(process), _watched(process.pid) if watch else nullcontext(lambda: 0) as peak:
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise SlipwayError(f"`{' '.join(argv[:3])}` did not end within {seconds:.0f} s") from None
        duration, cpu = time.monotonic() - began, _of_children() - before
        log.seek(0)
        output = log.read()
    if code:
        lines = " | ".join(line.strip() for line in output.splitlines() if line.strip())
        raise SlipwayError(f"`{' '.join(argv[:3])}` in {cwd} failed ({code}): ...{lines[-600:]}")
    return MeasuredRun(duration, peak(), output, cpu)


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
    return _PAGE * sum(_fields(root, 24, 24))


def processor_seconds(root: int) -> float:
    """Return the CPU time of a process and its descendants in seconds, with that of the ended ones.

    A descendant that nobody waited for is missing.
    """
    return sum(_fields(root, 14, 17)) / _TICKS


def _fields(root: int, first: int, last: int) -> Iterator[int]:
    """Yield some fields of `/proc/[pid]/stat` of a process and its descendants, by their numbers in proc(5)."""
    parents: dict[int, int] = {}
    values: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process ended
        pid = int(folder.name)
        # After the name come field 3, state, and field 4, ppid.
        parents[pid], values[pid] = int(fields[1]), [int(field) for field in fields[first - 3 : last - 2]]
    family = {root} & set(parents)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        yield from values[pid]


def _of_children() -> float:
    """Return the CPU time in seconds of all children that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def alternate(rounds: Iterator[int], *actions: Callable[[], Value]) -> list[list[Value]]:
    """Run the actions in turn and return the values of each, so that other load affects them alike."""
    values: list[list[Value]] = [[] for _ in actions]
    for number in rounds:
        order = list(enumerate(actions))
        for index, action in order if number % 2 == 0 else reversed(order):
            values[index].append(action())
    return values
