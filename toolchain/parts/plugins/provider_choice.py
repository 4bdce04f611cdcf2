"""The docker provider: Pulumi's official plugin, else the embedded one of this repository."""

import os
import shlex
import shutil
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
"""Forces one of CHOICES. Without it the official one is used where it can be had."""
ON_DEMAND: Final = {"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}
"""Pulumi would get the plugin of every SDK that is there, used or not: AWS's for a stack that has nothing of AWS."""


def _forced() -> str | None:
    choice = os.environ.get(VARIABLE) or None
    if choice not in {None, *CHOICES}:
        raise ToolchainError(f"{VARIABLE}={choice}: allowed are {' and '.join(CHOICES)}")
    return choice


def find(checkout: Checkout) -> Part | None:
    """Return the provider that was chosen, unless the other one is now asked for or it is gone."""
    part, choice = recall(checkout, NAME, plugin.version(checkout, PLUGIN)), _forced()
    if part is None or choice not in {None, part.env[VARIABLE]}:
        return None
    there = (
        plugin.is_installed(checkout, PLUGIN)
        if part.env[VARIABLE] == "official"
        else (checkout.embedded / "pulumi-resource-docker").exists()
    )
    return part if there else None


def _launcher(checkout: Checkout) -> str:
    root, python = shlex.quote(str(checkout.root)), shlex.quote(str(checkout.venv / "bin" / "python"))
    return f'#!/bin/sh\n{proxy.SHELL}PYTHONPATH={root} exec {python} -P -m toolchain.docker_provider "$@"\n'


def get(checkout: Checkout) -> Part:
    """Choose a provider and make it ready."""
    if part := find(checkout):
        return part
    version, choice = plugin.version(checkout, PLUGIN), _forced()
    why = f"{VARIABLE}=embedded" if choice == "embedded" else plugin.install(checkout, PLUGIN)
    if not why:
        # An embedded launcher would win over the plugin: Pulumi looks on PATH first.
        shutil.rmtree(checkout.embedded, ignore_errors=True)
        used = Part(NAME, "official plugin", version, env={VARIABLE: "official", **ON_DEMAND})
    elif choice == "official":
        raise ToolchainError(
            f"the official docker provider {version} cannot be had: {why}; unset {VARIABLE} to use the embedded one"
        )
    else:
        write(checkout.embedded / "pulumi-resource-docker", _launcher(checkout), mode=0o755)
        used = Part(
            NAME,
            "embedded provider",
            f"as {version}",
            why,
            env={VARIABLE: "embedded", **ON_DEMAND},
            path=[str(checkout.embedded)],
        )
    return remember(checkout, used, version)


KIND: Final = Kind(NAME, find, get)
