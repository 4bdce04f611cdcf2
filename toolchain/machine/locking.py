"""One toolchain at a time in a checkout."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import steps
from toolchain.machine.files import close

CROSSED: Final = ("cache", "venv", "bin", "docker", "run")
"""Folders below `.slipway` that other users' programs pass: apt's own user, and those in containers."""
CLOSED: Final = ("parts", "logs", "registry", "docker-config", "state", "pulumi")
"""Folders that have the toolchain's records, output, images and state."""


_OF_A_STACK: Final = re.compile(r"(?:up|destroy|preview) \S+, process (?P<process>[0-9]+),")
"""What is in the lock while a run of a stack holds it. Others replace parts, or delete what nothing names."""


def held_by_a_stack(checkout: Checkout) -> bool:
    """Return whether a run of a stack holds the checkout's lock. Nothing is waited for."""
    try:
        holder = _OF_A_STACK.match((checkout.state / "lock").read_text())
    except FileNotFoundError:
        return False
    return holder is not None and Path("/proc", holder["process"]).exists()


@contextmanager
def alone(checkout: Checkout, verb: str) -> Iterator[None]:
    """Hold the checkout's lock. While another process holds it, print one line and wait.

    The kernel gives the lock back when its holder ends, however it ends. Programs that a step runs hold it too: one
    that outlives a killed toolchain is waited for, rather than met at work on the same files.
    """
    close(checkout.state, open_folders=CROSSED, closed_folders=CLOSED)
    with (checkout.state / "lock").open("a+") as file:
        os.fchmod(file.fileno(), 0o600)  # whoever may open it can hold it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            steps.say(f"Waiting for another run in this checkout: {file.read().strip()}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        print(f"{verb}, process {os.getpid()}, since {since}", file=file, flush=True)
        steps.inherited.append(file.fileno())
        try:
            yield
        finally:
            steps.inherited.remove(file.fileno())
            file.truncate(0)
