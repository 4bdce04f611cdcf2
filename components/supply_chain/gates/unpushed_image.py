"""``UnpushedImage``: an image that stays on its engine: its checks passed, it loads, nothing refused is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import Action
from components.reached_engine import ReachedEngine

if TYPE_CHECKING:
    from stacks.placement import Gates


@dataclass(frozen=True)
class UnpushedImageArgs:
    """The image's ``ref``, known after its checks, its name ``repository:tag``, and its platform.

    ``engine`` is the engine that holds it.
    """

    ref: pulumi.Input[str]
    name: str
    platform: str
    engine: ReachedEngine
    gates: Gates


class InspectUnpushed(Action):
    """Inspects and scans an image on its engine. Changed exceptions do neither again: they count for the next image."""

    id_input = "ref"
    triggers = ("ref",)

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Inspect and scan the image, unless it is one that was pushed, and so went through both, before.

        Raises SlipwayError: something in the image does not load, or is known to be vulnerable; or the engine does not
        give it.
        """
        if "@" not in props["ref"]:
            from components.supply_chain.gates import saved_image

            saved_image.check(props)
        return {}


class UnpushedImage(Resource, module="image", name="UnpushedImage"):
    """An unpushed image after the stack's gates."""

    ref: pulumi.Output[str]
    """The image's id, ``sha256:...``; ``repository@sha256:...`` of one that was pushed before."""

    def __init__(self, name: str, args: UnpushedImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        image = {"ref": args.ref, "name": args.name, "platform": args.platform, **vars(args.gates)}
        super().__init__(InspectUnpushed(), name, {**image, **args.engine.inputs}, opts)
