"""An image on this machine: an OCI layout as a folder or an archive, or an archive of ``docker save``.

Sources: image-spec v1.1, image-layout.md; moby v28, image/tarexport/tarexport.go (`manifestItem`).
"""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from containers.blob import DIGEST, LIMIT, Result, check_small, parsed, read_blob
from containers.errors import SlipwayError, abridged, one_line
from containers.image.layers.layer import MALFORMED, Header, members
from containers.image.registry_image import MOST_INDEXES, Image, chosen, of, stated
from containers.registry.client import IMAGES, INDEXES, Manifest

_MOST_LINKS: Final = 8
"""Links in an archive that lead to a file."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


def is_local(target: str) -> bool:
    """Return whether a word names a file or folder of this machine, and not an image in a registry."""
    return target.startswith((".", "/", "~")) or Path(target).exists()


def open_image(target: str, platform: str | None = None) -> Image:
    """Return the image in a layout or archive; ``platform`` selects one of several.

    Raises SlipwayError: there is no such file, it is no image, or of several.
    """
    path = Path(target).expanduser()
    if not path.exists():
        raise SlipwayError(f"{target}: no such file or folder; name an image in a registry as HOST/NAME:TAG")
    return image_of(_Folder(target, path) if path.is_dir() else _Archive(target, path), platform)


class Files(ABC):
    """The files of a layout, and its blobs: ``names`` has the files of those that are not at the layout's place."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self.names: dict[str, str] = {}

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether there is a file."""

    @abstractmethod
    def opened(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file. Raises OSError: it does not exist."""

    def blob(self, digest: str, read: Callable[[IO[bytes]], Result], size: int | None = None) -> Result:
        """Stream a blob to ``read``, check the blob's digest, and return the result of ``read``.

        Raises SlipwayError: it does not exist, does not have its digest or ``size``, or is malformed.
        """
        with self._explained(digest), self.opened(self.name_of(digest)) as file:
            verify = digest not in self.names  # an archive of `docker save` states neither digests nor sizes
            known = size if verify else None
            return read_blob(file.read, read, reference=self.reference, digest=digest, size=known, verify=verify)

    def name_of(self, digest: str) -> str:
        """Return the name of the file that has a blob. Raises SlipwayError: this is no digest."""
        if digest not in self.names and not DIGEST.fullmatch(digest):
            raise SlipwayError(f"{self.reference}: '{one_line(digest)}' is no digest of a blob")
        return self.names.get(digest) or f"blobs/{digest.replace(':', '/')}"

    def json(self, digest: str, size: int) -> dict[str, Any]:
        """Return a small blob that is a JSON object. Raises SlipwayError: as for :meth:`blob`, or it is none."""
        check_small(f"{self.reference}: {one_line(digest)}", size)
        body = self.blob(digest, lambda file: file.read(LIMIT), size)
        content = self.parsed(body, digest)
        if not isinstance(content, dict):
            raise SlipwayError(f"{self.reference}: {one_line(digest)} is not a JSON object")
        return content

    def parsed(self, body: bytes, name: str) -> Any:
        """Return JSON. Raises SlipwayError: it is none."""
        try:
            return parsed(body)
        except (ValueError, RecursionError):
            raise SlipwayError(f"{self.reference}: {one_line(name)} is not JSON") from None

    def file(self, name: str) -> Any:
        """Return the JSON in a small file. Raises SlipwayError: it cannot be read."""
        with self._explained(name), self.opened(name) as file:
            return self.parsed(file.read(LIMIT), name)

    def start(self, name: str) -> bytes:
        """Return the first bytes of a file. Raises SlipwayError: it cannot be read."""
        with self._explained(name), self.opened(name) as file:
            return file.read(4)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except (*MALFORMED, OSError) as error:
            reason = one_line(str(error) or type(error).__name__)
            raise SlipwayError(f"{self.reference}: {one_line(name)}: {reason}") from None


class _Folder(Files):
    """A layout as a folder, of which regular files count alone: links may lead to them, and not out of the folder."""

    def __init__(self, reference: str, path: Path) -> None:
        super().__init__(reference)
        self._path = path.resolve()

    def has(self, name: str) -> bool:
        return os.path.lexists(self._path / name)

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        path = (self._path / name).resolve()
        if not path.is_relative_to(self._path):
            raise PermissionError("leads out of the folder")
        # Whoever replaces the file now gets no further; a FIFO would wait for its writer.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PermissionError("no regular file")
            yield file


class _Archive(Files):
    """An archive; each use opens it anew, so that layers can be read at the same time."""

    def __init__(self, reference: str, path: Path) -> None:
        super().__init__(reference)
        self._path = path
        if not path.is_file():
            raise SlipwayError(f"{reference}: no regular file, and no folder")
        try:
            with self._archive() as archive:
                self._members = {posixpath.normpath(member.name): member for member in members(archive)}
        except (*MALFORMED, OSError) as error:
            raise SlipwayError(f"{reference}: no archive: {one_line(str(error))}") from None

    def _archive(self) -> tarfile.TarFile:
        return tarfile.open(self._path, tarinfo=Header)

    def has(self, name: str) -> bool:
        return name in self._members

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self._members:
            raise FileNotFoundError("no such file in the archive")
        member = self._members[name]
        for _ in range(_MOST_LINKS):  # docker 20.10 links equal layers
            if not (member.issym() or member.islnk()):
                break
            folder = posixpath.dirname(member.name) if member.issym() else ""
            member = self._members.get(posixpath.normpath(posixpath.join(folder, member.linkname)), member)
        if not member.isfile():
            raise FileNotFoundError("no file, but a link, folder or device")
        with self._archive() as archive:
            yield cast("IO[bytes]", archive.extractfile(member))


def image_of(files: Files, platform: str | None) -> Image:
    """Return the image of a layout; ``platform`` selects one of several.

    Raises SlipwayError: the files are no layout, or of several images.
    """
    try:
        if files.has("index.json"):
            return _of_layout(files, platform)
        if files.has("manifest.json"):
            return _of_docker(files)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SlipwayError(f"{files.reference}: malformed layout: {one_line(repr(error))}") from None
    what = "no OCI layout and no archive of `docker save`"
    raise SlipwayError(f"{files.reference}: {what}: without index.json and manifest.json")


def _of_layout(files: Files, platform: str | None) -> Image:
    content = files.file("index.json")
    for _ in range(MOST_INDEXES):
        manifests = [entry for entry in content["manifests"] if isinstance(entry, dict)]
        digest = str(manifests[0]["digest"]) if len(manifests) == 1 else chosen(files.reference, content, platform)
        body = files.blob(digest, lambda file: file.read(LIMIT), stated(manifests, digest))
        content = files.parsed(body, digest)
        media_type = content.get("mediaType") or (INDEXES[0] if "manifests" in content else IMAGES[0])
        if media_type in IMAGES:
            return of(files, Manifest(digest, media_type, content, body))
        if media_type not in INDEXES:
            raise SlipwayError(f"{files.reference}: not an image, its media type is '{one_line(media_type)}'")
    raise SlipwayError(f"{files.reference}: an index in an index, more than {MOST_INDEXES} deep")


def _of_docker(files: Files) -> Image:
    """Return the image of a `manifest.json`, whose configuration and layers are named by their paths."""
    entries = files.file("manifest.json")
    if len(entries) != 1:
        names = abridged([one_line((entry.get("RepoTags") or ["?"])[0]) for entry in entries], 20) or "none"
        raise SlipwayError(f"{files.reference}: an archive of {len(entries)} images, expected one: {names}")
    config, layers = str(entries[0]["Config"]), [str(layer) for layer in entries[0]["Layers"]]
    files.names |= {f"file:{name}": name for name in (config, *layers)}
    content: Mapping[str, Any] = {
        "config": {"digest": f"file:{config}", "size": 0},
        "layers": [
            {"digest": f"file:{name}", "size": 0, "mediaType": layer_type(files.start(name))} for name in layers
        ],
    }
    return of(files, Manifest("", IMAGES[0], content, b""))


def is_document(start: bytes, size: int) -> bool:
    """Return whether a file of an archive, by its first bytes and its size, is no layer: JSON, mostly."""
    shortest = 2 * tarfile.BLOCKSIZE  # of an archive without files
    plain = layer_type(start) == _LAYER
    return plain and (size < shortest or (start[:1] in {b"{", b"["} and start[257:262] != b"ustar"))


def layer_type(start: bytes) -> str:
    """Return the media type of a layer by its first bytes."""
    if start.startswith(_GZIP):
        return f"{_LAYER}+gzip"
    return f"{_LAYER}+zstd" if start.startswith(_ZSTD) else _LAYER
