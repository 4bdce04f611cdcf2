"""The AWS provider, which only stacks that push to ECR need: on PATH, else Pulumi's official plugin."""

from typing import Final

from toolchain import plugin
from toolchain.checkout import Checkout
from toolchain.part import Part

NAME: Final = "AWS provider"
PLUGIN: Final = "aws"


def get(checkout: Checkout) -> Part:
    """Have the provider. Raises ToolchainError where it cannot be had: nothing stands in for it."""
    return plugin.get(checkout, PLUGIN, NAME, "pushing to ECR needs", "take another kind of slipway:registry")
