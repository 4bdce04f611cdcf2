"""Python packages by a lock: every file checked by its hash, nothing but what the lock lists."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stacks.child_environment import child_environment
from toolchain.machine.steps import command

DROPPED: Final = {
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_PYTHON"),
    *("PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_EDITABLE"),
}
"""The user's settings of where and what to install. Those of indexes, proxies and certificates stay."""


def install(python: Path, lock: Path, log: Path, *options: str | Path) -> None:
    """Install what a lock lists with this Python's pip. Raises ToolchainError with pip's last line."""
    argv: Sequence[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "--no-deps",
        "--no-compile",  # most of it is never imported: pulumi-aws alone is 2900 modules, 10 s and 150 MB compiled
        "--require-hashes",
        "--disable-pip-version-check",
        *options,
        "-r",
        lock,
    ]
    inherited = {name: value for name, value in child_environment("pip").items() if name not in DROPPED}
    command(argv, log, env={**inherited, "PIP_USER": "0"})
