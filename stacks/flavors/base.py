"""``base``: PyTorch on nvidia/cuda's base image with only the libraries that it needs at run time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stacks.flavors.torch_family.family_config import FamilyConfig
from stacks.flavors.torch_family.family_images import Variant
from stacks.flavors.torch_family.family_images import images as family
from stacks.spec import ImageSpec, Outside


class Config(FamilyConfig):
    """The keys of a ``base`` stack."""

    flavor: Literal["base"] = "base"
    slim: bool = Field(default=False, description="Omit g++ and Python's headers, which torch.compile needs.")


def images(config: Config) -> list[ImageSpec]:
    """Return torch and torch-extras, compiled in nvidia/cuda's devel image, and what they are made of."""
    builder, runtime = (Outside(reference=config.parent(edition)) for edition in ("devel", "base"))
    cudnn = {"CUDNN_VERSION": config.cudnn_release} if config.cudnn_release else {}
    return family(config, Variant("base", builder=builder, base=runtime, slim=config.slim, builder_args=cudnn))
