"""Pulumi's official Kubernetes provider, for stacks that have runners on a cluster."""

from typing import Final

from toolchain.checkout import Checkout
from toolchain.parts.part import Part
from toolchain.parts.plugins import plugin

NAME: Final = "Kubernetes provider"
PLUGIN: Final = "kubernetes"


def get(checkout: Checkout) -> Part:
    """Have the provider. Raises ToolchainError where it is not available: it has no substitute."""
    return plugin.get(checkout, PLUGIN, NAME, "runners on a cluster need", "leave slipway:runners out")
