"""Python packages by a lock: every file checked by its hash, nothing but what the lock lists."""

from collections.abc import Sequence
from pathlib import Path

from toolchain.steps import command


def install(python: Path, lock: Path, log: Path, *options: str | Path) -> None:
    """Install what a lock lists with this Python's pip. Raises ToolchainError with pip's last line."""
    argv: Sequence[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "--no-deps",
        "--require-hashes",
        "--disable-pip-version-check",
        *options,
        "-r",
        lock,
    ]
    command(argv, log)
