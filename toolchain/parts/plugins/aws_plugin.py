"""The AWS provider, for stacks that push to ECR or have runners on EC2: on PATH, else Pulumi's official plugin."""

from typing import Final

from toolchain.checkout import Checkout
from toolchain.parts.part import Part
from toolchain.parts.plugins import plugin

NAME: Final = "AWS provider"
PLUGIN: Final = "aws"


def get(checkout: Checkout) -> Part:
    """Have the provider. Raises ToolchainError where it is not available: it has no substitute."""
    instead = "do without: another kind of slipway:registry, no slipway:runners of kind ec2"
    return plugin.get(checkout, PLUGIN, NAME, "ECR and runners on EC2 need", instead)
