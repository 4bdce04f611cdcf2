"""An index: the images of several platforms under one name (OCI image specification, image-index.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from containers.errors import SlipwayError
from containers.image import registry_image
from containers.platform_name import architecture, system
from containers.registry.client import IMAGES, INDEXES, PUSH_REASONS, Repository
from containers.registry.credentials import Login
from containers.registry.reference import Reference

_OCI_INDEX, _DOCKER_LIST = INDEXES
_DOCKER_IMAGE = IMAGES[1]

_REASONS: Final = PUSH_REASONS | dict.fromkeys(
    (400, 404, 405, 415),
    "the registry does not take an index, or has just deleted an image that it names; where it takes none, give "
    "slipway:platform and slipway:tagSuffix in a stack for each platform",
)

_KEPT: Final = PUSH_REASONS | dict.fromkeys(
    (400, 405, 409, 412),
    "the registry does not let the tag move, which names another index; delete it there, or give slipway:tagSuffix",
)
"""Of a tag that is there, where the index itself was taken; 412 is Harbor's (src/server/middleware/immutable)."""


@dataclass(frozen=True)
class Index:
    """An index: its media type, its bytes, and their digest ``sha256:...``."""

    media_type: str
    body: bytes

    @property
    def digest(self) -> str:
        """What the registry knows it by."""
        return f"sha256:{hashlib.sha256(self.body).hexdigest()}"


def of(parts: Mapping[str, str], login: Login | None) -> Index:
    """Return the index of pushed images; ``parts`` maps each platform to ``repository@sha256:...``.

    Equal parts make equal bytes, in any order. If all parts are Docker's, it is Docker's list, because some clients do
    not read an image of one kind in an index of the other.

    Raises SlipwayError: the registry does not have a part, or the part is for another platform.
    """
    entries = [entry for platform in sorted(parts) for entry in _entries(platform, parts[platform], login)]
    of_docker = all(entry["mediaType"] == _DOCKER_IMAGE for entry in entries)
    media_type = _DOCKER_LIST if of_docker else _OCI_INDEX
    content = {"schemaVersion": 2, "mediaType": media_type, "manifests": entries}
    return Index(media_type, json.dumps(content, separators=(",", ":"), sort_keys=True).encode())


def push(index: Index, reference: str, login: Login | None) -> None:
    """Push an index by its digest, then let the tag of ``reference`` name it. What is there is not pushed again.

    Raises SlipwayError: the registry does not take the index, rejects the login, or does not respond.
    """
    named = Reference.of(reference)
    by_digest = Repository(str(named.at(index.digest)), login, reasons=_REASONS)
    tagged = Repository(reference, login, reasons=_KEPT)
    there = tagged.visible_digest()
    if there == index.digest:
        return
    if by_digest.visible_digest() is None:
        by_digest.put(index.digest, index.body, index.media_type)
    (tagged if there else by_digest).put(named.version, index.body, index.media_type)


def _entries(platform: str, ref: str, login: Login | None) -> Iterator[dict[str, Any]]:
    """Yield the entry of an image. An engine may have pushed an index itself, with attestations beside the image."""
    repository = Repository(ref, login)
    if not repository.exists():
        name = f"{Reference.of(ref).name}-{architecture(platform)}"
        raise SlipwayError(
            f"{ref}: the registry no longer has the image for {platform}; see that it deletes nothing that an update "
            f"has just pushed. To build it again: `pulumi stack --show-urns` has the URN of the docker.Image {name}, "
            f"and of {name}-push where the stack has one; then `pulumi state taint 'URN'` of each, and an update"
        )
    manifest = repository.manifest()
    if manifest.media_type in INDEXES:
        registry_image.chosen(ref, manifest.content, platform)
        yield from manifest.content["manifests"]
        return
    image = registry_image.of(repository, manifest)
    if image.platform != platform:
        raise SlipwayError(
            f"{ref}: the engine built an image for {image.platform}, not for {platform}; a parent may be for "
            f"{image.platform} alone, or a FROM in its Dockerfile names a platform"
        )
    yield {
        "mediaType": manifest.media_type,
        "digest": manifest.digest,
        "size": len(manifest.body),
        "platform": {"os": system(platform), "architecture": architecture(platform)},
    }
