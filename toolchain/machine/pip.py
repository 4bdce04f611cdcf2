"""Python environments, and packages by a lock: every file checked by its hash, nothing but what the lock lists."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from containers.errors import one_line
from toolchain.machine.steps import command
from toolchain.machine.toolchain_error import ToolchainError

DROPPED: Final = {
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_PYTHON"),
    *("PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_EDITABLE"),
}
"""The user's settings of where and what to install. Those of indexes, proxies and certificates stay."""

_UNREACHED: Final = re.compile("(?:connection broken by|problem confirming the ssl certificate:) (.+)")
"""What pip says of a server that it does not reach, or whose certificate it does not trust."""

_SEED: Final = """
import ensurepip
import sys

run_pip = ensurepip._run_pip
ensurepip._run_pip = lambda words, *paths: run_pip(
    ["install", "--no-compile", *(word for word in words[1:] if word != "setuptools")], *paths
)
sys.exit(ensurepip._bootstrap(upgrade=True, default_pip=True))
"""
"""ensurepip has no option for it: what it hands to pip is changed (_run_pip of Lib/ensurepip/__init__.py, 3.8 to 3.14).
``dockerfiles/common/layers/pip-venv`` has the same lines, for containers, which have no module of this program."""


def environment(folder: Path, log: Path) -> None:
    """Make an environment of this Python with its own pip, in place of what is there. Raises ToolchainError.

    It equals that of `python -m venv`, without the bytecode of pip and the setuptools of Python up to 3.11. These take
    half of the time. Of a link, the link is what is there: `--clear` would empty the environment that it leads to.
    """
    if folder.is_symlink():
        folder.unlink()
    command([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], log)
    command([folder / "bin" / "python", "-I", "-c", _SEED], log)


def install(python: Path, lock: Path, log: Path, *options: str | Path) -> None:
    """Install what a lock lists with this Python's pip.

    Raises ToolchainError with pip's last line, or with why the index is not reached.
    """
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
    try:
        _run(argv, log)
    except ToolchainError as error:
        causes = _UNREACHED.findall(log.read_text(errors="replace"))
        # pip warns of a connection that it then tries again too
        if not causes or "No matching distribution found" not in str(error):
            raise
        raise ToolchainError(
            f"pip does not reach the index: {one_line(causes[-1], 300)}; name an index by PIP_INDEX_URL, its root "
            f"certificate by SSL_CERT_FILE, or a folder of wheels by PIP_FIND_LINKS; all output is in {log}"
        ) from None


def download(python: Path, address: str, folder: Path, log: Path) -> None:
    """Download the wheel at an address to a folder with this Python's pip, by the user's settings.

    It asks no index. Raises ToolchainError.
    """
    options = ("--no-deps", "--no-index", "--disable-pip-version-check")
    _run([python, "-m", "pip", "download", *options, "--dest", folder, address], log)


def _run(argv: Sequence[str | Path], log: Path) -> None:
    inherited = {name: value for name, value in child_environment("pip").items() if name not in DROPPED}
    command(argv, log, env={**inherited, "PIP_USER": "0"})
