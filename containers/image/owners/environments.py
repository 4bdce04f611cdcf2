"""The Python environments of an image, and the libraries that belong to each."""

from __future__ import annotations

import re
from typing import Final

from containers.image.binaries.contents import Contents

_PACKAGES: Final = re.compile(r"/(?P<where>.*?)(?:usr/)?(?:local/)?lib(?:64)?/python3[^/]*/(?:site|dist)-packages/")
"""The packages of an environment; those below /usr and /usr/local are of one."""


class Environments:
    """The installed packages: among an environment's packages, or by a wheel beside them, as MKL's is into `lib`."""

    def __init__(self, contents: Contents) -> None:
        self._prefixes = {
            path: prefix
            for record, owned in contents.owned.items()
            if owned.owner.manager == "pip" and (prefix := _prefix(record))
            for path in owned.files
            if path in contents.binaries and contents.binaries[path].kind == "library"
        }

    def of(self, path: str) -> str | None:
        """Return the prefix of the environment that a file is in; None if it is in none."""
        return _prefix(path) or self._prefixes.get(path)


def _prefix(path: str) -> str | None:
    match = _PACKAGES.match(f"/{path}")
    return match["where"] or "/" if match else None
