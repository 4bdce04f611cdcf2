"""``ImageIndex``: the images of several platforms under one tag, which appears when all of them are pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import DiffResult, ReadResult, Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import PushLogin

if TYPE_CHECKING:
    from containers.registry import credentials


@dataclass(frozen=True)
class ImageIndexArgs:
    """The index as ``repository:tag``, each platform's image as ``repository@sha256:...``, and the login to push."""

    name: str
    parts: Mapping[str, pulumi.Input[str]]
    login: PushLogin


class PutIndex(ImageAction):
    """Pushes an index by its digest, then tags it. ``ref`` is its ``repository:tag``."""

    triggers = ("ref", "parts")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Push what the registry does not have; return the index by digest.

        Raises SlipwayError: a part is missing or for another platform, or the registry does not take the index.
        """
        from containers.registry import index
        from containers.registry.reference import Reference

        merged = index.of(props["parts"], login)
        index.push(merged, props["ref"], login)
        return {
            "digest": merged.digest,
            "tagged": merged.digest,
            "index": str(Reference.of(props["ref"]).at(merged.digest)),
        }

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Report a change if a part or the tag differs, or if a refresh read another digest behind the tag."""
        moved = olds.get("tagged") != olds.get("digest")
        return DiffResult(changes=moved or bool(super().diff(_id, olds, news).changes))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Read which digest the tag has today; None if this machine sees none, or not all images in it."""
        from containers.registry.client import Repository

        tagged = Repository(props["ref"]).visible_digest()
        whole = all(Repository(part).visible_digest() for part in props["parts"].values())
        return ReadResult(id_, {**props, "tagged": tagged if whole else None})


class ImageIndex(Resource, module="image", name="ImageIndex"):
    """The index of one image. It stays in the registry when the stack is destroyed."""

    digest: pulumi.Output[str]
    """``sha256:...``: that of the index."""

    index: pulumi.Output[str]
    """``repository@sha256:...``."""

    def __init__(self, name: str, args: ImageIndexArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self.name = args.name
        inputs = {
            "ref": self.name,
            "parts": dict(args.parts),
            "digest": None,
            "index": None,
            "tagged": None,
            **login_inputs(args.login),
        }
        super().__init__(PutIndex(), name, inputs, opts)

    @property
    def ref(self) -> pulumi.Output[str]:
        """``repository@sha256:...``; known once the tag names it."""
        return self.index
