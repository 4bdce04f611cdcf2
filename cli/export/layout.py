"""An image as an OCI layout (image-spec, image-layout.md): a folder, or an archive that ``docker load`` takes as well.

Configuration and layers are the registry's own bytes, and so is a manifest of OCI's kind. One of Docker's kind, which
readers of layouts refuse, is put in OCI's terms: it says the same, under another digest.
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
from oci.client import IMAGES, INDEXES, Unreadable
from oci.registry_image import Image
from stacks.references import qualified, split

_REF_NAME: Final = "org.opencontainers.image.ref.name"
"""Annotation that holds an image's tag (image-spec, annotations.md)."""
_CONTAINERD_NAME: Final = "io.containerd.image.name"
"""Annotation that holds its whole name, for engines that keep their images in containerd."""

_OCI_TYPES: Final = {
    "application/vnd.docker.container.image.v1+json": "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}
"""Docker's media types as OCI's (image-spec, media-types.md, compatibility matrix)."""

Write = Callable[[IO[bytes]], int]
"""Writes a stream anew, from its beginning; returns how many bytes it had."""


def folder(image: Image, output: Path) -> None:
    """Write an image's layout as a folder.

    Raises:
        SlipwayError: the registry does not give a part of it.
        Unwritten: it cannot be written.
    """
    (output / "blobs/sha256").mkdir(parents=True)
    store(image, lambda digest: output / _path(digest))
    for name, content in _about(image).items():
        (output / name).write_bytes(content)


def archive(image: Image, output: Path) -> None:
    """Write an image's layout as one archive, with what engines older than the layout read: ``manifest.json``.

    Raises:
        SlipwayError: the registry does not give a part of it.
        Unwritten: it cannot be written.
    """
    with output.open("wb") as file:

        def writer(digest: str, size: int) -> Write:
            start = file.tell()

            def write(stream: IO[bytes]) -> int:
                file.seek(start)
                file.truncate()
                return _member(file, _path(digest), size, stream)

            return write

        _fetch(image, writer)
        for name, content in {**_about(image), "manifest.json": _for_docker(image)}.items():
            _member(file, name, len(content), io.BytesIO(content))
        file.write(bytes(2 * tarfile.BLOCKSIZE))


def store(image: Image, place: Callable[[str], Path]) -> None:
    """Write an image's configuration and its layers, compressed as they are, to the files that ``place`` names.

    Raises:
        SlipwayError: the registry does not give one.
        Unwritten: a file cannot be written.
    """

    def writer(digest: str, _: int) -> Write:
        def write(stream: IO[bytes]) -> int:
            with place(digest).open("wb") as file:
                return copy(stream, file)

        return write

    _fetch(image, writer)


def _fetch(image: Image, writer: Callable[[str, int], Write]) -> None:
    """Have configuration and layers written, each once, with what ``writer`` returns for its digest and its size."""
    sizes = {str(image.manifest.content["config"]["digest"]): image.config_size}
    sizes |= {layer.digest: layer.size for layer in image.layers}
    progress = Progress(f"fetching {image.reference}", sum(sizes.values()))
    before = 0
    for digest, size in sizes.items():
        _blob(image, digest, size, writer(digest, size), progress, before)
        before += size
    progress.close()


def _blob(image: Image, digest: str, size: int, write: Write, progress: Progress, before: int) -> None:
    def read(stream: IO[bytes]) -> None:
        found = write(progress.through(stream, before))
        if found != size:
            raise Unreadable(f"{found} bytes, and its manifest says {size}")

    image.repository.blob(digest, read)


def _member(file: IO[bytes], name: str, size: int, stream: IO[bytes]) -> int:
    """Write a file into an archive; return how many bytes it had, which ought to be ``size``."""
    member = tarfile.TarInfo(name)
    member.size = size
    copy(io.BytesIO(member.tobuf(tarfile.GNU_FORMAT)), file)
    found = copy(stream, file)
    copy(io.BytesIO(bytes(-found % tarfile.BLOCKSIZE)), file)
    return found


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _about(image: Image) -> dict[str, bytes]:
    """Return the small files of a layout, by name."""
    name, version = split(qualified(image.reference))
    names = {} if ":" in version else {_REF_NAME: version, _CONTAINERD_NAME: f"{name}:{version}"}
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
    said = image.manifest.content
    parts = {"config": _part(said["config"]), "layers": [_part(layer) for layer in said["layers"]]}
    return _json({"schemaVersion": 2, "mediaType": IMAGES[0], **parts})


def _part(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    media_type = descriptor["mediaType"]
    return {**descriptor, "mediaType": _OCI_TYPES.get(media_type, media_type)}


def _for_docker(image: Image) -> bytes:
    name, version = split(image.reference)
    said = {
        "Config": _path(image.manifest.content["config"]["digest"]),
        "RepoTags": [] if ":" in version else [f"{name}:{version}"],
        "Layers": [_path(layer.digest) for layer in image.layers],
    }
    return _json([said])


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
