"""``slipway:extraTags``: additional tags, which move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from stacks.config.stack_config import StackConfig
from stacks.spec import ImageSpec


class TaggedImage(Protocol):
    """An image with its tags, such as a :class:`stacks.plan.PlannedImage`."""

    @property
    def spec(self) -> ImageSpec:
        """What the image is built from."""

    @property
    def tag(self) -> str:
        """Its own tag."""

    @property
    def extra_tags(self) -> tuple[str, ...]:
        """Its additional tags."""


def movable(config: StackConfig, images: Iterable[TaggedImage]) -> Iterator[str]:
    """Yield a message for each additional tag that would let an image's own tag move.

    ECR lets tags move by how they end, on any branch.
    """
    for image in images if config.registry.kind == "ecr" else ():
        for tag in config.extra_tags:
            if image.extra_tags and image.tag.endswith(tag):
                yield (
                    f"slipway:extraTags: '{tag}': {image.spec.name}'s own tag, {image.tag}, ends the same, and could "
                    "move in ECR; choose another word, such as latest"
                )
