"""An image's files as a container sees them: its layers laid over each other, and what they remove left out."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

from cli.export import layout
from oci.client import Unreadable
from oci.layers.file_tree import FileTree
from oci.layers.layer import Entry, index, members, opened
from oci.registry_image import Image, Layer
from stacks.errors import SlipwayError


class File(NamedTuple):
    """A file: all its paths, its header in the layer, and its content, to be read before the next file is."""

    paths: list[str]
    header: tarfile.TarInfo
    content: IO[bytes]


class Filesystem:
    """The files of an image, whose layers are kept, compressed as they are, in a folder that is made for them.

    ``size`` is what all files have in bytes.

    Raises:
        SlipwayError: the registry does not give a layer, or it is corrupt.
        Unwritten: the folder cannot be written to.
    """

    def __init__(self, image: Image, blobs: Path) -> None:
        self._image = image
        self._blobs = blobs
        blobs.mkdir()
        layout.store(image, self._path)
        self._indexes = []
        for layer in image.layers:
            with self._opened(layer) as file:
                self._indexes.append(index(file, layer.media_type, contents=False))
        self._entries = list(FileTree(self._indexes).paths())
        files = {id(entry): entry.size for _, entry in self._entries if entry and entry.kind == "file"}
        self.size = sum(files.values())

    def folders(self) -> Iterator[tuple[str, tarfile.TarInfo | None]]:
        """Yield each folder's path, outer ones first, and its header; None where no layer has one."""
        for path, entry in self._entries:
            if entry is None or entry.kind == "directory":
                yield path, entry.member if entry else None

    def others(self) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """Yield the path and the header of all that is neither a folder nor a file: links, devices, pipes.

        Raises:
            SlipwayError: a link leads to a file that no layer has.
        """
        for path, entry in self._entries:
            if entry and entry.kind not in {"directory", "file"}:
                if entry.kind == "hardlink" or not entry.member:
                    raise SlipwayError(f"{self._image.reference}: /{path} is another name of a file that is not there")
                yield path, entry.member

    def files(self, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[File]:
        """Yield the files that are ``wanted`` by their paths."""
        paths: defaultdict[int, list[str]] = defaultdict(list)
        for path, entry in self._entries:
            if entry and entry.kind == "file" and wanted(path):
                paths[id(entry)].append(path)
        for layer, made in zip(self._image.layers, self._indexes, strict=True):
            # Names of one file share one entry, whichever layer they are in.
            here = {_offset(entry): paths[id(entry)] for entry in made.entries.values() if id(entry) in paths}
            if not here:
                continue
            with self._opened(layer) as file, opened(file, layer.media_type) as archive:
                for member in members(archive):
                    if member.offset in here:
                        yield File(here[member.offset], member, cast("IO[bytes]", archive.extractfile(member)))

    @contextmanager
    def _opened(self, layer: Layer) -> Iterator[IO[bytes]]:
        try:
            with self._path(layer.digest).open("rb") as file:
                yield file
        except Unreadable as error:
            raise SlipwayError(f"{self._image.reference}: {layer.digest}: {error}") from None

    def _path(self, digest: str) -> Path:
        return self._blobs / digest.replace(":", "-")


def _offset(entry: Entry) -> int:
    return cast("tarfile.TarInfo", entry.member).offset
