"""``UnpushedImage``: an image that stays on its engine: its checks passed, it loads, nothing refused is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import Action
from components.reached_engine import ReachedEngine


@dataclass(frozen=True)
class UnpushedImageArgs:
    """The image's ``ref``, known after its checks, its name ``repository:tag``, and its platform.

    ``engine`` is the engine that holds it. ``exceptions`` are those of ``slipway:inspection``; None if the image is not
    inspected. ``compiled`` is what :class:`stacks.spec.ImageSpec` has. ``vulnerabilities`` is
    ``slipway:vulnerabilities`` as JSON; None if the image is not scanned. ``question`` is that of
    :class:`stacks.placement.Gates`.
    """

    ref: pulumi.Input[str]
    name: str
    platform: str
    engine: ReachedEngine
    exceptions: Sequence[Mapping[str, str]] | None
    compiled: Mapping[str, str]
    vulnerabilities: Mapping[str, Any] | None = None
    question: Mapping[str, Any] | None = None


class InspectUnpushed(Action):
    """Inspects and scans an image on its engine. Changed exceptions do neither again: they count for the next image."""

    id_input = "ref"
    triggers = ("ref",)

    def run(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Inspect and scan the image, unless it is one that was pushed, and so went through both, before.

        Raises:
            SlipwayError: something in the image does not load, or is known to be vulnerable; or the engine does not
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
        engine = args.engine
        inputs = {**vars(args), "engine": engine.host, "ssh": list(engine.ssh), "tls": dict(engine.tls)}
        super().__init__(InspectUnpushed(), name, inputs, opts)
