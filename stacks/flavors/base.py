"""``base``: PyTorch on nvidia/cuda's base image with only the libraries that it needs at run time."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from stacks.flavors.torch_family.family_config import FamilyConfig
from stacks.flavors.torch_family.family_images import Variant
from stacks.flavors.torch_family.family_images import images as family
from stacks.spec import ImageSpec, Outside
from stacks.versions.incompatible import Incompatible


class Config(FamilyConfig):
    """The keys of a ``base`` stack."""

    flavor: Literal["base"] = "base"
    slim: bool = Field(default=False, description="Omit g++ and Python's headers, which torch.compile needs.")

    @model_validator(mode="after")
    def _serves_with_a_compiler(self) -> Self:
        if self.slim and self.serve:
            why = "omits the compiler, which vLLM's Triton kernels need when they first run"
            raise Incompatible("slim", "true", why, ("false", "no serve"), "pytorch/pytorch#116696 and #170235")
        return self


def images(config: Config) -> list[ImageSpec]:
    """Return torch and torch-extras, compiled in nvidia/cuda's devel image, and what they are made of."""
    builder, runtime = (Outside(reference=config.parent(edition)) for edition in ("devel", "base"))
    cudnn = {"CUDNN_VERSION": config.cudnn_release} if config.cudnn_release else {}
    return family(config, Variant("base", builder=builder, base=runtime, slim=config.slim, builder_args=cudnn))
