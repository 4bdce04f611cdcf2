"""The docker provider: Pulumi's official plugin, else the embedded one of this repository."""

import os
import shlex
import shutil
from typing import Final

from toolchain import net, proxy, pulumi_cli
from toolchain.checkout import Checkout
from toolchain.errors import ToolchainError
from toolchain.files import write
from toolchain.part import Kind, Part, recall, remember
from toolchain.steps import command, step

NAME: Final = "docker provider"
CHOICES: Final = ("official", "embedded")
VARIABLE: Final = "SLIPWAY_DOCKER_PROVIDER"
"""Forces one of CHOICES. Without it the official one is used where it can be had."""
SOURCES: Final = ("https://api.github.com", "https://get.pulumi.com")
"""Where Pulumi looks for its plugins. `SLIPWAY_PULUMI_PLUGIN_URL` names another server for the docker plugin."""
INSTALL_SECONDS: Final = 300.0


def _forced() -> str | None:
    choice = os.environ.get(VARIABLE) or None
    if choice not in {None, *CHOICES}:
        raise ToolchainError(f"{VARIABLE}={choice}: allowed are {' and '.join(CHOICES)}")
    return choice


def _version(checkout: Checkout) -> str:
    return checkout.locked("pulumi-docker")


def _has_official(checkout: Checkout) -> bool:
    plugin = checkout.pulumi_home / "plugins" / f"resource-docker-v{_version(checkout)}"
    return plugin.is_dir() and not plugin.with_name(plugin.name + ".partial").exists()


def find(checkout: Checkout) -> Part | None:
    """Return the provider that was chosen, unless the other one is now asked for or it is gone."""
    part, choice = recall(checkout, NAME, _version(checkout)), _forced()
    if part is None or choice not in {None, part.env[VARIABLE]}:
        return None
    there = (
        _has_official(checkout)
        if part.env[VARIABLE] == "official"
        else (checkout.embedded / "pulumi-resource-docker").exists()
    )
    return part if there else None


def _install(checkout: Checkout) -> str:
    """Install the official plugin. Returns why it could not be had, empty if it is there."""
    if _has_official(checkout):
        return ""
    server = os.environ.get("SLIPWAY_PULUMI_PLUGIN_URL")
    sources = [server] if server else list(SOURCES)
    try:
        for source in sources:
            net.check_scheme(source)
    except net.UnavailableError as error:
        return str(error)
    closed = net.unreachable(sources)
    if len(closed) == len(sources):
        return "; ".join(f"{host}: {reason}" for host, reason in closed.items())
    words = [pulumi_cli.program(checkout), "plugin", "install", "resource", "docker", _version(checkout)]
    environment = {**os.environ, "PULUMI_HOME": str(checkout.pulumi_home), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        with step(f"Installing Pulumi's docker plugin {_version(checkout)}"):
            command(
                [*words, *(["--server", server] if server else [])],
                checkout.logs / "plugin.log",
                env=environment,
                timeout=INSTALL_SECONDS,
            )
    except ToolchainError as error:
        return str(error)
    return "" if _has_official(checkout) else "`pulumi plugin install` left no plugin"


def _launcher(checkout: Checkout) -> str:
    root, python = shlex.quote(str(checkout.root)), shlex.quote(str(checkout.venv / "bin" / "python"))
    return f'#!/bin/sh\n{proxy.SHELL}PYTHONPATH={root} exec {python} -P -m toolchain.docker_provider "$@"\n'


def get(checkout: Checkout) -> Part:
    """Choose a provider and make it ready."""
    if part := find(checkout):
        return part
    version, choice = _version(checkout), _forced()
    why = f"{VARIABLE}=embedded" if choice == "embedded" else _install(checkout)
    if not why:
        # An embedded launcher would win over the plugin: Pulumi looks on PATH first.
        shutil.rmtree(checkout.embedded, ignore_errors=True)
        used = Part(NAME, "official plugin", version, env={VARIABLE: "official"})
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
            # Pulumi would ask the network for each plugin at every run.
            env={VARIABLE: "embedded", "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"},
            path=[str(checkout.embedded)],
        )
    return remember(checkout, used, version)


KIND: Final = Kind(NAME, find, get)
