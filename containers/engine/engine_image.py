"""An image that a Docker engine holds, read while the engine saves it: no layer is kept here, unless for a copy.

An archive names its layers last, so each file is read by its first bytes. Sources: moby v20.10 and v28,
image/tarexport/save.go (`save`, `saveLayer`): a folder in the order of its names, in v20.10 with links to equal layers;
containerd v2.0, core/images/archive/exporter.go (`writeTar`), which sorts by name too.
"""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import IO, Final, cast

from containers.blob import LIMIT, BlobUnreadable, read_blob
from containers.engine.connection import Address, EngineUnreachable
from containers.engine.engine import Engine, EngineError
from containers.engine.engine_platforms import at
from containers.errors import SlipwayError, one_line
from containers.image.layers import layer
from containers.image.layers.layer import Facts, LayerIndex
from containers.image.local_image import Files, image_of, is_document, layer_type
from containers.image.registry_image import Image

_BLOBS: Final = "blobs/sha256/"
_REST: Final = 1 << 20
"""Bytes that are read at once of what follows an archive's end."""


def read(
    name: str, identity: str, address: Address, platform: str, facts: Facts, copy: Path | None = None
) -> tuple[Image, list[LayerIndex]]:
    """Return the image that an engine holds under a name, ``repository:tag``, and the indexes of its layers.

    ``identity`` is the id that the engine gave the image, ``sha256:...``. ``facts`` are read of each file. ``copy`` is
    a file to write the archive to as it passes, for a program that needs a file.

    Raises SlipwayError: the engine does not answer, holds another image, or none; its archive is malformed; or the copy
    cannot be written.
    """
    saved = _Saved(name)
    with saving(name, address) as stream, _copied(stream, name, copy) if copy else nullcontext(stream) as source:
        try:
            with layer.opened(source, "tar") as archive:
                for member in layer.members(archive):
                    saved.add(archive, member, facts)
        except BlobUnreadable as error:
            raise SlipwayError(f"{name}: no archive of `docker save`: {error}") from None
        while source.read(_REST):
            pass
    image = image_of(saved, platform)
    if identity not in saved.identities(image):
        raise SlipwayError(
            f"{name}: the Docker engine{at(address.host)} holds another image by this name than {identity}, which the "
            "update built: run the update again, and not beside another one of the same image"
        )
    return image, [saved.index(each.digest) for each in image.layers]


@contextmanager
def saving(name: str, address: Address) -> Iterator[IO[bytes]]:
    """Yield the archive of the image ``repository:tag``, as its engine writes it.

    An engine without containerd's store of images writes the archive to its disk before its first byte.

    Raises SlipwayError: the engine cannot save the image, with its reason; also while the archive is read.
    """
    try:
        with Engine.at(address).request("GET", "/images/get", query={"names": name}) as response:
            yield cast("IO[bytes]", response)
    except (EngineError, EngineUnreachable) as error:
        raise SlipwayError(f"{name}: the Docker engine{at(address.host)}: `docker save` failed: {error}") from None


class _Saved(Files):
    """The files of an archive that has passed: small ones, and the indexes of layers."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self._texts: dict[str, bytes] = {}
        self._indexes: dict[str, LayerIndex] = {}
        self._links: dict[str, str] = {}

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, facts: Facts) -> None:
        """Read a file of the archive. Raises SlipwayError: it does not have its digest, or is a malformed layer."""
        name = layer.normal(member.name)
        if member.issym():
            self._links[name] = layer.normal(posixpath.join(posixpath.dirname(name), member.linkname))
        if not member.isfile():
            return
        file = cast("BufferedReader", archive.extractfile(member))
        start = file.peek(tarfile.BLOCKSIZE)
        digest, verify = f"sha256:{name.removeprefix(_BLOBS)}", name.startswith(_BLOBS)
        kind = layer_type(start)
        if is_document(start, member.size):
            self._texts[name] = read_blob(
                file.read, lambda text: text.read(LIMIT), reference=self.reference, digest=digest, verify=verify
            )
            return
        self._indexes[name] = read_blob(
            file.read,
            lambda content: layer.index(content, kind, facts=facts),
            reference=self.reference,
            digest=digest if verify else name,
            verify=verify,
        )

    def has(self, name: str) -> bool:
        return name in self._texts

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self._texts:
            raise FileNotFoundError("no such file in the engine's archive")
        yield BytesIO(self._texts[name])

    def start(self, _: str) -> bytes:
        return b""  # its layers are read

    def index(self, digest: str) -> LayerIndex:
        """Return the index of a layer. Raises SlipwayError: the archive has no such layer."""
        name = layer.normal(self.name_of(digest))
        index = self._indexes.get(self._links.get(name, name))
        if index is None:
            raise SlipwayError(f"{self.reference}: the engine's archive has no layer {one_line(name)}")
        return index

    def identities(self, image: Image) -> set[str]:
        """Return the ids that engines give an image: the digest of its configuration, or of what containerd keeps."""
        config = self.blob(image.manifest.content["config"]["digest"], lambda text: text.read())
        listed = self.file("index.json")["manifests"] if self.has("index.json") else []
        return {f"sha256:{hashlib.sha256(config).hexdigest()}", *(str(entry["digest"]) for entry in listed)}


class _Copied:
    """A stream whose bytes are written to a file as they are read."""

    def __init__(self, stream: IO[bytes], file: FileIO, name: str) -> None:
        self._stream, self._file, self._name = stream, file, name

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        left = memoryview(content)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            folder = posixpath.dirname(posixpath.realpath(str(self._file.name)))
            raise SlipwayError(
                f"{self._name}: its copy in {folder} cannot be written: {error.strerror}; let TMPDIR name a folder "
                "with more free space"
            ) from None
        return content


@contextmanager
def _copied(stream: IO[bytes], name: str, copy: Path) -> Iterator[IO[bytes]]:
    """Yield a stream that also writes its content to a file."""
    with FileIO(copy, "wb") as file:
        yield cast("IO[bytes]", _Copied(stream, file, name))
