"""A layer as an index of what it writes and removes, read as its archive streams by (OCI image specification)."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any, Final, NamedTuple, cast

import zstandard

from oci.client import Unreadable
from oci.layers import packages

_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_AUFS: Final = ".wh..wh."
"""Prefix of names by which AUFS kept books; nothing in them is the image's."""

_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 16
"""Bytes that `tarfile` takes at once: it copies what is left of them for each file."""
_LARGEST: Final = 100_000_000
"""Bytes of a database of packages; it is the only content that is held in memory."""
_PERMISSIONS: Final = 0o7777
_CAPABILITIES: Final = "SCHILY.xattr.security.capability"
"""The header by which archives carry a file's capabilities, as an extended attribute (star's manual, POSIX pax)."""

_KINDS: Final[Mapping[bytes, str]] = {
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}


class Entry(NamedTuple):
    """What stands at a path; equal entries are equal files. When a file was last written does not count.

    ``kind`` is ``file``, ``directory``, ``symlink``, ``device`` or ``fifo``; ``hardlink`` for a name of a file that a
    lower layer wrote. ``size`` is in bytes, ``content`` half of a file's SHA-256 (16 bytes), ``target`` what a link
    points to or a device's numbers. ``capabilities`` are those that a program has, whoever runs it, as Linux keeps them
    with the file. ``packages`` are those that a database of packages lists. ``member`` is set where
    the content is not read but looked up later: the file's own header.
    """

    kind: str
    mode: int
    owner: tuple[int, int]
    size: int = 0
    content: bytes = b""
    target: str = ""
    capabilities: str = ""
    packages: packages.Packages | None = None
    member: tarfile.TarInfo | None = None

    @property
    def writable(self) -> bool:
        """Whether everybody may write to it; in a sticky folder everybody only adds, as in /tmp."""
        return self.kind != "symlink" and bool(self.mode & stat.S_IWOTH) and not self.mode & stat.S_ISVTX


@dataclass(frozen=True)
class Index:
    """What a layer writes, in its order, and what it hides of the layers below.

    Paths are relative to the image's root. ``gone`` are paths that are removed, ``opaque`` folders whose earlier
    content is.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)


def index(stream: IO[bytes], media_type: str, *, contents: bool = True) -> Index:
    """Read a layer's archive, and nothing of it to disk; without ``contents`` only its headers.

    Raises:
        Unreadable: it is no archive, or compressed in an unknown way.
    """
    made = Index()
    with opened(stream, media_type) as archive:
        for member in members(archive):
            _add(made, archive, member, contents)
    return made


@contextmanager
def opened(stream: IO[bytes], media_type: str) -> Iterator[tarfile.TarFile]:
    """Open a layer's archive, to be read once from its beginning to its end.

    Raises:
        Unreadable: it is no archive, or compressed in an unknown way; also while it is read.
    """
    try:
        with tarfile.open(fileobj=_unpacked(stream, media_type), mode="r|", bufsize=_BLOCK) as archive:
            yield archive
    except _SENSELESS as error:
        raise Unreadable(f"not a layer's archive: {error}") from None


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive that is open, each of which can be read until the next one is."""
    while (member := archive.next()) is not None:
        cast("Any", archive).members.clear()  # it would keep them all
        yield member


def normal(name: str) -> str:
    """Return a path as members and links name it, relative to the image's root."""
    return posixpath.normpath(f"/{name}").lstrip("/")


_SENSELESS: Final = (
    EOFError,
    OverflowError,
    ValueError,
    gzip.BadGzipFile,
    tarfile.TarError,
    zlib.error,
    zstandard.ZstdError,
)


def _unpacked(stream: IO[bytes], media_type: str) -> Any:
    for suffix, reader in _COMPRESSIONS.items():
        if media_type.endswith(suffix):
            return reader(stream)
    raise Unreadable(f"a layer of the media type '{media_type}' cannot be read")


_COMPRESSIONS: Final[Mapping[str, Callable[[IO[bytes]], Any]]] = {
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "zstd": lambda stream: zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=False),
    "tar": lambda stream: stream,
}
"""How a layer is compressed, by the end of its media type."""


def _add(made: Index, archive: tarfile.TarFile, member: tarfile.TarInfo, contents: bool) -> None:
    path = sys.intern(normal(member.name))  # which the other image mostly has as well
    folder, name = posixpath.split(path)
    if name == _OPAQUE:
        made.opaque.add(folder)
    elif name.startswith(_AUFS) or not path:
        return
    elif name.startswith(_WHITEOUT):
        made.gone.add(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
    else:
        made.entries[path] = _entry(made, archive, member, path, contents)


def _entry(made: Index, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, contents: bool) -> Entry:
    kind = _KINDS.get(member.type, "file")
    mode, owner = _rights(member.mode & _PERMISSIONS, member.uid, member.gid)
    header = None if contents else member
    if kind == "file":
        if header:
            return Entry(kind, mode, owner, member.size, member=header)
        if packages.database(path) and member.size > _LARGEST:
            raise Unreadable(f"/{path} has {member.size} bytes, more than a database of packages")
        listed, content = _read(cast("IO[bytes]", archive.extractfile(member)), packages.database(path))
        return Entry(kind, mode, owner, member.size, content, "", member.pax_headers.get(_CAPABILITIES, ""), listed)
    if kind == "hardlink":
        target = normal(member.linkname)
        return made.entries.get(target) or Entry(kind, mode, owner, target=target)
    numbers = f"{member.type.decode()} {member.devmajor}:{member.devminor}"
    target = {"symlink": member.linkname, "device": numbers}.get(kind, "")
    return Entry(kind, 0o777 if kind == "symlink" else mode, owner, target=target, member=header)


@cache
def _rights(mode: int, uid: int, gid: int) -> tuple[int, tuple[int, int]]:
    """Return mode and owner, the same objects for all files that have the same: there are hundreds of thousands."""
    return mode, (uid, gid)


def _read(file: IO[bytes], parse: packages.Parser | None) -> tuple[packages.Packages | None, bytes]:
    """Return the packages that a file lists, and what tells its content from another's."""
    found = hashlib.sha256()
    kept = []
    while chunk := file.read(_CHUNK):
        found.update(chunk)
        if parse:
            kept.append(chunk)
    return parse(b"".join(kept)) if parse else None, found.digest()[:16]
