"""The account of the registry that we start: one user, with a random password in a file of mode 0600."""

import base64
import ctypes
import ctypes.util
import secrets
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.toolchain_error import ToolchainError

USER: Final = "slipway"
_RULE: Final = "$2b$04$"
"""bcrypt, which is all that docker-registry takes, at its least cost: a random password needs no slow hash."""
_DIGITS: Final = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
"""bcrypt's own, which a salt is written in (crypt(5))."""


def _file(checkout: Checkout) -> Path:
    return checkout.state / "registry" / "password"


def password(checkout: Checkout) -> str:
    """Return the password; empty if none was made yet."""
    try:
        return _file(checkout).read_text().strip()
    except FileNotFoundError:
        return ""


def header(checkout: Checkout) -> str:
    """Return the value of HTTP's `Authorization` that logs in."""
    return f"Basic {base64.b64encode(f'{USER}:{password(checkout)}'.encode()).decode()}"


def write_htpasswd(checkout: Checkout) -> Path:
    """Write the file that docker-registry reads, and a password if there is none. Returns the file's path."""
    if not password(checkout):
        write(_file(checkout), secrets.token_urlsafe(32) + "\n", mode=0o600)
    file = _file(checkout).with_name("htpasswd")
    write(file, f"{USER}:{_hashed(password(checkout))}\n", mode=0o600)
    return file


def _hashed(text: str) -> str:
    """Hash a password with the C library's bcrypt: Python has had none of its own since 3.13."""
    salt = "".join(secrets.choice(_DIGITS) for _ in range(21)) + "."  # the last digit has two bits
    library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    value = (library.crypt(text.encode(), f"{_RULE}{salt}".encode()) or b"").decode()
    if not value.startswith(_RULE):
        raise ToolchainError(
            "libcrypt has no bcrypt, so the registry can have no login: set SLIPWAY_REGISTRY to another"
        )
    return value
