"""Versions of a package in an archive that apt reads."""

from __future__ import annotations

import gzip
import urllib.request
import zlib
from http.client import HTTPException

from stacks.errors import SlipwayError

_MOST = 64 << 20
"""Bytes of an index, unpacked: NVIDIA's has 3 MiB."""


def versions(archive: str, package: str) -> set[str]:
    """Return the versions of a package in a flat archive, from its ``Packages.gz``.

    Raises:
        SlipwayError: the archive does not answer, or what it sends is no such index.
    """
    address = f"{archive.rstrip('/')}/Packages.gz"
    try:
        with urllib.request.urlopen(address, timeout=60) as reply, gzip.open(reply) as index:  # noqa: S310
            text = index.read(_MOST + 1)
    except (OSError, EOFError, HTTPException, ValueError, zlib.error) as error:
        raise SlipwayError(f"{address} cannot be read: {error}") from None
    if len(text) > _MOST:
        raise SlipwayError(f"{address} has more than {_MOST >> 20} MiB: it is no index of packages")
    paragraphs = (dict(_fields(paragraph)) for paragraph in text.decode(errors="replace").split("\n\n"))
    return {fields["Version"] for fields in paragraphs if fields.get("Package") == package and "Version" in fields}


def _fields(paragraph: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in paragraph.splitlines() if not line.startswith(" "))
    return [(name, value.strip()) for name, _, value in pairs]
