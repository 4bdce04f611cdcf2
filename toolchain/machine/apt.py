"""Debian's packages: installed as root, or unpacked into a folder by anybody."""

import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Final

from stacks.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine.steps import command, step
from toolchain.machine.toolchain_error import ToolchainError

LOCK_SECONDS: Final = 120
"""How long to wait for another apt that runs on this machine."""


def is_root() -> bool:
    """Return whether system packages may be installed."""
    return os.geteuid() == 0


def available() -> bool:
    """Return whether this machine's packages are Debian's."""
    return shutil.which("apt-get") is not None


def _update(checkout: Checkout) -> None:
    lists = Path("/var/lib/apt/lists")
    if is_root() and not any(lists.glob("*Packages*")):
        command(["apt-get", "update", "-q"], checkout.logs / "apt.log", env=_environment())


def _environment() -> dict[str, str]:
    return child_environment("apt-get", DEBIAN_FRONTEND="noninteractive", NEEDRESTART_MODE="l")


def install(checkout: Checkout, *packages: str) -> None:
    """Install Debian packages. Raises ToolchainError where this is not root, not Debian, or apt fails."""
    names = " ".join(packages)
    if not available():
        raise ToolchainError(f"{names} not found, and this machine has no apt-get to install it with")
    if not is_root():
        raise ToolchainError(f"{names} not found: run `apt-get install {names}` as root")
    with step(f"Installing Debian's {names}"):
        _update(checkout)
        words = [
            "apt-get",
            "install",
            "-q",
            "-y",
            "--no-install-recommends",
            f"-oDPkg::Lock::Timeout={LOCK_SECONDS}",
            *packages,
        ]
        try:
            command(words, checkout.logs / "apt.log", env=_environment())
        except ToolchainError:  # the package lists may be older than the archive
            command(["apt-get", "update", "-q"], checkout.logs / "apt.log", env=_environment())
            command(words, checkout.logs / "apt.log", env=_environment())


def unpack(checkout: Checkout, package: str, program: str, target: Path) -> None:
    """Take one program out of a Debian package, without installing it: no root needed, no service started.

    `program` is its path in the package, `target` where it goes.

    Raises ToolchainError where the package is not available.
    """
    if not available():
        raise ToolchainError(f"{package} not found, and this machine has no apt-get to get it with")
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with step(f"Unpacking Debian's {package}"), tempfile.TemporaryDirectory(dir=checkout.cache) as folder:
        Path(folder).chmod(0o755)  # apt downloads as its own user
        _update(checkout)
        command(["apt-get", "download", "-q", package], checkout.logs / "apt.log", cwd=Path(folder))
        archive = next(Path(folder).glob("*.deb"))
        command(["dpkg-deb", "-x", archive, folder], checkout.logs / "apt.log")
        target.parent.mkdir(parents=True, exist_ok=True)
        (Path(folder) / program).replace(target)


def machine() -> str:
    """Return this machine's processor as Debian, Go and Docker name it."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    try:
        return names[platform.machine()]
    except KeyError:
        raise ToolchainError(f"this machine is {platform.machine()}; Slipway runs on {' and '.join(names)}") from None
