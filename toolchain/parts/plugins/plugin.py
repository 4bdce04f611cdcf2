"""Pulumi's official plugins, each of the version of its SDK."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from containers.child_environment import child_environment
from toolchain.checkout import Checkout
from toolchain.machine.network import net
from toolchain.machine.steps import command, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import pulumi_cli, releases
from toolchain.parts.part import Part

INSTALL_SECONDS: Final = 300.0


@dataclass(frozen=True)
class ProviderPlugin:
    """A plugin without a substitute. An error names its ``users``, and what to do ``instead``."""

    name: str
    title: str
    users: str
    instead: str


REQUIRED: Final = (
    ProviderPlugin(
        "aws",
        "AWS provider",
        "ECR and runners on EC2",
        "do without: another kind of slipway:registry, no slipway:runners of kind ec2",
    ),
    ProviderPlugin("kubernetes", "Kubernetes provider", "runners on a cluster", "leave slipway:runners out"),
)
"""The plugins of stacks that need them."""


def version(checkout: Checkout, name: str) -> str:
    """Return the version of the SDK in the lock."""
    return checkout.locked(f"pulumi-{name}")


def folder(checkout: Checkout, name: str) -> Path:
    """Return the folder that Pulumi looks for a plugin in."""
    return checkout.pulumi_home / "plugins" / f"resource-{name}-v{version(checkout, name)}"


def is_installed(checkout: Checkout, name: str) -> bool:
    """Return whether a plugin is installed completely."""
    plugin = folder(checkout, name)
    return plugin.is_dir() and not plugin.with_name(plugin.name + ".partial").exists()


def get(checkout: Checkout, plugin: ProviderPlugin) -> Part:
    """Get a plugin: the one on PATH, else the official one. Raises ToolchainError where it is not available."""
    required = version(checkout, plugin.name)
    program = f"pulumi-resource-{plugin.name}"
    if on_path := shutil.which(program):
        return Part(plugin.title, on_path, required)
    if why := install(checkout, plugin.name):
        raise ToolchainError(
            f"the {plugin.title} {required}, which {plugin.users} need, is not available: {why}; "
            f"put {program} on PATH, or {plugin.instead}"
        )
    return Part(plugin.title, "official plugin", required)


def release(name: str) -> releases.Release:
    """Return the official plugin of a name. The variable names another server of such files."""
    return releases.Release(
        f"pulumi-{name}",
        f"https://github.com/pulumi/pulumi-{name}/releases/download/v{{version}}",
        f"pulumi-resource-{name}-v{{version}}-linux-{{machine}}.tar.gz",
        "SLIPWAY_PULUMI_PLUGIN_URL",
    )


def install(checkout: Checkout, name: str) -> str:
    """Install a plugin whose hash is pinned. Returns the reason of a failure, empty after success."""
    if is_installed(checkout, name):
        return ""
    required = version(checkout, name)
    checkout.cache.mkdir(parents=True, exist_ok=True)
    environment = child_environment("pulumi", PULUMI_HOME=str(checkout.pulumi_home), PULUMI_SKIP_UPDATE_CHECK="true")
    try:
        with (
            tempfile.TemporaryDirectory(dir=checkout.cache) as scratch,
            step(f"Installing Pulumi's {name} plugin {required}"),
        ):
            archive = Path(scratch) / "plugin.tar.gz"
            releases.fetch(checkout, release(name), required, archive)
            words = [pulumi_cli.program(checkout), "plugin", "install", "resource", name, required]
            log = checkout.logs / f"plugin-{name}.log"
            command([*words, "--file", archive], log, env=environment, timeout=INSTALL_SECONDS)
    except (ToolchainError, net.UnavailableError) as error:
        return str(error)
    return "" if is_installed(checkout, name) else "`pulumi plugin install` left no plugin"
