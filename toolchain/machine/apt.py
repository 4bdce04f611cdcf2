"""Debian's packages: installed as root, or unpacked into a folder by anybody."""

import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine.steps import command, output, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.version import numbers

LOCK_SECONDS: Final = 120
"""How long to wait for another apt that runs on this machine."""
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Debian's keys, of the package `debian-archive-keyring`, which apt needs."""
_turn: Final = threading.RLock()
"""Held while apt runs: parts of the toolchain are had side by side, and apt does not wait for the lock of its lists."""
_INSTALL: Final = (
    "apt-get", "install", "-q", "-y", "--no-install-recommends", f"-oDPkg::Lock::Timeout={LOCK_SECONDS}",
)  # fmt: skip


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


def candidate(checkout: Checkout, package: str) -> tuple[int, ...]:
    """Return the version of a package that `install` gets, without its epoch; () if there is none."""
    with _turn:
        _update(checkout)
        policy = output(["apt-cache", "policy", package], env={**_environment(), "LC_ALL": "C", "LANGUAGE": "C"})
    match = re.search(r"^ *Candidate: (?:\d+:)?([\d.]+)", policy, re.MULTILINE)
    return numbers(match[1]) if match else ()


def _archive() -> str | None:
    """Return the address of the archive that this machine's Debian is from. None for other systems."""
    targets = output(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Identifier: Packages"],
        env=_environment(),
    )
    for target in targets.splitlines():
        if target.startswith(f"Debian {codename()} "):
            return target.split()[-1]
    return None


def codename() -> str:
    """Return the name of this machine's release: `bookworm`. Empty where it has none."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


@contextmanager
def _suite(checkout: Checkout, suite: str, package: str) -> Iterator[list[str]]:
    """Yield apt's options to take packages of one more suite of Debian, by its signed lists.

    The machine's sources stay as they are. Raises ToolchainError if this is not Debian, or its archive lacks that
    suite.
    """
    with _turn:
        _update(checkout)
    archive = _archive()
    if archive is None:
        raise ToolchainError(f"{package}: only Debian has {suite}")
    checkout.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".list", dir=checkout.cache) as file:
        file.write(f"deb [signed-by={KEYRING}] {archive} {suite} main\n")
        file.flush()
        Path(file.name).chmod(0o644)  # apt reads it as its own user
        options = [f"-oDir::Etc::SourceList={file.name}", "-oAPT::Get::List-Cleanup=false"]
        with _turn:
            command(
                ["apt-get", "update", "-q", "-oDir::Etc::SourceParts=-", "-oAPT::Update::Error-Mode=any", *options],
                checkout.logs / "apt.log",
                env=_environment(),
            )
            yield [*options, f"--target-release={suite}"]


def install_backport(checkout: Checkout, package: str) -> None:
    """Install a package's backport to this Debian release. Raises ToolchainError where there is none."""
    with (
        step(f"Installing the backport of Debian's {package}"),
        _suite(checkout, f"{codename()}-backports", package) as options,
    ):
        command([*_INSTALL, *options, package], checkout.logs / "apt.log", env=_environment())


def unpack_release(checkout: Checkout, release: str, packages: Sequence[str], target: Path) -> None:
    """Unpack packages of another Debian release into a folder, where they run with this machine's libraries.

    Nothing is installed, and no service is started. A folder that is there is replaced by a whole one.
    Raises ToolchainError where this is not Debian, or its archive has no such release.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        step(f"Unpacking {', '.join(packages)} of Debian {release}"),
        tempfile.TemporaryDirectory(dir=target.parent) as folder,
        _suite(checkout, release, packages[0]) as options,
    ):
        unpacked, log = Path(folder) / "unpacked", checkout.logs / "apt.log"
        Path(folder).chmod(0o755)  # apt downloads as its own user
        command(["apt-get", "download", "-q", *options, *packages], log, cwd=Path(folder), env=_environment())
        for archive in Path(folder).glob("*.deb"):
            command(["dpkg-deb", "-x", archive, unpacked], log)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


def install(checkout: Checkout, *packages: str) -> None:
    """Install Debian packages. Raises ToolchainError where this is not root, not Debian, or apt fails."""
    names = " ".join(packages)
    if not available():
        raise ToolchainError(f"{names} not found, and this machine has no apt-get to install it with")
    if not is_root():
        raise ToolchainError(f"{names} not found: run `apt-get install {names}` as root")
    with _turn, step(f"Installing Debian's {names}"):
        _update(checkout)
        words = [*_INSTALL, *packages]
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
    with _turn, step(f"Unpacking Debian's {package}"), tempfile.TemporaryDirectory(dir=checkout.cache) as folder:
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
