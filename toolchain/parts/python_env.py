"""The Python environment `.slipway/venv`: what requirements.lock lists, each by its hash, and `slipway`."""

import hashlib
import importlib.util
import platform
import sys
import tomllib
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import apt, pip, uv
from toolchain.machine.steps import command, step
from toolchain.parts.part import Kind, Part, forget, recall, remember

NAME: Final = "Python packages"


def _python() -> str:
    return ".".join(str(number) for number in sys.version_info[:2])


def key(checkout: Checkout) -> str:
    """Return what an environment is good for: one list of packages and commands, one minor version of Python."""
    scripts = tomllib.loads((checkout.root / "pyproject.toml").read_text())["project"]["scripts"]
    lock = hashlib.sha256(f"{checkout.lock_text()}{scripts}".encode()).hexdigest()
    return f"{lock} Python {_python()}"


def _install_command(checkout: Checkout) -> None:
    """Put `slipway` on the environment's PATH: this project, editable, built by uv itself without a network."""
    program = checkout.venv / "bin" / "uv"
    command(
        [
            *(program, "pip", "install", "--quiet", "--offline", "--no-cache", "--no-config", "--no-deps"),
            *("--python", checkout.venv / "bin" / "python", "--editable", checkout.root),
        ],
        checkout.logs / "slipway.log",
    )


def find(checkout: Checkout) -> Part | None:
    """Return the environment if it is complete and of today's lock."""
    part = recall(checkout, NAME, key(checkout))
    return part if (checkout.venv / "bin" / "python").exists() else None


def get(checkout: Checkout) -> Part:
    """Make the environment again unless it is complete and of today's lock."""
    if part := find(checkout):
        return part
    if importlib.util.find_spec("ensurepip") is None:
        apt.install(checkout, f"python{_python()}-venv")
    forget(checkout, NAME)
    with step("Installing Python packages"):
        pip.environment(checkout.venv, checkout.logs / "venv.log")
        uv.install(checkout, checkout.venv / "bin" / "python")
        _install_command(checkout)
    part = Part(NAME, str(checkout.venv), f"Python {platform.python_version()}", path=[str(checkout.venv / "bin")])
    return remember(checkout, part, key(checkout))


KIND: Final = Kind(NAME, find, get)
