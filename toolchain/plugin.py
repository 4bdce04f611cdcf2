"""Pulumi's official plugins, each of the version of its SDK."""

import os
from typing import Final

from toolchain import net, pulumi_cli
from toolchain.checkout import Checkout
from toolchain.errors import ToolchainError
from toolchain.steps import command, step

SOURCES: Final = ("https://api.github.com", "https://get.pulumi.com")
"""Where Pulumi looks for its plugins. `SLIPWAY_PULUMI_PLUGIN_URL` names another server for them."""
INSTALL_SECONDS: Final = 300.0


def version(checkout: Checkout, name: str) -> str:
    """Return the version that goes with the SDK in the lock."""
    return checkout.locked(f"pulumi-{name}")


def is_installed(checkout: Checkout, name: str) -> bool:
    """Tell whether a plugin is there, and whole."""
    plugin = checkout.pulumi_home / "plugins" / f"resource-{name}-v{version(checkout, name)}"
    return plugin.is_dir() and not plugin.with_name(plugin.name + ".partial").exists()


def install(checkout: Checkout, name: str) -> str:
    """Install a plugin. Returns why it could not be had, empty if it is there."""
    if is_installed(checkout, name):
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
    words = [pulumi_cli.program(checkout), "plugin", "install", "resource", name, version(checkout, name)]
    environment = {**os.environ, "PULUMI_HOME": str(checkout.pulumi_home), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        with step(f"Installing Pulumi's {name} plugin {version(checkout, name)}"):
            command(
                [*words, *(["--server", server] if server else [])],
                checkout.logs / f"plugin-{name}.log",
                env=environment,
                timeout=INSTALL_SECONDS,
            )
    except ToolchainError as error:
        return str(error)
    return "" if is_installed(checkout, name) else "`pulumi plugin install` left no plugin"
