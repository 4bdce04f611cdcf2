"""What a test needs and not every machine has: it is skipped there with a line that says why, which `-rs` prints, and counted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import pytest


def _spaces() -> list[str]:
    return ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]


def _no_root() -> str:
    return "root" if os.geteuid() else ""


@cache
def _no_mounts() -> str:
    """Try it: Ubuntu 24.04 has a setting against it, and so have containers and kernels (kernel.apparmor_restrict_unprivileged_userns)."""
    command = [*_spaces(), "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/tmp"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "`unshare` of util-linux"
    said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return f"a user that may mount in namespaces of its own ({said})" if done.returncode else ""


_WANTS: Final[Mapping[str, Callable[[], str]]] = {"root": _no_root, "mounts": _no_mounts}


def needs(*things: str) -> None:
    """Skip the test that calls, or whose fixture does, where one of these is not had: `root`, or `mounts` in namespaces."""
    for thing in things:
        if lacking := _WANTS[thing]():
            lack(lacking)


def lack(what: str) -> None:
    """Skip the test that calls: it needs what this machine lacks."""
    pytest.skip(f"needs {what}")


def mounting() -> list[str]:
    """Return the words before a command that may mount: nobody but it and what it starts sees that."""
    needs("mounts")
    return _spaces()
