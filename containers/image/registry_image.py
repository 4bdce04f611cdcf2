"""An image in a registry: its manifest, configuration and layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, Final, Protocol, TypeVar

from containers.blob import DIGEST
from containers.errors import MALFORMED, SlipwayError, one_line
from containers.image.layers.layer import Facts, LayerIndex, index
from containers.registry.client import IMAGES, INDEXES, Manifest, Repository
from containers.registry.credentials import Login
from containers.registry.reference import Reference

_MOST_LAYERS: Final = 500
"""Layers of an image: Linux mounts no more on each other (fs/overlayfs/params.h, `OVL_MAX_STACK`)."""
MOST_INDEXES: Final = 8
"""Indexes that lead to an image, one from the other."""
_LISTED: Final = 20
"""Images of an index in an error."""

Result = TypeVar("Result")


class Blobs(Protocol):
    """Where an image's blobs are: a repository of a registry, a layout or an archive."""

    @property
    def reference(self) -> str:
        """What names the image, in errors too."""

    def blob(self, digest: str, read: Callable[[IO[bytes]], Result], size: int | None = None) -> Result:
        """Stream a blob to ``read``, check its digest and ``size``, and return the result of ``read``."""

    def json(self, digest: str, size: int) -> dict[str, Any]:
        """Return a small blob of ``size`` bytes that is a JSON object."""


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
    """An image: where its blobs are, its configuration, and its layers, the lowest first."""

    repository: Blobs
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

    def index(self, layer: Layer, facts: Facts | None = None) -> LayerIndex:
        """Return the index of one of the layers; with ``facts``, what these return for each file instead of digests.

        Raises SlipwayError: the layer cannot be downloaded, is corrupt, or not what the image states of it.
        """

        def read(stream: IO[bytes]) -> LayerIndex:
            return index(stream, layer.media_type, facts=facts, digest=layer.digest, diff_id=layer.diff_id)

        return self.repository.blob(layer.digest, read, layer.size)


def fetch(reference: str, login: Login | None = None, platform: str | None = None, size: Any = None) -> Image:
    """Return the image that a reference names; ``platform`` selects one image of an index.

    ``size`` is what an index states of the manifest, in bytes: see :func:`stated`.

    Raises SlipwayError: it does not exist, is ambiguous or malformed, or the registry does not respond.
    """
    for _ in range(MOST_INDEXES + 1):
        repository = Repository(reference, login)
        manifest = repository.manifest()
        if size not in (None, actual := len(manifest.body)):
            why = f"its manifest has {actual:,} bytes, and its index states {one_line(repr(size))}"
            raise SlipwayError(f"{reference}: {why}; push the image again")
        if manifest.media_type not in INDEXES:
            break
        digest = chosen(reference, manifest.content, platform)
        size = stated(manifest.content["manifests"], digest)
        reference, platform = str(Reference.of(reference).at(digest)), None
    if manifest.media_type not in IMAGES:
        raise SlipwayError(f"{reference}: not an image, its media type is '{one_line(str(manifest.media_type))}'")
    return of(repository, manifest)


def fetch_each(reference: str, login: Login | None = None) -> list[Image]:
    """Return the image that a reference names, or each image of an index, without attestations.

    Raises SlipwayError: it does not exist, is malformed or an index without images, or the registry does not respond.
    """
    manifest = Repository(reference, login).manifest()
    if manifest.media_type not in INDEXES:
        return [fetch(reference, login)]
    digests = _listed(reference, manifest.content)
    if not digests:
        raise SlipwayError(f"{reference}: an index without images")
    sizes = ((digest, stated(manifest.content["manifests"], digest)) for digest in digests.values())
    return [fetch(str(Reference.of(reference).at(digest)), login, size=size) for digest, size in sizes]


def platforms(reference: str, login: Login | None = None) -> list[str]:
    """Return the platforms of the images that a reference names.

    Raises SlipwayError: it does not exist or is malformed, or the registry does not respond.
    """
    repository = Repository(reference, login)
    manifest = repository.manifest()
    return (
        [*_listed(reference, manifest.content)]
        if manifest.media_type in INDEXES
        else [of(repository, manifest).platform]
    )


def chosen(reference: str, content: Mapping[str, Any], platform: str | None) -> str:
    """Return the digest of an index's image for a platform; without one, of its only image.

    Raises SlipwayError: there is no such image, or there are several.
    """
    digests = _listed(reference, content)
    if platform is None and len(digests) == 1:
        return next(iter(digests.values()))
    if platform not in digests:
        images = [f"{one_line(name)} ({one_line(digest)})" for name, digest in islice(digests.items(), _LISTED)]
        rest = f" and {len(digests) - _LISTED} more" if len(digests) > _LISTED else ""
        names = (", ".join(images) or "none") + rest
        choose = "of several images; choose one with --platform, or name one by its digest"
        problem = f"without an image for {one_line(platform)}" if platform else choose
        raise SlipwayError(f"{reference}: an index {problem}: {names}")
    return digests[platform]


def stated(entries: Iterable[Any], digest: str) -> Any:
    """Return what an index states of a manifest's bytes; None for nothing.

    Engines refuse a manifest of another size (containerd/containerd 02e0fef, plugins/content/local/writer.go,
    `Commit`), and take one of which nothing is stated.
    """
    return next((entry.get("size") or None for entry in entries if entry.get("digest") == digest), None)


def of(blobs: Blobs, manifest: Manifest) -> Image:
    """Return the image of a manifest.

    Raises SlipwayError: the manifest or the configuration is malformed, or a blob cannot be read.
    """
    try:
        return _image(blobs, manifest)
    except MALFORMED as error:
        why = one_line(repr(error))
        raise SlipwayError(f"{blobs.reference}: malformed manifest or configuration: {why}") from None


def _listed(reference: str, content: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of an index's images by platform. Raises SlipwayError: the index is malformed."""
    try:
        return _platforms(content)
    except MALFORMED as error:
        raise SlipwayError(f"{reference}: malformed index: {one_line(repr(error))}") from None


def _platforms(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of an index's images by platform, without attestations, which have no platform."""
    digests = {}
    for entry in content.get("manifests") or []:
        platform = entry.get("platform") or {}
        if platform.get("os", "unknown") != "unknown":
            digests[_platform(platform)] = str(entry["digest"])
    return digests


def _platform(platform: Mapping[str, Any]) -> str:
    variant = platform.get("variant") if platform["architecture"] != "arm64" else None  # arm64 is always v8
    return "/".join(part for part in (platform["os"], platform["architecture"], variant) if part)


def _check_settings(settings: Any) -> None:
    """Check the types of what a container is started with (opencontainers/image-spec v1.1.1, config.md).

    Raises:
        TypeError: one is of another type.
        ValueError: one has a zero byte.
    """
    if not isinstance(settings, dict):
        raise TypeError(f"config is {type(settings).__name__}")
    for name, kind in _SETTINGS.items():
        value = settings.get(name)
        inner = value if kind is list else value.values() if name == "Labels" and isinstance(value, dict) else ()
        if value is not None and not (isinstance(value, kind) and all(isinstance(each, str) for each in inner or ())):
            raise TypeError(f"config.{name} is of another type")
        if name != "Labels" and "\0" in (value if isinstance(value, str) else "".join(inner or ())):
            raise ValueError(f"config.{name} has a zero byte, with which no process starts")


_SETTINGS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("Env", "Entrypoint", "Cmd"), list),
    **dict.fromkeys(("Volumes", "Labels"), dict),
    **dict.fromkeys(("WorkingDir", "User"), str),
}
"""The settings that are read, with their types; of the lists and of the labels each value is text."""


def _size(descriptor: Mapping[str, Any]) -> int:
    """Return the bytes of a blob (opencontainers/image-spec v1.1.1, descriptor.md: an int64).

    Raises ValueError: it is no size; a negative one would make an image smaller than it is, for its budget too.
    """
    size = descriptor["size"]
    if type(size) is not int or not 0 <= size < 2**63:
        raise ValueError(f"size {size!r}, expected a whole number of bytes")
    return size


def _image(repository: Blobs, manifest: Manifest) -> Image:
    descriptor = manifest.content["config"]
    size = _size(descriptor)
    config = repository.json(descriptor["digest"], size)
    blobs, diff_ids = manifest.content["layers"], config["rootfs"]["diff_ids"]
    if invalid := [each for each in diff_ids if not DIGEST.fullmatch(each)]:
        raise ValueError(f"diff_id {invalid[0]!r}, expected sha256: and 64 hex digits")
    if len(blobs) != len(diff_ids):
        raise ValueError(f"{len(blobs)} layers, {len(diff_ids)} diff_ids")
    if len(blobs) > _MOST_LAYERS:
        raise ValueError(f"{len(blobs)} layers, Linux stacks {_MOST_LAYERS}")
    commands = [step.get("created_by", "") for step in config.get("history") or [] if not step.get("empty_layer")]
    if len(commands) != len(blobs):
        commands = [""] * len(blobs)
    layers = tuple(
        Layer(str(blob["digest"]), _size(blob), str(diff_id), str(blob["mediaType"]), command)
        for blob, diff_id, command in zip(blobs, diff_ids, commands, strict=True)
    )
    settings = config.get("config") or {}
    _check_settings(settings)
    return Image(repository, manifest.digest, _platform(config), settings, layers, size, manifest)
