"""A program that is run to its end. The standard library alone is imported, as for its environment."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from containers.child_environment import child_environment


def run_program(
    words: Sequence[str | Path],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, by default in its :func:`child_environment`; return its status and what it printed.

    Raises OSError if it cannot be started, and TimeoutExpired if it had to be ended after ``seconds``.
    """
    environment = child_environment(PurePath(words[0])) if env is None else env
    return subprocess.run(
        words, input=stdin, capture_output=True, text=True, errors="replace", check=False, env=environment, cwd=cwd,
        timeout=seconds,
    )  # fmt: skip
