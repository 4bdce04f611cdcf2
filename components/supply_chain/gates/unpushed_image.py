"""``UnpushedImage``: the gate of an image that stays on its engine: its checks passed, and everything in it loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import Action


@dataclass(frozen=True)
class UnpushedImageArgs:
    """The image's ``ref``, known after its checks, its name ``repository:tag``, and its platform.

    ``engine`` is the address of the engine that holds it; empty for the machine's own. ``exceptions`` are those of
    ``slipway:inspection``. ``compiled`` is what :class:`stacks.spec.ImageSpec` has.
    """

    ref: pulumi.Input[str]
    name: str
    platform: str
    engine: str
    exceptions: Sequence[Mapping[str, str]]
    compiled: Mapping[str, str]


class InspectUnpushed(Action):
    """Inspects an image on its engine. Changed exceptions inspect nothing again: they count for the next image."""

    id_input = "ref"
    triggers = ("ref",)

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Inspect the image, unless it is one that was pushed, and so inspected, before.

        Raises:
            SlipwayError: something in the image does not load, or the engine does not give it.
        """
        if "@" not in props["ref"]:
            from components.supply_chain.gates import loading_gate

            loading_gate.check_unpushed(props)
        return {}


class UnpushedImage(Resource, module="image", name="UnpushedImage"):
    """An image that is not pushed, in which everything loads."""

    ref: pulumi.Output[str]
    """The image's id, ``sha256:...``; ``repository@sha256:...`` of one that was pushed before."""

    def __init__(self, name: str, args: UnpushedImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(InspectUnpushed(), name, dict(vars(args)), opts)
