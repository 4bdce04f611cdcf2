"""The index of a layer: the files it writes and removes, read from a stream (OCI image specification)."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import posixpath
import re
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import IO, Any, Final, NamedTuple, cast

import zstandard

from containers import budget
from containers.blob import BlobUnreadable
from containers.errors import one_line
from containers.image.layers import packages

_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_AUFS: Final = ".wh..wh."
"""Prefix of AUFS metadata, which is not part of the image."""

_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 16
"""Bytes that `tarfile` reads at once: it copies the rest of them for each file."""
_HEADER_LIMIT: Final = 1 << 20
"""Bytes of the largest extended header, with extended attributes or a long name, as for engines (Go 1.24,
archive/tar/format.go: `maxSpecialFileSize`)."""
_MOST_ENDED: Final = 3
"""Times that `tarfile` may read on at the end: it does so once for a header, and once for what it holds of a block."""
_PERMISSIONS: Final = 0o7777
_LONGEST_PATH: Final = 4095
"""Bytes of the longest path that a program can open (Linux 6.12, include/uapi/linux/limits.h, `PATH_MAX`)."""
_CAPABILITIES: Final = "SCHILY.xattr.security.capability"
"""The pax header with a file's capabilities, an extended attribute (star's manual)."""

_KINDS: Final[Mapping[bytes, str]] = {
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}
_TYPES: Final = {tarfile.REGTYPE, tarfile.AREGTYPE, *_KINDS}
_NUMBERS: Final = {"size", "uid", "gid"}
"""Numbers of a file in an extended header."""
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class Entry(NamedTuple):
    """The file at a path; equal entries are equal files, apart from their modification times.

    ``kind`` is ``file``, ``directory``, ``symlink``, ``device`` or ``fifo``; ``hardlink`` for another name of a file in
    a lower layer. ``size`` is in bytes; ``content`` is half of a file's SHA-256 (16 bytes); ``target`` is a link's
    target or a device's numbers; ``capabilities`` are a program's file capabilities; ``packages`` are those that a
    package database lists. ``member`` is the file's header in an index without contents. ``facts`` are what a reader
    of contents returned for the file.
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
    facts: Any = None

    @property
    def writable(self) -> bool:
        """Whether every user may write to it; a sticky folder, such as /tmp, does not count."""
        return self.kind != "symlink" and bool(self.mode & stat.S_IWOTH) and not self.mode & stat.S_ISVTX


@dataclass(frozen=True)
class LayerIndex:
    """The files that a layer writes, in its order, and the removed ones of lower layers.

    Paths are relative to the image's root. ``removed`` are removed paths, ``opaque`` folders whose earlier content is
    removed. ``links`` has further names of the layer's files, and the first name of each.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)


Facts = Callable[[str, int, IO[bytes]], Any]
"""Returns what is worth to know of the file at a path, by its size in bytes and its content."""


def index(
    stream: IO[bytes],
    media_type: str,
    *,
    contents: bool = True,
    facts: Facts | None = None,
    digest: str = "",
    diff_id: str = "",
) -> LayerIndex:
    """Read a layer's archive without writing to disk; without ``contents`` only its headers.

    With ``facts`` this reads each file instead, for :attr:`Entry.facts`. The digests are as for :func:`opened`.

    Raises:
        BlobUnreadable: the archive is malformed or another one, or its compression unknown.
    """
    layer = LayerIndex()
    with opened(stream, media_type, digest, diff_id) as archive:
        for member in members(archive):
            _add(layer, archive, member, contents, facts)
    return layer


@contextmanager
def opened(stream: IO[bytes], media_type: str, digest: str = "", diff_id: str = "") -> Iterator[tarfile.TarFile]:
    """Open a layer's archive for one pass from beginning to end; ``diff_id`` is the digest that it must have.

    Engines refuse another archive (containerd/containerd 1459d32, pkg/rootfs/apply.go, `applyLayers`). Whoever reads
    the stream checks that it has the ``digest``, so that an archive without compression is not hashed twice.

    Raises:
        BlobUnreadable: the archive is malformed or another one, or its compression unknown; also while it is read.
    """
    try:
        content = decompressed(stream, media_type)
        is_hashed = bool(diff_id) and (content is not stream or digest != diff_id)
        source = _Ended(content, hashlib.sha256() if is_hashed else None)
        with tarfile.open(fileobj=cast("Any", source), mode="r|", bufsize=_BLOCK, tarinfo=Header) as archive:
            yield archive
        if is_hashed and (actual := source.finish()) != diff_id:
            why = f"its archive has the digest {actual}, and the image's configuration states {diff_id}"
            raise BlobUnreadable(f"{why}; build and push the image again")
    except MALFORMED as error:
        raise BlobUnreadable(f"malformed layer archive: {error}") from None


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an open archive; a member can be read until the next is requested."""
    while member := archive.next():
        budget.check()
        cast("Any", archive).members.clear()  # tarfile would keep them all
        cast("Any", archive).pax_headers = {}  # and a global header for all entries after it, which engines do not
        if member.size < 0:
            raise tarfile.ReadError(f"a file of {member.size} bytes")
        if member.type not in _TYPES:
            raise tarfile.ReadError(f"a file of type {member.type!r}, which no engine unpacks")
        _check_records(member)
        yield member


def _check_records(member: tarfile.TarInfo) -> None:
    """Check what an extended header says of a file. Engines refuse what `tarfile` takes for 0, or for a shorter name.

    Source: Go 1.24, archive/tar/reader.go (`mergePAX`) and strconv.go (`validPAXRecord`).

    Raises:
        ReadError: a number is none, or a name has a zero byte.
    """
    records = member.pax_headers
    for name in _NUMBERS.intersection(records):
        if not _NUMBER.fullmatch(records[name]):
            raise tarfile.ReadError(f"{name} {one_line(records[name])!r} in an extended header, expected a number")
    if records and "\0" in f"{member.name}{member.linkname}":
        raise tarfile.ReadError(f"a zero byte in the name {one_line(member.name)!r}")


class Header(tarfile.TarInfo):
    """A header, of a size that fits into memory. Sparse files, which no builder of images writes, are refused.

    `tarfile` reads extended headers as a whole, and a sparse file's map to its end, however long.
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: str) -> Header:
        """Read a header. `tarfile` takes a malformed one for the end of the archive, and engines refuse it."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):  # a block of zeros, or none, is the end
                raise tarfile.ReadError(f"a header is malformed: {error}") from None
            raise

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENDED and self.size > _HEADER_LIMIT:
            raise tarfile.ReadError(f"an extended header of {self.size} bytes, at most {_HEADER_LIMIT} are read")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a sparse file")
        return cast("Any", super())._proc_member(archive)  # noqa: SLF001 - tarfile has no other place for a limit

    def _refused(self, *_: Any) -> None:
        raise tarfile.ReadError("a sparse file")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refused


_EXTENDED: Final = {
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
}


class _Ended:
    """A stream that ends once: `tarfile` would read on for a file of a stated exbibyte."""

    def __init__(self, stream: Any, digest: Any = None) -> None:
        self._stream, self._digest, self._ended = stream, digest, 0

    def read(self, size: int) -> bytes:
        content: bytes = self._stream.read(size)
        budget.check(len(content) if self._digest else 0)
        if self._digest:
            self._digest.update(content)
        self._ended += not content
        if self._ended > _MOST_ENDED:
            raise tarfile.ReadError("unexpected end of data")
        return content

    def finish(self) -> str:
        """Read what is left after the last file, and return the digest of all."""
        self._ended = 0
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._digest.hexdigest()}"


class _File:
    """The content of the last member. `tarfile` would fill a buffer for each, and of most files four bytes are read."""

    __slots__ = ("_left", "_stream")

    def __init__(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._stream, self._left = cast("Any", archive).fileobj, member.size

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, or else the rest. Raises ReadError: the archive ends before."""
        wanted = min(size, self._left) if size >= 0 else self._left
        content: bytes = self._stream.read(wanted)
        if len(content) < wanted:
            raise tarfile.ReadError("unexpected end of data")
        self._left -= wanted
        return content


def normal(name: str) -> str:
    """Return the path of a member or link target relative to the image's root."""
    return posixpath.normpath(f"/{name}").lstrip("/")


MALFORMED: Final = (
    EOFError,
    gzip.BadGzipFile,
    OverflowError,
    RecursionError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zlib.error,
    zstandard.ZstdError,
)
"""What is raised while a malformed archive is read."""


def decompressed(stream: IO[bytes], media_type: str) -> Any:
    """Return the stream of a layer's archive. Raises BlobUnreadable: its compression is unknown."""
    for suffix, reader in _COMPRESSIONS.items():
        if media_type.endswith(suffix):
            return stream if _is_plain(stream) else reader(stream)
    raise BlobUnreadable(f"unknown media type '{one_line(media_type)}' of a layer")


def _is_plain(stream: IO[bytes]) -> bool:
    """Return whether a stream begins as an archive does, whatever its media type.

    Docker pushes its empty layer plain and names it gzip; engines look at the first bytes (containerd,
    pkg/archive/compression: `DetectCompression`).
    """
    start: bytes = cast("Any", stream).peek(tarfile.BLOCKSIZE)[: tarfile.BLOCKSIZE] if hasattr(stream, "peek") else b""
    return len(start) == tarfile.BLOCKSIZE and (start[257:262] == b"ustar" or not any(start))


_COMPRESSIONS: Final[Mapping[str, Callable[[IO[bytes]], Any]]] = {
    "gzip": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb"),
    "zstd": lambda stream: zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=False),
    "tar": lambda stream: stream,
}
"""Decompression by suffix of a layer's media type."""


def _add(
    layer: LayerIndex, archive: tarfile.TarFile, member: tarfile.TarInfo, contents: bool, facts: Facts | None
) -> None:
    path = normal(member.name)
    if (length := len(path.encode(errors="surrogateescape"))) > _LONGEST_PATH:
        raise tarfile.ReadError(f"a path of {length:,} bytes, Linux takes {_LONGEST_PATH:,}")
    if not facts:
        path = sys.intern(path)  # the other image mostly has the same paths
    folder, name = posixpath.split(path)
    if name == _OPAQUE:
        layer.opaque.add(folder)
    elif name.startswith(_AUFS) or not path:
        return
    elif name.startswith(_WHITEOUT):
        layer.removed.add(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
    else:
        layer.entries[path] = _entry(layer, archive, member, path, contents, facts)


def _entry(
    layer: LayerIndex, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, contents: bool, facts: Facts | None
) -> Entry:
    kind = _KINDS.get(member.type, "file")
    mode, owner = _rights(member.mode & _PERMISSIONS, member.uid, member.gid)
    header = None if contents else member
    if kind == "file":
        if facts:
            known = facts(path, member.size, cast("IO[bytes]", _File(archive, member)))
            return (
                _plain(mode, owner, member.size)
                if known is None
                else Entry(kind, mode, owner, member.size, capabilities=_capabilities(member), facts=known)
            )
        if header:
            return Entry(kind, mode, owner, member.size, member=header)
        listed, content = _read(cast("IO[bytes]", _File(archive, member)), packages.database(path))
        return Entry(kind, mode, owner, member.size, content, "", _capabilities(member), listed)
    if kind == "hardlink":
        target = normal(member.linkname)
        if target not in layer.entries or layer.entries[target].kind == "directory":
            return Entry(kind, mode, owner, target=target)
        if target != path:
            layer.links[path] = layer.links.get(target, target)
        return layer.entries[target]
    numbers = f"{member.type.decode()} {member.devmajor}:{member.devminor}"
    target = {"symlink": member.linkname, "device": numbers}.get(kind, "")
    return Entry(kind, 0o777 if kind == "symlink" else mode, owner, target=target, member=header)


def _capabilities(member: tarfile.TarInfo) -> str:
    return member.pax_headers.get(_CAPABILITIES, "")


@lru_cache(1 << 16)
def _plain(mode: int, owner: tuple[int, int], size: int) -> Entry:
    """Return the entry of a file that nothing more is known of, as a shared object: there may be a million of them."""
    return Entry("file", mode, owner, size)


@cache
def _rights(mode: int, uid: int, gid: int) -> tuple[int, tuple[int, int]]:
    """Return mode and owner as shared objects: an image has hundreds of thousands of files."""
    return mode, (uid, gid)


def _read(file: IO[bytes], parse: packages.Parser | None) -> tuple[packages.Packages | None, bytes]:
    """Return the packages that ``parse`` reads from a file, and half of its SHA-256."""
    digest = hashlib.sha256()
    chunks = []
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        if parse:
            chunks.append(chunk)
    return parse(b"".join(chunks)) if parse else None, digest.digest()[:16]
