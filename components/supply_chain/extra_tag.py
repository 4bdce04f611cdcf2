"""``ExtraTag``: another tag for an image that has been pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from components.action import OfImage, login_inputs
from components.registry.interface import Login
from oci import client


@dataclass(frozen=True)
class ExtraTagArgs:
    """The image, ``repository@sha256:...``, the tag that it gets beside its own, and who may push it."""

    ref: pulumi.Input[str]
    tag: str
    login: Login


class _Tagging(OfImage):
    followed = ("ref", "tag")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        client.tag(props["ref"], props["tag"], login)
        return {"name": f"{props['ref'].partition('@')[0]}:{props['tag']}"}


class ExtraTag(Resource, module="image", name="ExtraTag"):
    """A tag that follows an image: moved when its digest changes, left where it is when the stack is destroyed.

    Other credentials are no change.
    """

    name: pulumi.Output[str]
    """``repository:tag``."""

    def __init__(self, name: str, args: ExtraTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {"ref": args.ref, "tag": args.tag, "name": None, **login_inputs(args.login)}
        super().__init__(_Tagging(), name, inputs, opts)
