"""``ExtraTag``: an additional, mutable tag of a pushed image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import PushLogin
from containers.registry.reference import Reference

if TYPE_CHECKING:
    from containers.registry import credentials


@dataclass(frozen=True)
class ExtraTagArgs:
    """The image as ``repository@sha256:...``, its additional tag, and the login that may push it."""

    ref: pulumi.Input[str]
    tag: str
    login: PushLogin


class TagImage(ImageAction):
    """Points a tag at an image."""

    triggers = ("ref", "tag")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Tag the image; return its new name."""
        from containers.registry import client

        client.tag(props["ref"], props["tag"], login)
        return {"name": f"{Reference.of(props['ref']).repository}:{props['tag']}"}


class ExtraTag(Resource, module="image", name="ExtraTag"):
    """A tag that moves with an image's digest. It stays in the registry when the stack is destroyed."""

    name: pulumi.Output[str]
    """``repository:tag``."""

    def __init__(self, name: str, args: ExtraTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {"ref": args.ref, "tag": args.tag, "name": None, **login_inputs(args.login)}
        super().__init__(TagImage(), name, inputs, opts)
