"""An image that a stack published, and the keys to its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import verify
from cli.diff import stack_diff
from containers.blob import DIGEST
from containers.errors import SlipwayError, one_line
from containers.image.registry_image import Image, fetch, fetch_each
from containers.registry.credentials import Login
from containers.registry.logins import stack_login
from containers.registry.reference import Reference
from stacks import plan
from stacks.config.signing import SigningConfig
from stacks.config.stack_config import StackConfig
from stacks.differences import platform_parts


@dataclass(frozen=True)
class PublishedImage:
    """An image, or an index, of a stack.

    ``ref`` is ``repository@sha256:...``. ``annotations`` are what its signature must state: nothing for an image
    outside the state, which the user named by its digest. ``parts`` are what the update attested: by reference, the
    required statements of the signature of each platform's image, or of the one image. Without a name in the state,
    they are unknown.
    """

    stack: str
    name: str
    ref: str
    annotations: Mapping[str, str]
    signing: SigningConfig
    config: StackConfig
    login: Login | None
    parts: Mapping[str, Mapping[str, str]]

    @property
    def repository(self) -> str:
        """Its repository."""
        return Reference.of(self.ref).repository

    @property
    def digest(self) -> str:
        """``sha256:...``."""
        return Reference.of(self.ref).digest

    def attested(self, digest: str, *, alone: bool) -> tuple[str, Mapping[str, str]]:
        """Return what the update attested of an image in this one, and the required statements of its signature.

        It attested the image itself, or the index of it that an engine pushed. An index by the user's name, with one
        image ``alone``, is one that an engine pushed.
        """
        if alone and not self.parts:
            return self.ref, self.annotations
        ref = f"{self.repository}@{digest}"
        if ref not in self.parts:
            pushed = (part for part in self.parts if digest in {each.digest for each in fetch_each(part, self.login)})
            ref = next(pushed, ref)
        return ref, self.parts.get(ref, {})


def published(stack: str, image: str, root: Path, digest: str | None = None) -> PublishedImage:
    """Return the last published image of a stack, or the one with a ``digest`` in its repository.

    Raises SlipwayError: there is no such stack or image, the stack does not sign, or has published nothing.
    """
    planned = plan.make(stack, root=root)
    signing = planned.config.signing
    if signing is None:
        raise SlipwayError(f"stack {stack}: slipway:signing is not set, so no evidence counts")
    images: Mapping[str, Mapping[str, Any]] = stack_diff.outputs(stack, root).get("images", {})
    built = stack_diff.pushed(stack, images, image)[image]
    ref, annotations = built["ref"], verify.stated(planned, image, built)
    parts = {part["ref"]: verify.stated(planned, name, part) for name, part in platform_parts({image: built}).items()}
    if digest is not None and not DIGEST.fullmatch(digest):
        raise SlipwayError(f"--digest: '{one_line(digest)}' is no digest: give sha256: and 64 digits 0-9 a-f")
    if digest is not None and digest != Reference.of(ref).digest:
        ref, annotations, parts = str(Reference.of(ref).at(digest)), {}, {}
    login = stack_login.configured(planned.config.registry)
    return PublishedImage(stack, image, ref, annotations, signing, planned.config, login, parts)


def published_with(target: PublishedImage, digest: str, root: Path) -> tuple[PublishedImage, Image]:
    """Return what the stack published with an image of a ``digest``, and the image.

    That is the last published image, or index, if it has the image, else the image by itself.

    Raises SlipwayError: the registry has no such image.
    """
    last = published(target.stack, target.name, root)
    for image in fetch_each(last.ref, last.login):
        if image.digest == digest:
            return last, image
    earlier = published(target.stack, target.name, root, digest)
    return earlier, fetch(earlier.ref, earlier.login)
