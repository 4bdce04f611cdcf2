"""The Python environments of an image, the libraries that belong to each, and the packages that need others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import cached_property
from typing import Final

from packaging.utils import canonicalize_name

from containers.image.binaries.contents import Contents

_PACKAGES: Final = re.compile(r"/(?P<where>.*?)(?:usr/)?(?:local/)?lib(?:64)?/python3[^/]*/(?:site|dist)-packages/")
"""The packages of an environment; those below /usr and /usr/local are of one."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")


class Environments:
    """The installed packages: among an environment's packages, or by a wheel beside them, as MKL's is into `lib`."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._required: dict[str, Set[str]] = {}
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

    def needs(self, path: str, library: str) -> bool:
        """Return whether the package of a file needs that of a library, or one of the two is not known."""
        own, other = self._packages.get(path), self._packages.get(library)
        return own is None or other is None or other in self._all_required(own)

    def package(self, path: str) -> str | None:
        """Return the name of the Python package of a library; None if none is known."""
        return self._packages.get(path)

    def _all_required(self, package: str) -> Set[str]:
        """Return a package, what it requires, and what that requires."""
        if package not in self._required:
            known, pending = {package}, [package]
            while pending:
                more = self._requirements.get(pending.pop(), set()) - known
                known |= more
                pending += more
            self._required[package] = known
        return self._required[package]

    @cached_property
    def _requirements(self) -> Mapping[str, set[str]]:
        required: defaultdict[str, set[str]] = defaultdict(set)
        for one in self._contents.distributions.values():
            names = filter(None, map(_NAME.match, one.requires))
            required[one.name].update(canonicalize_name(name[0]) for name in names)
        return required

    @cached_property
    def _packages(self) -> Mapping[str, str]:
        return {
            path: owned.owner.name
            for owned in self._contents.owned.values()
            if owned.owner.manager == "pip"
            for path in owned.files
            if path in self._contents.binaries
        }


def _prefix(path: str) -> str | None:
    match = _PACKAGES.match(f"/{path}")
    return match["where"] or "/" if match else None
