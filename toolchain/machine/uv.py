"""uv in pip's place, where it installs the same. pip takes most of its time to read indexes, of all releases."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine import pip
from toolchain.machine.files import write
from toolchain.machine.steps import command, output
from toolchain.machine.toolchain_error import ToolchainError

_UNRELATED: Final = {
    *("config-file", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input"),
    *("no-python-version-warning", "progress-bar", "quiet", "retries", "root-user-action", "timeout", "verbose"),
}
"""pip's settings that do not change what is installed, and from where."""
_TAKEN: Final = ("cert", "find-links")
"""pip's settings that uv gets. A file of a folder is installed by the lock's hashes, as one of the index is."""
_SECTIONS: Final = ("global", "install", ":env:")
"""Those of pip's sections that `pip install` reads, the last one first."""
_SETTING: Final = re.compile(r"(\S+?)\.([a-z-]+)=(['\"])(.*)\3")


def options(listed: Iterable[str]) -> Mapping[str, list[str]] | None:
    """Return pip's file of root certificates and its folders of packages, by option, of lines of `pip config list`.

    None: pip is told something that uv is not, such as another index.
    """
    values: dict[str, dict[str, list[str]]] = {option: {} for option in _TAKEN}
    for line in listed:
        match = _SETTING.fullmatch(line)
        if match is None:
            return None
        section, option, _, value = match.groups()
        if section not in _SECTIONS or option in _UNRELATED:
            continue  # of another command, or without effect
        if option not in values:
            return None
        values[option][section] = value.replace(r"\n", " ").split() if option == "find-links" else [value]
    return {
        option: next((given[section] for section in reversed(_SECTIONS) if given.get(section)), [])
        for option, given in values.items()
    }


def _own(lock: str) -> str:
    """Return what a lock says of uv itself, hashes and all; empty if it does not list it."""
    match = re.search(r"^uv==.*(?:\n[ \t].*)*\n?", lock, re.MULTILINE)
    return match[0] if match else ""


def _installs(checkout: Checkout, python: Path, told: Mapping[str, list[str]]) -> bool:
    """Install what the checkout's lock lists with uv. Return whether all of it is there."""
    trusted = {"SSL_CERT_FILE": told["cert"][0]} if told["cert"] else {}
    environment = child_environment("uv.lock", **trusted)
    cache = checkout.cache / "uv"  # on the environment's disk, whose files are links to it
    try:
        command(
            [
                *(python.with_name("uv"), "pip", "install", "--quiet", "--no-config", "--system-certs", "--no-deps"),
                *("--require-hashes", "--cache-dir", cache, "--link-mode", "hardlink"),
                *("--python", python, "--requirements", checkout.lock),
                *(f"--find-links={folder}" for folder in told["find-links"]),
            ],
            checkout.logs / "uv.log",
            env=environment,
        )
    except ToolchainError:
        return False
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return True


def install(checkout: Checkout, python: Path) -> None:
    """Install what the checkout's lock lists into the environment of a Python, by its hashes.

    pip installs uv. It installs the rest too if the lock does not list uv, if pip is told something that uv is not, or
    if uv fails. Raises ToolchainError with pip's last line.
    """
    log = checkout.logs / "pip.log"
    listed = output([python, "-m", "pip", "config", "list"], env=child_environment("pip"), timeout=60)
    own, told = _own(checkout.lock_text()), options(listed.splitlines())
    if own and told is not None:
        lock = checkout.cache / "uv.txt"
        write(lock, own)
        pip.install(python, lock, log)
        if _installs(checkout, python, told):
            return
    pip.install(python, checkout.lock, log)
