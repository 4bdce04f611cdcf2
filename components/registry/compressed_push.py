"""``CompressedPush``: the push of an image with layers of zstd, where the docker provider has none.

The official provider (pulumi-docker 237b789, provider/image.go: `dockerBuild`) has no input for a compression. So it
builds without a push, and this resource pushes what its engine holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction, login_inputs
from components.reached_engine import ReachedEngine
from components.registry.interface import PushLogin

if TYPE_CHECKING:
    from containers.registry import credentials


@dataclass(frozen=True)
class CompressedPushArgs:
    """The image's id on its ``engine``, its name ``repository:tag``, the level of zstd, and the login that may push."""

    built: pulumi.Input[str]
    name: str
    level: int
    engine: ReachedEngine
    login: PushLogin


class PushCompressed(ImageAction):
    """Pushes an image of an engine. ``ref`` is the name to push."""

    triggers = ("ref", "built", "level")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Push the image; return its reference by digest as ``pushed``. Raises SlipwayError: the push failed."""
        from components.registry import engine_push  # noqa: PLC0415 - previews do without the engine's client

        return {"pushed": engine_push.push(props, login)}


class CompressedPush(Resource, module="image", name="CompressedPush"):
    """An image in its registry, with layers of zstd. It stays there when the stack is destroyed."""

    pushed: pulumi.Output[str]
    """``repository@sha256:...``."""

    def __init__(self, name: str, args: CompressedPushArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        image = {"ref": args.name, "built": args.built, "level": args.level, "pushed": None}
        super().__init__(PushCompressed(), name, {**image, **args.engine.inputs, **login_inputs(args.login)}, opts)
