"""Git commands and what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from containers.child_environment import LOCAL_SECONDS, child_environment
from containers.errors import SlipwayError, one_line, out_of_time

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_UNREPLACED: Final = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""A tag means one content on all machines: replaced objects (git-replace) are of one."""


def git(root: Path, *arguments: str) -> str | None:
    """Run git in a folder and return what it prints; None if it fails or is not installed.

    Raises SlipwayError: it does not end.
    """
    try:
        done = _run(root, arguments)
    except OSError:
        return None
    return done.stdout.decode() if done.returncode == 0 else None


def read(root: Path, *arguments: str, environment: Mapping[str, str] = _NONE) -> bytes:
    """Run git in a folder to read a commit, and return what it prints. ``environment`` are variables beside its own.

    Raises SlipwayError: git fails, as on a damaged repository, or does not end.
    """
    done = _run(root, arguments, environment)
    if done.returncode:
        reason = one_line(done.stderr.decode(errors="replace").strip())
        raise SlipwayError(f"an older tree cannot be read: git: {reason}; see what `git fsck` says, or clone anew")
    return done.stdout


def _run(
    root: Path, arguments: Sequence[str], environment: Mapping[str, str] = _NONE
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", str(root), *arguments]
    variables = {**child_environment("git"), **_UNREPLACED, **environment}
    try:
        return subprocess.run(command, capture_output=True, check=False, env=variables, timeout=LOCAL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SlipwayError(out_of_time(error.cmd, error.timeout)) from None
