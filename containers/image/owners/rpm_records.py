"""The records of rpm about the files of a package, in the header of its database.

Source: rpm 4.18, include/rpm/rpmtag.h, rpmfiles.h (`rpmfileState`), rpmpgp.h (`pgpHashAlgo`, of RFC 4880, 9.4).
Compared with `rpm --query` of Debian's rpm 4.18.0, for packages of which one replaces a file of the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from containers import budget
from containers.image.layers import rpm_database
from containers.image.owners.ownership_records import Owned, Owner, RecordedContent, Unread

_TAGS: Final = (1000, 1001, 1002, 1028, 1029, 1035, 1116, 1117, 1118, 5008, 5011)
_NAME, _VERSION, _RELEASE, _SIZES, _STATES, _DIGESTS, _FOLDER_NUMBERS, _BASENAMES, _FOLDERS, _LONG_SIZES, _ALGORITHM = (
    _TAGS
)
_INSTALLED, _REPLACED = 0, 1
"""The states of a file that is there, or was until `rpm --replacefiles` put another package's in its place."""
_MD5: Final = 1
_ALGORITHMS: Final = {_MD5: "md5", 2: "sha1", 8: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}


def is_database(path: str) -> bool:
    """Return whether rpm records packages in the file at a path."""
    return any(kind.fullmatch(path) for kind in (rpm_database.SQLITE, rpm_database.BERKELEY_DB, rpm_database.NOT_READ))


def of_database(path: str, content: bytes) -> list[Owned] | Unread:
    """Return the files of each package of a database, or why they are not known."""
    if rpm_database.NOT_READ.fullmatch(path):
        return Unread("a database in the format ndb of rpm")
    sqlite = bool(rpm_database.SQLITE.fullmatch(path))
    try:
        return list(_packages(rpm_database.headers(content, sqlite=sqlite)))
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        return Unread(f"malformed: {error}")


def _packages(blobs: Iterable[bytes]) -> Iterator[Owned]:
    for blob in blobs:
        budget.check()
        yield _owned(rpm_database.values(blob, _TAGS))


def _owned(header: rpm_database.Values) -> Owned:
    owner = Owner("rpm", str(header[_NAME][0]), f"{header[_VERSION][0]}-{header[_RELEASE][0]}")
    algorithm = _ALGORITHMS.get(header.get(_ALGORITHM, [_MD5])[0], "")
    files: dict[str, RecordedContent | None] = {}
    for path, digest, size, state in _files(header):
        if digest and algorithm and state in {_INSTALLED, _REPLACED}:
            files[path.lstrip("/")] = RecordedContent(f"{algorithm}:{digest}", size)
    return Owned(owner, files)


def _files(header: rpm_database.Values) -> Iterator[tuple[str, str, int, int]]:
    """Yield path, digest, size and state of each file; folders and links have no digest."""
    names, folders = header.get(_BASENAMES, []), header.get(_FOLDERS, [])
    paths = [f"{folders[number]}{name}" for number, name in zip(header.get(_FOLDER_NUMBERS, []), names, strict=True)]
    sizes = header.get(_LONG_SIZES) or header.get(_SIZES, [])
    states = header.get(_STATES) or repeat(_INSTALLED, len(paths))
    return zip(paths, header.get(_DIGESTS, []), sizes, states, strict=True)
