"""The Python environment `.slipway/venv`: what requirements.lock lists, each by its hash, and `slipway`.

It holds nothing else ever, so that no other package has the name of one of Slipway's own.
"""

import hashlib
import importlib.util
import platform
import shlex
import sys
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine import apt, pip, uv
from toolchain.machine.files import write
from toolchain.machine.steps import step
from toolchain.parts.part import Kind, Part, forget, recall, remember

NAME: Final = "Python packages"
_START: Final = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
"""
"""How a script begins for both the shell and Python: in `#!`, a space would end the interpreter's path (execve(2))."""
_COMMAND: Final = """\
from containers.interruption import end_quietly

end_quietly()
from cli.main import run

run()
"""
"""The program `slipway`."""


def _python() -> str:
    return ".".join(str(number) for number in sys.version_info[:2])


def key(checkout: Checkout) -> str:
    """Return what an environment is good for: one list of packages and commands, one minor version of Python."""
    lock = hashlib.sha256(f"{checkout.lock_text()}{checkout.code}{_START}{_COMMAND}".encode()).hexdigest()
    return f"{lock} Python {_python()}"


def _install_command(checkout: Checkout) -> None:
    """Let the environment's Python import Slipway's code from where it is, and put `slipway` on its PATH."""
    (packages,) = checkout.venv.glob("lib/python*/site-packages")
    write(packages / "slipway.pth", f"{checkout.code}\n")
    python = checkout.venv / "bin" / "python"
    start = _START.format(python=shlex.quote(str(python)))
    write(python.with_name("slipway"), f"{start}{_COMMAND}", mode=0o755)


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
