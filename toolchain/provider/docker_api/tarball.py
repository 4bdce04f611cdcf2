"""The build context as a tar stream, made while it is sent."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol, cast

from containers.dockerfile.context import CAPABILITY, ContextEntry, capability, walk
from containers.errors import SlipwayError
from toolchain.provider.build_context import matcher

_BLOCK_BYTES = 1 << 18


class Sink(Protocol):
    """Where the stream goes."""

    def write(self, data: bytes) -> int:
        """Take one piece."""


def write(sink: Sink, root: str, patterns: list[str], extra: Mapping[str, bytes]) -> None:
    """Write the context at ``root``, a resolved path, into ``sink``, without what ``patterns`` leave out.

    Everything belongs to root, as Docker's own client has it. Modification times are kept: neither builder looks at
    them when it decides whether a step is cached, and a program may look at them in the image. The files of ``extra``,
    by path, take the place of the context's own.

    Raises SlipwayError: a file cannot be read.
    """
    links: dict[tuple[int, int], str] = {}
    with tarfile.open(
        mode="w|", fileobj=cast("IO[bytes]", sink), bufsize=_BLOCK_BYTES, format=tarfile.PAX_FORMAT
    ) as archive:
        try:
            for entry in walk(root, matcher(patterns)):
                if entry.path not in extra:
                    _add(archive, entry, links)
        except (BrokenPipeError, ConnectionResetError):
            raise  # the sink's, not a file's
        except OSError as error:
            raise SlipwayError(f"error reading build context {root}: {error}") from error
        for path, content in extra.items():
            header = tarfile.TarInfo(path)
            header.size, header.mode = len(content), 0o600
            archive.addfile(header, io.BytesIO(content))


def _add(archive: tarfile.TarFile, entry: ContextEntry, links: dict[tuple[int, int], str]) -> None:
    status = entry.status
    header = tarfile.TarInfo(entry.path)
    header.mode = stat.S_IMODE(status.st_mode)
    header.mtime = int(status.st_mtime)
    if stat.S_ISREG(status.st_mode):
        if value := capability(entry.source):
            header.pax_headers = {f"SCHILY.xattr.{CAPABILITY}": value.decode("utf-8", "surrogateescape")}
        first = links.setdefault((status.st_dev, status.st_ino), entry.path) if status.st_nlink > 1 else entry.path
        if first != entry.path:
            header.type, header.linkname = tarfile.LNKTYPE, first
            archive.addfile(header)
            return
        with Path(entry.source).open("rb") as file:
            header.size = os.fstat(file.fileno()).st_size
            archive.addfile(header, file)
        return
    kinds = {
        stat.S_IFDIR: tarfile.DIRTYPE,
        stat.S_IFLNK: tarfile.SYMTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE,
        stat.S_IFCHR: tarfile.CHRTYPE,
        stat.S_IFBLK: tarfile.BLKTYPE,
    }
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return  # a socket means nothing in an image
    header.type = kind
    if kind == tarfile.SYMTYPE:
        header.linkname = os.readlink(entry.source)  # noqa: PTH115 - as it is written, not made a path
    header.devmajor, header.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
    archive.addfile(header)
