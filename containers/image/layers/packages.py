"""The packages that a file of an image records: dpkg and rpm in databases, pip and conda in file names.

Python's metadata folders (PyPA, recording installed projects) and conda's records are named after the package and its
version, so the removal of one names the package too.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.utils import canonicalize_name

from containers.image.layers import rpm_database

Packages = Mapping[str, str]
"""Versions by package name."""

Parser = Callable[[bytes], Packages]


@dataclass(frozen=True)
class PackageRecord:
    """Packages of one manager in one environment: ``where`` is its prefix, empty for the system's."""

    manager: str
    where: str
    packages: Packages


def database(path: str) -> Parser | None:
    """Return the parser for the content of the file at a path, if it is a package database."""
    kind = _database(path)
    return kind[1] if kind else None


def package_record(path: str, content: Packages | None) -> PackageRecord | None:
    """Return the packages that the file at a path records, if any; ``content`` are those of a database."""
    if kind := _database(path):
        return PackageRecord(kind[0], "", content or {})
    for manager, pattern in _NAMED.items():
        if match := pattern.fullmatch(path):
            name = canonicalize_name(match["name"]) if manager == "pip" else match["name"]
            return PackageRecord(manager, f"/{match['where'] or ''}".rstrip("/"), {name: match["version"]})
    return None


def _database(path: str) -> tuple[str, Parser] | None:
    return next((kind for pattern, kind in _DATABASES.items() if pattern.fullmatch(path)), None)


def _dpkg(content: bytes) -> Packages:
    """Return the installed packages of a status file, which has a paragraph for each (dpkg, deb-control)."""
    packages = {}
    for paragraph in content.decode(errors="replace").split("\n\n"):
        fields = {name: value.strip(" ") for name, value in _FIELD.findall(paragraph)}
        # Distroless images have one file for each package, without a status.
        if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
            multi_arch = fields.get("Multi-Arch") == "same" and "Architecture" in fields
            name = f"{fields['Package']}:{fields['Architecture']}" if multi_arch else fields["Package"]
            packages[name] = fields.get("Version", "")
    return packages


_FIELD: Final = re.compile(r"^(Package|Version|Status|Architecture|Multi-Arch):(.*)$", re.MULTILINE)


def _rpm(content: bytes) -> Packages:
    """Return the packages of a database of rpm 4.16 or later. Raises ValueError: the database is malformed."""
    return _installed(rpm_database.headers(content, sqlite=True))


def _older_rpm(content: bytes) -> Packages:
    """Return the packages of a database of rpm before 4.16. Raises ValueError: the database is malformed."""
    return _installed(rpm_database.headers(content, sqlite=False))


def _installed(headers: Iterable[bytes]) -> Packages:
    """Return the packages of rpm headers. Raises ValueError: a header is malformed."""
    packages: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for blob in headers:
            header = {tag: value[0] for tag, value in rpm_database.values(blob, _TAGS).items() if value}
            epoch = f"{header[_EPOCH]}:" if _EPOCH in header else ""
            version = f"{epoch}{header[_VERSION]}-{header[_RELEASE]}"
            name = f"{header[_NAME]}.{header[_ARCH]}" if _ARCH in header else str(header[_NAME])
            packages[name].append(version)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise ValueError(f"malformed rpm database: {error!r}") from None
    return {name: ", ".join(sorted(versions)) for name, versions in packages.items()}  # kernels, public keys


_NAME, _VERSION, _RELEASE, _EPOCH, _ARCH = _TAGS = 1000, 1001, 1002, 1003, 1022


_DATABASES: Final[Mapping[re.Pattern[str], tuple[str, Parser]]] = {
    re.compile(r"var/lib/dpkg/status"): ("dpkg", _dpkg),
    re.compile(r"var/lib/dpkg/status\.d/(?!.*\.md5sums)[^/]+"): ("dpkg", _dpkg),
    rpm_database.SQLITE: ("rpm", _rpm),
    rpm_database.BERKELEY_DB: ("rpm", _older_rpm),
}

_NAMED: Final[Mapping[str, re.Pattern[str]]] = {
    "pip": re.compile(
        r"(?:(?P<where>.*?)/)?lib(?:64)?/python3(?:\.\d+)?/(?:site|dist)-packages/"
        r"(?P<name>[^/]+)-(?P<version>[0-9][^/-]*?)(?:\.dist-info(?:/METADATA)?|(?:-py3[\d.]*)?\.egg-info(?:/PKG-INFO)?)"
    ),
    "conda": re.compile(r"(?:(?P<where>.*)/)?conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json"),
}
