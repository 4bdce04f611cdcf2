"""The records of package managers about installed files: pip, conda and dpkg; `rpm_records` is for rpm.

Sources: PyPA, recording installed projects (RECORD); conda, conda-meta (`paths_data`); dpkg 1.21, deb-md5sums(5) and
dpkg-query(1), which names the lists.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from packaging.utils import canonicalize_name

from containers import budget

DIVERSIONS: Final = "var/lib/dpkg/diversions"
STATUS: Final = "var/lib/dpkg/status"

_RECORD: Final = re.compile(
    r"(?P<site>.*?/?(?:site|dist)-packages)/(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info/RECORD"
)
_CONDA: Final = re.compile(r"(?:(?P<prefix>.*)/)?conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json")
_DPKG: Final = re.compile(r"var/lib/dpkg/(?:info|status\.d)/(?P<name>[^/:]+)(?::[^/]+)?\.(?P<kind>list|md5sums)")


class Owner(NamedTuple):
    """A distribution: its package manager, name and version, empty for dpkg's."""

    manager: str
    name: str
    version: str

    def __str__(self) -> str:
        """Return the name with the version."""
        return f"{self.name} {self.version}".rstrip()


class RecordedContent(NamedTuple):
    """A file's recorded content: a digest such as ``sha256:...``, and its size in bytes, -1 if unknown."""

    digest: str
    size: int = -1


@dataclass(frozen=True)
class Owned:
    """The files of a distribution by path; None for a path without a record of its content."""

    owner: Owner
    files: Mapping[str, RecordedContent | None]


@dataclass(frozen=True)
class Unread:
    """A package manager's record that is not read, and why."""

    reason: str


Parser = Callable[[str, bytes], Owned | None]


def parser(path: str) -> Parser | None:
    """Return what reads the record at a path, if it is one."""
    if path.endswith(".dist-info/RECORD"):
        return _pip
    if path.startswith("var/lib/dpkg/") and path.endswith((".list", ".md5sums")):
        return _dpkg
    if path.endswith(".json") and "conda-meta/" in path:
        return _conda
    return None


def _pip(path: str, content: bytes) -> Owned | None:
    match = _RECORD.fullmatch(path)
    if not match:
        return None
    owner = Owner("pip", canonicalize_name(match["name"]), match["version"])
    try:
        return Owned(owner, dict(_recorded(match["site"], content)))
    except (csv.Error, ValueError):
        return Owned(owner, {})


def _lines(content: bytes) -> Iterator[str]:
    for line in io.BytesIO(content):
        budget.check()
        yield line.decode(errors="replace").rstrip("\r\n")


def _recorded(site: str, content: bytes) -> Iterator[tuple[str, RecordedContent]]:
    for row in csv.reader(_lines(content)):
        name, digest, size = (*row, "", "", "")[:3]
        algorithm, _, value = digest.partition("=")
        if value:
            path = posixpath.normpath(f"/{site}/{name}").lstrip("/")
            padded = value + "=" * (-len(value) % 4)
            hexadecimal = base64.urlsafe_b64decode(padded).hex()
            yield path, RecordedContent(f"{algorithm}:{hexadecimal}", int(size) if size.isdigit() else -1)


def _conda(path: str, content: bytes) -> Owned | None:
    match = _CONDA.fullmatch(path)
    if not match:
        return None
    files = {}
    try:
        for entry in json.loads(content)["paths_data"]["paths"]:
            digest = entry.get("sha256_in_prefix") or entry.get("sha256")
            name = posixpath.normpath(f"/{match['prefix'] or ''}/{entry['_path']}").lstrip("/")
            if digest and entry.get("path_type") != "softlink":
                files[name] = RecordedContent(f"sha256:{digest}", int(entry.get("size_in_bytes") or -1))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return Owned(Owner("conda", match["name"], match["version"]), files)


def _dpkg(path: str, content: bytes) -> Owned | None:
    """Return the files of a list, or with their digests; files that went to another package stay."""
    match = _DPKG.fullmatch(path)
    if not match:
        return None
    files: dict[str, RecordedContent | None] = {}
    for line in _lines(content):
        if match["kind"] == "list":
            files[line.lstrip("/")] = None
        else:
            digest, _, name = line.partition("  ")
            files[name.lstrip("/")] = RecordedContent(f"md5:{digest}")
    return Owned(Owner("dpkg", match["name"], ""), files)
