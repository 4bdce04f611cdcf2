"""The files of an image as a container sees them: its layers merged, without removed files."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

from cli.export import layout
from containers.blob import BlobUnreadable
from containers.errors import SlipwayError
from containers.image.layers.file_tree import FileTree
from containers.image.layers.layer import Entry, index, members, opened
from containers.image.registry_image import Image, Layer


class File(NamedTuple):
    """A file: all its paths, its header, and its content, which must be read before the next file is requested."""

    paths: list[str]
    header: tarfile.TarInfo
    content: IO[bytes]


class Filesystem:
    """The files of an image, whose compressed layers are stored in a new folder ``blobs``.

    ``size`` is the size of all files in bytes.

    Raises:
        SlipwayError: a layer cannot be downloaded, or is corrupt.
        WriteFailed: the folder cannot be written to.
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
        """Yield each folder's path, outer ones first, and its header; None if no layer has one."""
        for path, entry in self._entries:
            if entry is None or entry.kind == "directory":
                yield path, entry.member if entry else None

    def special_files(self) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """Yield the paths and headers of links, devices and pipes.

        Raises SlipwayError: the target of a hard link is missing.
        """
        for path, entry in self._entries:
            if entry and entry.kind not in {"directory", "file"}:
                if entry.kind == "hardlink" or not entry.member:
                    raise SlipwayError(f"{self._image.reference}: /{path} is a hard link to a missing file")
                yield path, entry.member

    def files(self, matches: Callable[[str], bool] = lambda _: True) -> Iterator[File]:
        """Yield the files with a path that ``matches``."""
        paths: defaultdict[int, list[str]] = defaultdict(list)
        for path, entry in self._entries:
            if entry and entry.kind == "file" and matches(path):
                paths[id(entry)].append(path)
        for layer, contents in zip(self._image.layers, self._indexes, strict=True):
            # The hard links of a file share one entry, in all layers.
            selected = {_offset(entry): paths[id(entry)] for entry in contents.entries.values() if id(entry) in paths}
            if not selected:
                continue
            with self._opened(layer) as file, opened(file, layer.media_type) as archive:
                for member in members(archive):
                    if member.offset in selected:
                        yield File(selected[member.offset], member, cast("IO[bytes]", archive.extractfile(member)))

    @contextmanager
    def _opened(self, layer: Layer) -> Iterator[IO[bytes]]:
        try:
            with self._path(layer.digest).open("rb") as file:
                yield file
        except BlobUnreadable as error:
            raise SlipwayError(f"{self._image.reference}: {layer.digest}: {error}") from None

    def _path(self, digest: str) -> Path:
        return self._blobs / digest.replace(":", "-")


def _offset(entry: Entry) -> int:
    return cast("tarfile.TarInfo", entry.member).offset
