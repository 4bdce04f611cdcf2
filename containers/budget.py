"""What the reading of images may take: memory, processor time, and time that a sender lets pass.

Whoever made an image decides how many names, headers, tables and layers it has, and what each of them expands to. So
none of them is counted: the kernel bounds the memory of the process that reads, and a timer its processor time.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.errors import SlipwayError

_MEMORY: Final = 384 << 20
"""Bytes that a process may grow by while it reads; an image of 5.8 GB with torch takes 90 MB."""
_SECONDS: Final = 30
"""Seconds of the processor for images of any size."""
_BYTES_A_SECOND: Final = 20 << 20
"""Bytes of blobs for a further second; of that image, 350 MB take one."""
_HASHED_A_SECOND, _MOST_HASHED = 1 << 30, 28 << 30
"""Bytes of archives that are hashed for a further second, and the most that count: a GiB takes 0.6 s, and zeros without
end, which are few bytes to send, less than a minute."""
_PATIENCE: Final = 45
"""Seconds for which a sender may send nothing, all pauses together."""
_SLOWEST: Final = 50_000
"""Bytes that buy a sender a further second."""
_EACH: Final = 255
"""Checks, less one, of which each asks the clock: a power of two."""
_CODE: Final = Path(__file__).parents[1]

Result = TypeVar("Result")


class Budget:
    """The remaining budget of the images in ``subject``: further bytes buy further seconds."""

    def __init__(self, subject: str) -> None:
        self.refusal = ""
        self._subject = subject
        self._start = time.process_time()
        self._bytes, self._hashed, self._waited, self._checks = 0, 0, 0.0, 0

    def receive(self, source: Callable[[int], bytes], size: int) -> bytes:
        """Return the next bytes of a blob, at most ``size``.

        Raises SlipwayError: the sender is too slow, or the processor's time is spent.
        """
        start = time.monotonic()
        content = source(size)
        self._waited += time.monotonic() - start
        self._bytes += len(content)
        if self._waited > _PATIENCE + self._bytes / _SLOWEST:
            self.refusal = (
                f"{self._subject}: refused: {self._bytes:,} bytes took {self._waited:.0f} s to come; expected "
                f"{_PATIENCE} s, and a second more for each {_SLOWEST:,} bytes"
            )
        self.check()
        return content

    def credit(self, size: int) -> None:
        """Count bytes of a blob that was read before. So an image has the same budget each time."""
        self._bytes += size

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count the processor's time of the block."""
        start, now = self._start, time.process_time()
        self._start = math.inf
        try:
            yield
        finally:
            self._start = start + time.process_time() - now

    def check(self, hashed: int = 0) -> None:
        """Check what is spent; a thread calls it in each loop whose length an image decides.

        ``hashed`` are further bytes of an archive whose digest is counted.

        Raises SlipwayError: it is more than there was.
        """
        self._hashed += hashed
        self._checks += 1
        if not self._checks & _EACH:  # the clock is asked rarely; a thread that waits for others gets no signal
            self.count_time()
        if self.refusal:
            raise SlipwayError(self.refusal)

    def count_time(self) -> None:
        """Count the processor's time, and check what is spent. Raises SlipwayError: it is more than there was."""
        spent = time.process_time() - self._start
        bought = self._bytes / _BYTES_A_SECOND + min(self._hashed, _MOST_HASHED) / _HASHED_A_SECOND
        if spent > _SECONDS + bought:
            self.refusal = (
                f"{self._subject}: refused: {self._bytes:,} bytes of the image took {spent:.0f} s of the processor; "
                f"expected {_SECONDS} s, and a second more for each {_BYTES_A_SECOND >> 20} MiB, or GiB unpacked"
            )
            raise SlipwayError(self.refusal)


_current: Budget | None = None


def current(subject: str) -> Budget:
    """Return the budget of this process while it is :func:`limited`, else a new one of ``subject``."""
    return _current or Budget(subject)


def check(hashed: int = 0) -> None:
    """Check the budget of this process: see :meth:`Budget.check`. Raises SlipwayError: it is spent."""
    if _current:
        _current.check(hashed)


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count the processor's time of the block, which no image asked for."""
    with _current.uncounted() if _current else nullcontext():
        yield


@contextmanager
def limited(subject: str, images: int = 1) -> Iterator[None]:
    """Limit the work of the block, which reads some ``images``; an inner block counts as a part of the outer one.

    Raises SlipwayError: it takes more memory or time than it may.
    """
    global _current  # noqa: PLW0603 - the limits are the process's
    if _current:
        yield
        return
    refusal = ""
    _current = budget = Budget(subject)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data() + images * _MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        with _alarm(budget.count_time):
            yield
    except (MemoryError, OSError, RuntimeError, SystemError) as error:
        refusal = _refusal(error, images)
        if not refusal:
            raise
    finally:
        _current = None
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    if refusal:  # here what filled the memory is gone
        raise SlipwayError(f"{subject}: refused: {refusal}")


def _refusal(error: Exception, images: int) -> str:
    """Return why an error refuses an image; empty if it does not. A mapping or a thread fails without memory, too."""
    if isinstance(error, RecursionError):
        return "its folders or values are nested too deep"
    # CPython ends a deep recursion without memory as a SystemError.
    if (
        isinstance(error, MemoryError | SystemError)
        or getattr(error, "errno", 0) == errno.ENOMEM
        or "new thread" in str(error)
    ):
        return f"it takes more than {images * _MEMORY >> 20} MiB of memory"
    return ""


def release(process: int) -> None:
    """Let a program that this process has started take the memory it needs."""
    with contextlib.suppress(AttributeError, OSError):  # no Linux, or it has ended
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.prlimit(process, resource.RLIMIT_DATA, (hard, hard))


def _data() -> int:
    """Return the bytes that count for RLIMIT_DATA (proc(5), /proc/pid/statm: data and stack, in pages)."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
    except OSError:  # no Linux: what was used at most
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@contextmanager
def _alarm(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` after each second of the processor, in the main thread."""
    if threading.current_thread() is not threading.main_thread():  # only there are signals
        yield
        return
    former, hook = signal.signal(signal.SIGPROF, lambda *_: check()), sys.unraisablehook
    # What is raised in a destructor is printed and lost; a second later it is raised again.
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, SlipwayError) else hook(lost)
    signal.setitimer(signal.ITIMER_PROF, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
        sys.unraisablehook = hook


def apart(subject: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a module's function, called in a separate process that is :func:`limited`.

    This process may have other work, as a provider of Pulumi has.

    Raises SlipwayError: the function raises one, takes more than it may, or its process ends otherwise.
    """
    process = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import _serve; _serve()"],
        input=pickle.dumps((sys.path, subject, function, arguments)),
        stdout=subprocess.PIPE,
        env=child_environment("reading") | {"PYTHONPATH": str(_CODE)},
        check=False,
        timeout=NETWORK_SECONDS,
    )
    try:
        succeeded, result = pickle.loads(process.stdout)  # noqa: S301 - our own process wrote it
    except (EOFError, pickle.UnpicklingError):
        raise SlipwayError(f"{subject}: the process that read it ended with {process.returncode}") from None
    if not succeeded:
        raise SlipwayError(result)
    return result  # type: ignore[no-any-return]


def _serve() -> None:
    """Call the function on standard input, and write what it returns or refuses to standard output."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    sys.path, subject, function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own process wrote it
    try:
        with limited(subject):
            answer = True, function(*arguments)
    except SlipwayError as error:
        answer = False, str(error)
    pickle.dump(answer, output)
    output.flush()
