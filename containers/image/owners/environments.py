"""The Python environments of an image, the libraries that belong to each, and the packages that need others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import cached_property
from typing import Final

from packaging.utils import canonicalize_name

from containers import budget
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import PLATFORM_MACHINES, ElfMachine
from containers.image.owners import distributions
from containers.image.owners.ownership_records import RecordedContent

_PACKAGES: Final = re.compile(
    r"/(?P<where>.*?)(?:usr/)?(?:local/)?lib(?:64)?/python(?P<version>3[^/]*)/(?:site|dist)-packages/"
)
"""The packages of an environment; those below /usr and /usr/local are of one."""
_LIBRARY: Final = re.compile(r"\.so(?:\.[^/]*)?$")


class Environments:
    """The installed packages: among an environment's packages, or by a wheel beside them, as MKL's is into `lib`."""

    def __init__(self, contents: Contents, machine: ElfMachine) -> None:
        self._contents = contents
        self._architecture = next((name for name, each in PLATFORM_MACHINES.items() if each == machine), "")
        self._required: dict[tuple[str, str], Set[str]] = {}
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
        return own is None or other is None or other in self._all_required(self.of(path) or "", own)

    def package(self, path: str) -> str | None:
        """Return the name of the Python package of a library; None if none is known."""
        return self._packages.get(path)

    def has_lost(self, path: str) -> bool:
        """Return whether the record of a library's package lists another library that is gone or replaced."""
        return path in self._of_incomplete

    def _all_required(self, prefix: str, package: str) -> Set[str]:
        """Return a package of an environment, what it requires, and what that requires."""
        if (prefix, package) not in self._required:
            known, pending = {package}, [package]
            while pending:
                more = self._requirements.get((prefix, pending.pop()), set()) - known
                known |= more
                pending += more
            self._required[prefix, package] = known
        return self._required[prefix, package]

    @cached_property
    def _requirements(self) -> Mapping[tuple[str, str], set[str]]:
        """The names that each package of each environment requires."""
        required: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for path, one in self._contents.distributions.items():
            match = _PACKAGES.match(f"/{path}")
            version = match["version"].rstrip("t") if match else ""
            for text in one.requires:
                budget.check()
                row = distributions.requirement(text)
                if row and (not version.startswith("3.") or distributions.applies(row, version, self._architecture)):
                    required[_prefix(path) or "", one.name].add(canonicalize_name(row.name))
        return required

    @cached_property
    def _of_incomplete(self) -> Set[str]:
        return {
            path
            for owned in self._contents.owned.values()
            if owned.owner.manager == "pip" and any(self._is_lost(*each) for each in owned.files.items())
            for path in owned.files
            if path in self._contents.binaries
        }

    def _is_lost(self, path: str, content: RecordedContent | None) -> bool:
        place = self._contents.tree.find(path) if _LIBRARY.search(path) else ("", None)
        size = place[1].size if place and place[1] else None
        return place is None or (content is not None and size is not None and content.size not in {-1, size})

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
