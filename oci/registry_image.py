"""An image in a registry: its manifest, configuration and layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oci.client import IMAGES, INDEXES, Manifest, Repository
from oci.credentials import Login
from oci.layers.layer import Facts, Index, index
from stacks.errors import SlipwayError
from stacks.references import split


@dataclass(frozen=True)
class Layer:
    """One layer: digest and compressed ``size`` in bytes of its blob; ``diff_id`` is the digest of its archive."""

    digest: str
    size: int
    diff_id: str
    media_type: str
    created_by: str


@dataclass(frozen=True)
class Image:
    """An image: its repository, configuration, and layers, the lowest first."""

    repository: Repository
    digest: str
    platform: str
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    config_size: int
    """Bytes of the configuration's blob."""
    manifest: Manifest

    @property
    def reference(self) -> str:
        """The reference that the image was fetched by."""
        return self.repository.reference

    @property
    def size(self) -> int:
        """Compressed bytes: what an empty engine downloads to pull it."""
        return self.config_size + sum(layer.size for layer in self.layers)

    @property
    def diff_ids(self) -> list[str]:
        """The digests of the layers' archives, independent of compression."""
        return [layer.diff_id for layer in self.layers]

    def index(self, layer: Layer, facts: Facts | None = None) -> Index:
        """Return the index of one of the layers; with ``facts``, what these return for each file instead of digests.

        Raises:
            SlipwayError: the layer cannot be downloaded, or is corrupt.
        """
        return self.repository.blob(layer.digest, lambda stream: index(stream, layer.media_type, facts=facts))


def fetch(reference: str, login: Login | None = None, platform: str | None = None) -> Image:
    """Return the image that a reference names; ``platform`` selects one image of an index.

    Raises:
        SlipwayError: it does not exist, is ambiguous or malformed, or the registry does not respond.
    """
    repository = Repository(reference, login)
    manifest = repository.manifest()
    if manifest.media_type in INDEXES:
        digests = _platforms(manifest.content)
        if platform not in digests:
            names = ", ".join(f"{name} ({digest})" for name, digest in digests.items()) or "none"
            problem = f"without an image for {platform}" if platform else "of several images; name one by its digest"
            raise SlipwayError(f"{reference}: an index {problem}: {names}")
        return fetch(f"{split(reference)[0]}@{digests[platform]}", login)
    if manifest.media_type not in IMAGES:
        raise SlipwayError(f"{reference}: not an image, its media type is '{manifest.media_type}'")
    try:
        return _image(repository, manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise SlipwayError(f"{reference}: malformed manifest or configuration: {error!r}") from None


def _platforms(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of an index's images by platform, without attestations, which have no platform."""
    digests = {}
    for entry in content.get("manifests") or []:
        platform = entry.get("platform") or {}
        if platform.get("os", "unknown") != "unknown":
            digests[_platform(platform)] = entry["digest"]
    return digests


def _platform(platform: Mapping[str, Any]) -> str:
    variant = platform.get("variant") if platform["architecture"] != "arm64" else None  # arm64 is always v8
    return "/".join(part for part in (platform["os"], platform["architecture"], variant) if part)


def _image(repository: Repository, manifest: Manifest) -> Image:
    descriptor = manifest.content["config"]
    config = repository.json(descriptor["digest"])
    blobs, diff_ids = manifest.content["layers"], config["rootfs"]["diff_ids"]
    if len(blobs) != len(diff_ids):
        raise ValueError(f"{len(blobs)} layers, {len(diff_ids)} diff_ids")
    commands = [step.get("created_by", "") for step in config.get("history") or [] if not step.get("empty_layer")]
    if len(commands) != len(blobs):
        commands = [""] * len(blobs)
    layers = tuple(
        Layer(str(blob["digest"]), int(blob["size"]), str(diff_id), str(blob["mediaType"]), command)
        for blob, diff_id, command in zip(blobs, diff_ids, commands, strict=True)
    )
    size = int(descriptor["size"])
    return Image(repository, manifest.digest, _platform(config), config.get("config") or {}, layers, size, manifest)
