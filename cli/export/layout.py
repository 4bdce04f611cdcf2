"""OCI layouts of images (image-spec, image-layout.md): a folder, or an archive that ``docker load`` reads too.

Configuration, layers and an OCI manifest are copied byte for byte. Readers of layouts refuse Docker's manifests, so one
is converted to OCI's media types, under another digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from cli.export.output import copy
from cli.export.progress import Progress
from containers.image.registry_image import Image
from containers.registry.client import IMAGES, INDEXES
from containers.registry.reference import Reference

_REF_NAME: Final = "org.opencontainers.image.ref.name"
"""Annotation with an image's tag (image-spec, annotations.md)."""
_CONTAINERD_NAME: Final = "io.containerd.image.name"
"""Annotation with the whole name, for engines that store images in containerd."""

_OCI_TYPES: Final = {
    "application/vnd.docker.container.image.v1+json": "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}
"""Docker's media types as OCI's (image-spec, media-types.md, compatibility matrix)."""

Write = Callable[[IO[bytes]], object]
"""Writes a whole stream, over an earlier attempt."""


def folder(image: Image, output: Path) -> None:
    """Write an image's layout as a folder.

    Raises:
        SlipwayError: a download fails.
        WriteFailed: a file cannot be written.
    """
    (output / "blobs/sha256").mkdir(parents=True)
    store(image, lambda digest: output / _path(digest))
    for name, content in _metadata(image).items():
        (output / name).write_bytes(content)


def archive(image: Image, output: Path) -> None:
    """Write an image's layout as an archive, with the ``manifest.json`` that older engines read.

    Raises:
        SlipwayError: a download fails.
        WriteFailed: the archive cannot be written.
    """
    with output.open("wb") as file:

        def writer(digest: str, size: int) -> Write:
            start = file.tell()

            def write(stream: IO[bytes]) -> None:
                file.seek(start)
                file.truncate()
                _member(file, _path(digest), size, stream)

            return write

        _fetch(image, writer)
        for name, content in {**_metadata(image), "manifest.json": _for_docker(image)}.items():
            _member(file, name, len(content), io.BytesIO(content))
        file.write(bytes(2 * tarfile.BLOCKSIZE))


def store(image: Image, path_of: Callable[[str], Path]) -> None:
    """Write an image's configuration and compressed layers to the paths that ``path_of`` returns for their digests.

    Raises:
        SlipwayError: a download fails.
        WriteFailed: a file cannot be written.
    """

    def writer(digest: str, _: int) -> Write:
        def write(stream: IO[bytes]) -> int:
            with path_of(digest).open("wb") as file:
                return copy(stream, file)

        return write

    _fetch(image, writer)


def _fetch(image: Image, writer: Callable[[str, int], Write]) -> None:
    """Write configuration and layers, each once, with the writer for its digest and size."""
    sizes = {str(image.manifest.content["config"]["digest"]): image.config_size}
    sizes |= {layer.digest: layer.size for layer in image.layers}
    progress = Progress(f"fetching {image.reference}", sum(sizes.values()))
    before = 0
    for digest, size in sizes.items():
        _blob(image, digest, size, writer(digest, size), progress, before)
        before += size
    progress.close()


def _blob(image: Image, digest: str, size: int, write: Write, progress: Progress, before: int) -> None:
    image.repository.blob(digest, lambda stream: write(progress.through(stream, before)), size)


def _member(file: IO[bytes], name: str, size: int, stream: IO[bytes]) -> None:
    """Write a file of ``size`` bytes into an archive."""
    member = tarfile.TarInfo(name)
    member.size = size
    copy(io.BytesIO(member.tobuf(tarfile.GNU_FORMAT)), file)
    copy(stream, file)
    copy(io.BytesIO(bytes(-size % tarfile.BLOCKSIZE)), file)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _metadata(image: Image) -> dict[str, bytes]:
    """Return the small files of a layout, by name."""
    reference = Reference.of(image.reference).in_full
    names = {} if reference.digest else {_REF_NAME: reference.tag, _CONTAINERD_NAME: str(reference)}
    manifest = _manifest(image)
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    entry: dict[str, Any] = {
        "mediaType": IMAGES[0],
        "digest": digest,
        "size": len(manifest),
        **({"annotations": names} if names else {}),
    }
    return {
        _path(digest): manifest,
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": [entry]}),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }


def _manifest(image: Image) -> bytes:
    if image.manifest.media_type == IMAGES[0]:
        return image.manifest.body
    content = image.manifest.content
    parts = {"config": _part(content["config"]), "layers": [_part(layer) for layer in content["layers"]]}
    return _json({"schemaVersion": 2, "mediaType": IMAGES[0], **parts})


def _part(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    media_type = descriptor["mediaType"]
    return {**descriptor, "mediaType": _OCI_TYPES.get(media_type, media_type)}


def _for_docker(image: Image) -> bytes:
    reference = Reference.of(image.reference)
    entry = {
        "Config": _path(image.manifest.content["config"]["digest"]),
        "RepoTags": [] if reference.digest else [str(reference)],
        "Layers": [_path(layer.digest) for layer in image.layers],
    }
    return _json([entry])


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
