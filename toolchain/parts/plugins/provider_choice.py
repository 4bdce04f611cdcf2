"""The docker provider: Pulumi's official plugin, else the embedded one of this repository."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Final

from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.network import proxy
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts.part import Kind, Part, recall, remember
from toolchain.parts.plugins import plugin

NAME: Final = "docker provider"
PLUGIN: Final = "docker"
CHOICES: Final = ("official", "embedded")
VARIABLE: Final = "SLIPWAY_DOCKER_PROVIDER"
"""Forces one of CHOICES. Without it the official one is used where it is available."""
MODULE: Final = "toolchain.provider"
"""The embedded provider."""
ON_DEMAND: Final = {"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}
"""Otherwise Pulumi installs the plugin of every installed SDK, such as AWS's for a stack without AWS."""


def _forced() -> str | None:
    choice = os.environ.get(VARIABLE) or None
    if choice not in {None, *CHOICES}:
        raise ToolchainError(f"{VARIABLE}={choice}: allowed are {' and '.join(CHOICES)}")
    return choice


def find(checkout: Checkout) -> Part | None:
    """Return the chosen provider, unless it is missing or the other one is now forced."""
    part, choice = recall(checkout, NAME, plugin.version(checkout, PLUGIN)), _forced()
    if part is None or choice not in {None, part.env[VARIABLE]} or not plugin.is_installed(checkout, PLUGIN):
        return None
    if part.env[VARIABLE] == "official":
        return None if _is_embedded(checkout) else part
    # A launcher of another checkout or commit may start a module that is elsewhere now.
    return part if _program(checkout).read_bytes() == _launcher(checkout).encode() else None


def _program(checkout: Checkout) -> Path:
    """Return the launcher's path, in the plugin's folder: Pulumi warns at every start of a plugin on PATH."""
    return plugin.folder(checkout, PLUGIN) / "pulumi-resource-docker"


def _launcher(checkout: Checkout) -> str:
    code, python = shlex.quote(str(checkout.code)), shlex.quote(str(checkout.venv / "bin" / "python"))
    return f'#!/bin/sh\n{proxy.SHELL}PYTHONPATH={code} exec {python} -P -m {MODULE} "$@"\n'


def _is_embedded(checkout: Checkout) -> bool:
    program = _program(checkout)
    if not program.exists():
        return False
    with program.open("rb") as file:  # the official one is an ELF file of many megabytes
        return file.read(2) == b"#!"


def get(checkout: Checkout) -> Part:
    """Choose a provider and install it."""
    if part := find(checkout):
        return part
    version, choice = plugin.version(checkout, PLUGIN), _forced()
    was_embedded = _is_embedded(checkout)
    if choice == "embedded" or was_embedded:
        shutil.rmtree(plugin.folder(checkout, PLUGIN), ignore_errors=True)
    why = f"{VARIABLE}=embedded" if choice == "embedded" else plugin.install(checkout, PLUGIN)
    if not why:
        used = Part(NAME, "official plugin", version, env={VARIABLE: "official", **ON_DEMAND})
    elif choice == "official":
        if was_embedded:  # it stays until another is there: what was set up with it goes on working
            write(_program(checkout), _launcher(checkout), mode=0o755)
        raise ToolchainError(
            f"the official docker provider {version} is not available: {why}; unset {VARIABLE} to use the embedded one"
        )
    else:
        write(_program(checkout), _launcher(checkout), mode=0o755)
        used = Part(NAME, "embedded provider", f"as {version}", why, env={VARIABLE: "embedded", **ON_DEMAND})
    return remember(checkout, used, version)


KIND: Final = Kind(NAME, find, get)
