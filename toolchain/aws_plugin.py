"""The AWS provider, which only stacks that push to ECR need: on PATH, else Pulumi's official plugin."""

import shutil
from typing import Final

from toolchain import plugin
from toolchain.checkout import Checkout
from toolchain.errors import ToolchainError
from toolchain.part import Part

NAME: Final = "AWS provider"
PLUGIN: Final = "aws"
PROGRAM: Final = "pulumi-resource-aws"


def get(checkout: Checkout) -> Part:
    """Have the provider. Raises ToolchainError where it cannot be had: nothing stands in for it."""
    version = plugin.version(checkout, PLUGIN)
    if found := shutil.which(PROGRAM):
        return Part(NAME, found, version)
    if why := plugin.install(checkout, PLUGIN):
        raise ToolchainError(
            f"the {NAME} {version}, which pushing to ECR needs, cannot be had: {why}; put {PROGRAM} on PATH, "
            "or take another kind of slipway:registry"
        )
    return Part(NAME, "official plugin", version)
