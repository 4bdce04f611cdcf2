"""uv in pip's place, where it installs the same. pip takes most of its time to read indexes, of all releases."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine import pip
from toolchain.machine.files import write
from toolchain.machine.steps import command, output
from toolchain.machine.toolchain_error import ToolchainError

_UNRELATED: Final = {
    *("cert", "config-file", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input"),
    *("no-python-version-warning", "progress-bar", "quiet", "retries", "root-user-action", "timeout", "verbose"),
}
"""pip's settings that do not change what is installed, and from where. uv gets the certificates."""
_SECTIONS: Final = ("global", "install", ":env:")
"""Those of pip's sections that `pip install` reads, the last one first."""
_SETTING: Final = re.compile(r"(\S+?)\.([a-z-]+)=(['\"])(.*)\3")


def certificates(listed: Iterable[str]) -> str | None:
    """Return the file of root certificates that pip takes, empty if it is told none.

    None: pip is told something that uv is not, such as another index.

    Args:
        listed: the lines of `pip config list`.
    """
    files = dict.fromkeys(_SECTIONS, "")
    for line in listed:
        match = _SETTING.fullmatch(line)
        if match is None:
            return None
        section, option, _, value = match.groups()
        if section not in files:
            continue  # of another command
        if option not in _UNRELATED:
            return None
        if option == "cert":
            files[section] = value
    return next((files[section] for section in reversed(_SECTIONS) if files[section]), "")


def _own(lock: str) -> str:
    """Return what a lock says of uv itself, hashes and all; empty if it does not list it."""
    match = re.search(r"^uv==.*(?:\n[ \t].*)*\n?", lock, re.MULTILINE)
    return match[0] if match else ""


def _installs(checkout: Checkout, python: Path, trusted: str) -> bool:
    """Install what the checkout's lock lists with uv. Return whether all of it is there."""
    environment = child_environment("uv.lock")
    if file := trusted or environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE"):
        environment["SSL_CERT_FILE"] = file
    cache = checkout.cache / "uv"  # on the environment's disk, whose files are links to it
    try:
        command(
            [
                *(python.with_name("uv"), "pip", "install", "--quiet", "--no-config", "--system-certs", "--no-deps"),
                *("--require-hashes", "--cache-dir", cache, "--link-mode", "hardlink"),
                *("--python", python, "--requirements", checkout.lock),
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
    own, trusted = _own(checkout.lock_text()), certificates(listed.splitlines())
    if own and trusted is not None:
        lock = checkout.cache / "uv.txt"
        write(lock, own)
        pip.install(python, lock, log)
        if _installs(checkout, python, trusted):
            return
    pip.install(python, checkout.lock, log)
