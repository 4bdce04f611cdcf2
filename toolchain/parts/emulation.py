"""QEMU's user emulation: how an engine on this machine runs programs of another processor.

The kernel starts an interpreter for them (Documentation/admin-guide/binfmt-misc.rst of Linux). That belongs to the
machine and not to a checkout: what is registered stays so until the machine is started again.
"""

import re
from pathlib import Path
from typing import Final

from containers.engine.engine_platforms import PLATFORMS, runnable_platforms
from containers.errors import SlipwayError
from toolchain.checkout import UP, Checkout
from toolchain.machine import apt
from toolchain.machine.steps import command, output, say
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine
from toolchain.parts.part import Part, recall, remember
from toolchain.version import numbers

BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
PACKAGE: Final = "qemu-user-static"
OLDEST: Final = (10, 0)
"""The oldest QEMU that torch 2.14.1 for arm64 was tried under and runs. Under 7.2, Debian 12's, its import crashes."""
HANDLERS: Final = {"linux/amd64": "qemu-x86_64", "linux/arm64": "qemu-aarch64"}
"""By platform: the handler's name, as Debian's package and others register it."""
FORMATS: Final = Path("/usr/lib/binfmt.d")
"""Where the package has a line for each handler, as binfmt.d(5) reads it."""
SLOW: Final = "emulated programs take 2 to 40 times the CPU time; build what is compiled on an engine of the platform"
"""Measured with QEMU 7.2 on x86-64: a loop over integers 1.8 times, a product of matrices of doubles 40 times."""
GUIDE: Final = "docs/guides/emulation.md"


def name(platform: str) -> str:
    """Return the name of the part that runs a platform's programs."""
    return f"emulation of {platform}"


def described(checkout: Checkout) -> dict[str, str]:
    """Return for each platform how the engine in use runs it, or why it does not. Nothing is changed.

    Raises ToolchainError where the engine does not answer.
    """
    ways = _ways(checkout)
    here = not docker_engine.is_elsewhere(checkout)

    def text(platform: str) -> str:
        match ways.get(platform):
            case "emulated":
                return f"emulated ({SLOW}{_too_old(platform) if here else ''})"
            case None:
                return f"cannot be run: {_why(checkout, platform)}"
            case way:
                return way

    return {platform: text(platform) for platform in PLATFORMS}


def find(checkout: Checkout, platform: str) -> Part | None:
    """Return the part if the engine in use runs a platform."""
    way = _ways(checkout, platform).get(platform)
    return Part(name(platform), f"the engine runs {platform}", way, SLOW if way == "emulated" else "") if way else None


def get(checkout: Checkout, platform: str) -> Part:
    """Let the engine in use run a platform. As root, QEMU is installed and registered for that.

    Raises ToolchainError where it cannot.
    """
    if part := find(checkout, platform):
        return remember(checkout, part)
    if docker_engine.is_elsewhere(checkout) or not apt.is_root():
        raise ToolchainError(f"the Docker engine cannot run {platform}: {_why(checkout, platform)}")
    if not (BINFMT / "register").exists():
        _mount(checkout)
    if not (FORMATS / f"{HANDLERS[platform]}.conf").exists():
        _install(checkout)
    if not (BINFMT / HANDLERS[platform]).exists():  # systemd or binfmt-support may have registered it meanwhile
        _register(platform)
    part = find(checkout, platform)
    if part is None:
        raise ToolchainError(f"the Docker engine cannot run {platform}: {_why(checkout, platform)}")
    return remember(checkout, part)


def _ways(checkout: Checkout, *among: str) -> dict[str, str]:
    used = recall(checkout, docker_engine.NAME)
    try:
        return {**runnable_platforms((used.env if used else {}).get("DOCKER_HOST", ""), among=among or PLATFORMS)}
    except SlipwayError as error:
        raise ToolchainError(str(error)) from None


def _why(checkout: Checkout, platform: str) -> str:
    """Return why the engine does not run a platform, and what helps."""
    if docker_engine.is_elsewhere(checkout):
        return f"it is on another machine: use one of {platform}, or register QEMU there as {GUIDE} says"
    handler = BINFMT / HANDLERS[platform]
    try:
        state = handler.read_text()
    except OSError:
        what = f"{handler} is not there" if (BINFMT / "register").exists() else f"{BINFMT} is not mounted"
        return f"{what}: as root, {UP} of a stack for {platform} installs {PACKAGE} and registers it"
    if not state.startswith("enabled"):
        return f"{handler} is disabled: `echo 1 > {handler}` as root"
    if "F" not in _value(state, "flags:"):
        return f"{handler} lacks flag F, so containers do not find QEMU: `echo -1 > {handler}` as root, and try again"
    return f"{handler} is registered, and the engine's containers do not use it: see {GUIDE}"


def _value(state: str, name: str) -> str:
    """Return what a handler's state says after a name, such as ``flags:`` or ``interpreter``; empty for nothing."""
    return next((line.removeprefix(name).strip() for line in state.splitlines() if line.startswith(name)), "")


def _install(checkout: Checkout) -> None:
    """Install the distribution's QEMU, or its backport where the distribution's is older than `OLDEST`."""
    offered = apt.candidate(checkout, PACKAGE) if apt.available() else ()
    if offered and offered < OLDEST:
        try:
            apt.install_backport(checkout, PACKAGE)
        except ToolchainError as error:
            version = ".".join(map(str, offered))
            say(f"torch for arm64 may crash under QEMU {version}, which this distribution has: {error}")
        else:
            return
    apt.install(checkout, PACKAGE)


def _too_old(platform: str) -> str:
    """Return a warning where the registered QEMU is older than `OLDEST`, else nothing."""
    try:
        state = (BINFMT / HANDLERS[platform]).read_text()
        printed = output([Path(_value(state, "interpreter")).resolve(), "--version"])
    except (OSError, ToolchainError):
        return ""
    version = re.search(r" version ([\d.]+)", printed)
    if version is None or numbers(version[1]) >= OLDEST:
        return ""
    return f"; torch may crash under QEMU {version[1]}: see {GUIDE}"


def _mount(checkout: Checkout) -> None:
    try:
        command(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], checkout.logs / "binfmt.log")
    except ToolchainError as error:
        raise ToolchainError(
            f"binfmt_misc cannot be mounted, so this kernel runs no other processor's programs ({error}): use a Docker "
            "engine on a machine of the platform"
        ) from None


def _register(platform: str) -> None:
    """Register the package's handler, with the flag F: the kernel opens QEMU now, and containers need no copy."""
    conf = FORMATS / f"{HANDLERS[platform]}.conf"
    try:
        line = next(line for line in conf.read_text().splitlines() if line.startswith(":"))
        fields = line.split(":")
        fields[-1] = "".join(dict.fromkeys(f"{fields[-1]}F"))
        (BINFMT / "register").write_text(":".join(fields))
    except StopIteration:
        raise ToolchainError(f"{conf} of {PACKAGE} has no handler for {platform}") from None
    except OSError as error:
        raise ToolchainError(f"{BINFMT}/register does not take {conf}: {error.strerror}") from None
