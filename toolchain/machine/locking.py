"""One toolchain at a time in a checkout."""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Final

from toolchain.checkout import Checkout
from toolchain.machine import steps
from toolchain.machine.files import close

CROSSED: Final = ("cache", "venv", "bin", "docker", "run")
"""Folders below `.slipway` that other users' programs pass: apt's own user, and those in containers."""
CLOSED: Final = ("parts", "logs", "registry", "docker-config", "state", "pulumi")
"""Folders that have the toolchain's records, output, images and state."""


_OF_A_STACK: Final = re.compile(r"(?:up|destroy|preview) (?P<stack>\S+), process (?P<process>[0-9]+),")
"""What is in the lock while a run of a stack holds it. Others replace parts, or delete what nothing names."""


def held_by_another(checkout: Checkout, stack: str) -> bool:
    """Return whether a run of another stack holds the checkout's lock. Nothing is waited for."""
    try:
        holder = _OF_A_STACK.match((checkout.state / "lock").read_text())
    except FileNotFoundError:
        return False
    return holder is not None and holder["stack"] != stack and Path("/proc", holder["process"]).exists()


@contextmanager
def beside(checkout: Checkout, stack: str) -> Iterator[None]:
    """Keep the checkout's parts as they are, beside the holder of its lock. Whoever gets or deletes one waits.

    So does a second preview of the stack: the two have one log, and one copy of the stack's file.
    """
    name = f"logs/preview-{stack}.lock"
    with (
        _locked(checkout, name, fcntl.LOCK_EX, f"another preview of {stack}"),
        _locked(checkout, "parts-lock", fcntl.LOCK_SH, "a run that gets parts of this checkout"),
    ):
        yield


@contextmanager
def alone(checkout: Checkout, verb: str) -> Iterator[Callable[[], None]]:
    """Hold the checkout's lock, and yield what lets others :func:`beside` it, once it gets no part any more.

    While another process holds it, print one line and wait.

    The kernel gives the lock back when its holder ends, however it ends. Programs that a step runs hold it too: one
    that outlives a killed toolchain is waited for, rather than met at work on the same files.
    """
    close(checkout.state, open_folders=CROSSED, closed_folders=CLOSED)
    with _locked(checkout, "lock", fcntl.LOCK_EX, "another run in this checkout") as file:
        file.truncate(0)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        with suppress(OSError):  # a full disk, on which `down` and `prune` make room
            os.write(file.fileno(), f"{verb}, process {os.getpid()}, since {since}\n".encode())
        try:
            with _locked(checkout, "parts-lock", fcntl.LOCK_EX, "a preview in this checkout") as parts:
                yield partial(fcntl.flock, parts, fcntl.LOCK_UN)
        finally:
            file.truncate(0)


@contextmanager
def _locked(checkout: Checkout, name: str, kind: int, holder: str) -> Iterator[IO[str]]:
    """Hold a lock as its file, also in the programs of steps."""
    with (checkout.state / name).open("a+") as file:
        os.fchmod(file.fileno(), 0o600)  # whoever may open it can hold it
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            steps.say(f"Waiting for {holder}" + (f": {known}" if (known := file.read().strip()) else ""))
            fcntl.flock(file, kind)
        steps.inherited.append(file.fileno())
        try:
            yield file
        finally:
            steps.inherited.remove(file.fileno())
