"""Versions of a package in an archive that apt reads."""

from __future__ import annotations

import gzip
import re
import zlib

from urllib3.exceptions import HTTPError

from containers.addresses.guarded_session import GuardedSession
from containers.errors import SlipwayError

_MOST = 64 << 20
"""Bytes of an index, unpacked: NVIDIA's has 3 MiB."""
_FIELD = re.compile(r"^([^ :\n][^:\n]*):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


def versions(archive: str, package: str) -> set[str]:
    """Return the versions of a package in a flat archive, from its ``Packages.gz``.

    Raises SlipwayError: the archive does not answer, or what it sends is no such index.
    """
    address = f"{archive.rstrip('/')}/Packages.gz"
    try:
        with GuardedSession(address) as session, session.get(address, stream=True, timeout=60) as response:
            response.raise_for_status()
            with gzip.open(response.raw) as index:
                text = index.read(_MOST + 1)
    except (OSError, EOFError, HTTPError, ValueError, zlib.error) as error:
        raise SlipwayError(f"{address} cannot be read: {error}") from None
    if len(text) > _MOST:
        raise SlipwayError(f"{address} has more than {_MOST >> 20} MiB: it is no index of packages")
    paragraphs = (dict(_FIELD.findall(paragraph)) for paragraph in text.decode(errors="replace").split("\n\n"))
    return {fields["Version"] for fields in paragraphs if fields.get("Package") == package and "Version" in fields}
