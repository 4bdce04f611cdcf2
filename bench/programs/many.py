"""``many``: any number of independent images; the benchmark adds this flavor to a copy of Slipway."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stacks.config.stack_config import StackConfig
from stacks.spec import ImageSpec, Outside
from stacks.tags import Suffix


class Config(StackConfig):
    """The keys of a ``many`` stack."""

    flavor: Literal["many"] = "many"
    count: int = Field(1, description="How many images.")
    base: str = Field("scratch", description="Parent of each.")
    products: bool = Field(default=False, description="Whether they are build products.")


def images(config: Config) -> list[ImageSpec]:
    """Return the images of a ``many`` stack."""
    return [
        ImageSpec(
            name=f"image{number}",
            dockerfile=f"image{number}/Dockerfile",
            platform=config.platform,
            product=config.products,
            args={"NUMBER": str(number)},
            parents={"BASE_IMAGE": Outside(reference=config.base)},
            description="one of many",
            licenses="MIT",
            suffix=Suffix(variant="many"),
        )
        for number in range(config.count)
    ]
