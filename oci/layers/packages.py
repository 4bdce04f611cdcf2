"""Which packages a file of an image stands for: databases of dpkg and rpm by their content, pip and conda by names.

Python's metadata folders are named after the package and its version (PyPA, recording installed projects), and so are
conda's records, so that they tell of a package even where only their removal is seen.
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from oci.layers import berkeley_db

Packages = Mapping[str, str]
"""Versions by the names of packages."""

Parser = Callable[[bytes], Packages]


@dataclass(frozen=True)
class Listed:
    """Packages that a manager has at one place: ``where`` is the prefix of an environment, empty for the system's."""

    manager: str
    where: str
    packages: Packages


def database(path: str) -> Parser | None:
    """Return what reads the packages from the content of the file at a path, if it is a database of them."""
    found = _database(path)
    return found[1] if found else None


def listed(path: str, content: Packages | None) -> Listed | None:
    """Return the packages that a path stands for, if any; ``content`` are those that were read from a database."""
    if found := _database(path):
        return Listed(found[0], "", content or {})
    for manager, pattern in _NAMED.items():
        if match := pattern.fullmatch(path):
            name = re.sub(r"[-_.]+", "-", match["name"]).lower() if manager == "pip" else match["name"]
            return Listed(manager, f"/{match['where'] or ''}".rstrip("/"), {name: match["version"]})
    return None


def _database(path: str) -> tuple[str, Parser] | None:
    return next((found for pattern, found in _DATABASES.items() if pattern.fullmatch(path)), None)


def _dpkg(content: bytes) -> Packages:
    """Read a status file (dpkg, deb-control): a paragraph for each package, of which only installed ones count."""
    found = {}
    for paragraph in content.decode(errors="replace").split("\n\n"):
        fields = dict(_FIELD.findall(paragraph))
        # Distroless images have a file for each package, whose paragraph has no status.
        if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
            several = fields.get("Multi-Arch") == "same" and "Architecture" in fields
            name = f"{fields['Package']}:{fields['Architecture']}" if several else fields["Package"]
            found[name] = fields.get("Version", "")
    return found


_FIELD: Final = re.compile(r"^(Package|Version|Status|Architecture|Multi-Arch): *(.*?) *$", re.MULTILINE)


def _rpm(content: bytes) -> Packages:
    """Read rpm's database, as rpm 4.16 and later write it: an SQLite file with a header for each package.

    Raises:
        ValueError: it is none.
    """
    # Bytes 18 and 19 say that a log stands beside it (SQLite file format, 1.3), which no copy in memory may have.
    image = content[:18] + b"\x01\x01" + content[20:]
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(image)
            return _installed(blob for (blob,) in connection.execute("SELECT blob FROM Packages"))
        except sqlite3.Error as error:
            raise ValueError(f"rpm's database cannot be read: {error!r}") from None


def _older_rpm(content: bytes) -> Packages:
    """Read rpm's database, as those before 4.16 write it, in Rocky Linux 8 and UBI 8: a hash of Berkeley DB.

    Raises:
        ValueError: it is none.
    """
    return _installed(berkeley_db.values(content))


def _installed(headers: Iterable[bytes]) -> Packages:
    """Return the packages that headers of rpm describe.

    Raises:
        ValueError: one is none, or they cannot be had.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for each in headers:
            header = dict(_header(each))
            epoch = f"{header[_EPOCH]}:" if _EPOCH in header else ""
            version = f"{epoch}{header[_VERSION]}-{header[_RELEASE]}"
            name = f"{header[_NAME]}.{header[_ARCH]}" if _ARCH in header else str(header[_NAME])
            found[name].append(version)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise ValueError(f"rpm's database cannot be read: {error!r}") from None
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}  # several of kernels and public keys


_NAME, _VERSION, _RELEASE, _EPOCH, _ARCH = 1000, 1001, 1002, 1003, 1022
_INT32, _STRING, _I18N = 4, 6, 9


def _header(blob: bytes) -> Iterator[tuple[int, str | int]]:
    """Yield the strings and numbers of an rpm header: two counts, entries of 16 bytes, their data (rpm, format)."""
    entries, size = struct.unpack_from(">II", blob)
    start = 8 + 16 * entries
    data = blob[start : start + size]
    for number in range(entries):
        tag, kind, offset, _ = struct.unpack_from(">IIII", blob, 8 + 16 * number)
        if kind in {_STRING, _I18N}:
            yield tag, data[offset : data.index(b"\0", offset)].decode(errors="replace")
        elif kind == _INT32:
            yield tag, struct.unpack_from(">I", data, offset)[0]


_DATABASES: Final[Mapping[re.Pattern[str], tuple[str, Parser]]] = {
    re.compile(r"var/lib/dpkg/status"): ("dpkg", _dpkg),
    re.compile(r"var/lib/dpkg/status\.d/(?!.*\.md5sums)[^/]+"): ("dpkg", _dpkg),
    re.compile(r"(?:var/lib|usr/lib/sysimage)/rpm/rpmdb\.sqlite"): ("rpm", _rpm),
    re.compile(r"var/lib/rpm/Packages"): ("rpm", _older_rpm),
}

_NAMED: Final[Mapping[str, re.Pattern[str]]] = {
    "pip": re.compile(
        r"(?:(?P<where>.*?)/)?lib(?:64)?/python3(?:\.\d+)?/(?:site|dist)-packages/"
        r"(?P<name>[^/]+)-(?P<version>[0-9][^/-]*?)(?:\.dist-info(?:/METADATA)?|(?:-py3[\d.]*)?\.egg-info(?:/PKG-INFO)?)"
    ),
    "conda": re.compile(r"(?:(?P<where>.*)/)?conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json"),
}
