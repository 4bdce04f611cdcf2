"""An image in a registry: its configuration and its layers, as its manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oci.client import IMAGES, INDEXES, Manifest, Repository
from oci.credentials import Login
from oci.layers.layer import Index, index
from stacks.errors import SlipwayError
from stacks.references import split


@dataclass(frozen=True)
class Layer:
    """One layer: its blob, with its compressed bytes, and ``diff_id``, the digest of what it unpacks to."""

    digest: str
    size: int
    diff_id: str
    media_type: str
    created_by: str


@dataclass(frozen=True)
class Image:
    """An image: where it is, what it says of itself, and its layers, the lowest first."""

    repository: Repository
    digest: str
    platform: str
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    own: int
    """Bytes of the configuration's blob."""
    manifest: Manifest

    @property
    def reference(self) -> str:
        """The name by which the image was asked for."""
        return self.repository.reference

    @property
    def size(self) -> int:
        """Compressed bytes: what a pull of it fetches into an empty engine."""
        return self.own + sum(layer.size for layer in self.layers)

    @property
    def diff_ids(self) -> list[str]:
        """The layers by what they unpack to, however they are compressed."""
        return [layer.diff_id for layer in self.layers]

    def index(self, layer: Layer) -> Index:
        """Read one of the layers.

        Raises:
            SlipwayError: the registry does not give it, or it is corrupt.
        """
        return self.repository.blob(layer.digest, lambda stream: index(stream, layer.media_type))


def fetch(reference: str, login: Login | None = None, platform: str | None = None) -> Image:
    """Return the image that a reference stands for; with ``platform``, that one of an index.

    Raises:
        SlipwayError: there is none, or several, or the registry cannot be asked.
    """
    repository = Repository(reference, login)
    manifest = repository.manifest()
    if manifest.media_type in INDEXES:
        found = _platforms(manifest.content)
        if platform not in found:
            names = ", ".join(f"{name} ({digest})" for name, digest in found.items())
            missing = f"none of them for {platform}" if platform else "where one is expected; name one by its digest"
            raise SlipwayError(f"{reference}: a list of images, {missing}: {names or 'it is empty'}")
        return fetch(f"{split(reference)[0]}@{found[platform]}", login)
    if manifest.media_type not in IMAGES:
        raise SlipwayError(f"{reference}: no image, but {manifest.media_type or 'something of no media type'}")
    try:
        return _image(repository, manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise SlipwayError(f"{reference}: its manifest or configuration is not as specified: {error!r}") from None


def _platforms(content: Mapping[str, Any]) -> dict[str, str]:
    """Return an index's images by platform; what is for no platform, such as attestations, is left out."""
    found = {}
    for entry in content.get("manifests") or []:
        platform = entry.get("platform") or {}
        if platform.get("os", "unknown") != "unknown":
            found[_platform(platform)] = entry["digest"]
    return found


def _platform(said: Mapping[str, Any]) -> str:
    variant = said.get("variant") if said["architecture"] != "arm64" else None  # v8, said or not
    return "/".join(part for part in (said["os"], said["architecture"], variant) if part)


def _image(repository: Repository, manifest: Manifest) -> Image:
    said = manifest.content
    config = repository.json(said["config"]["digest"])
    blobs, diff_ids = said["layers"], config["rootfs"]["diff_ids"]
    if len(blobs) != len(diff_ids):
        raise ValueError(f"{len(blobs)} layers, {len(diff_ids)} diff_ids")
    makers = [step.get("created_by", "") for step in config.get("history") or [] if not step.get("empty_layer")]
    if len(makers) != len(blobs):
        makers = [""] * len(blobs)
    layers = tuple(
        Layer(str(blob["digest"]), int(blob["size"]), str(diff_id), str(blob["mediaType"]), maker)
        for blob, diff_id, maker in zip(blobs, diff_ids, makers, strict=True)
    )
    own = int(said["config"]["size"])
    return Image(repository, manifest.digest, _platform(config), config.get("config") or {}, layers, own, manifest)
