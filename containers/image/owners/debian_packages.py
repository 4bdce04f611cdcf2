"""What Debian's packages of an image need, as far as it says which of their files do without a missing library.

A plugin's library is often only recommended or suggested by the package that has the plugin: collectd-core 5.12 needs 3
of the 48 libraries of its 140 plugins. `dpkg-shlibdeps` lists what the other files need (dpkg 1.21, deb-control(5)).
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from containers import budget
from containers.image.binaries.contents import Contents
from containers.image.owners.ownership_records import STATUS

_FIELD: Final = re.compile(r"^(Package|Status|Provides|Depends|Pre-Depends):(.*(?:\n[ \t].*)*)", re.MULTILINE)
_NAME: Final = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")
_OF_C: Final = re.compile(r"libc6(?:\.1)?")
_LEAST: Final = re.compile(r"\blibc6(?:\.1)? \(>=")
"""The package of the C library, and the release of it that `dpkg-shlibdeps` finds: all of Debian 12 has one."""
_PLACES: Final = ("usr/", "lib")
_LOCAL: Final = "usr/local/"
"""Where packages of a distribution have their files, and where they have none (Debian policy 4.6, 9.1)."""


class _Package(NamedTuple):
    """An installed package; ``depends`` has the alternatives of each package that it depends on.

    ``computed`` is whether a tool may have found these.
    """

    names: tuple[str, ...]
    depends: tuple[tuple[str, ...], ...]
    computed: bool


class DebianPackages:
    """The packages of dpkg in an image."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._needed_by: dict[str, frozenset[str]] = {}

    def leaves_out(self, path: str, library: str) -> bool:
        """Return whether a file's package is there with all of its dependencies, none of which has had the library."""
        needed = self._needed_by_owner(path)
        return bool(needed) and needed.isdisjoint(self._owners_of_name.get(library, ()))

    def are_whole(self, paths: Iterable[str]) -> bool:
        """Return whether files are of installed packages with all of their dependencies."""
        return all(map(self._needed_by_owner, paths))

    def _needed_by_owner(self, path: str) -> frozenset[str]:
        """Return a file's package and what it depends on, and those depend on; empty if one of them is not installed.

        Only a package whose dependencies were computed from its files counts, and no file in `/opt` or `/usr/local`.
        """
        if not path.startswith(_PLACES) or path.startswith(_LOCAL):
            return frozenset()
        owner = self._owners.get(path) or self._owners.get(path.removeprefix("usr/"), "")
        if owner not in self._needed_by:
            package = self._packages.get(owner)
            needed = self._needed(owner) if package and package.computed else frozenset[str]()
            self._needed_by[owner] = needed if self._covers_programs(owner, needed) else frozenset()
        return self._needed_by[owner]

    def _covers_programs(self, owner: str, needed: frozenset[str]) -> bool:
        """Return whether packages have what an owner's programs need: else somebody has written what it depends on."""
        binaries = (self._contents.binaries.get(path) for path in self._files.get(owner, ()))
        libraries = {name for each in binaries if each and each.kind == "program" for name in each.needed}
        return not any(needed.isdisjoint(self._owners_of_name.get(name, needed)) for name in libraries)

    def _needed(self, name: str) -> frozenset[str]:
        pending, reached = [name], {name}
        seen: set[tuple[str, ...]] = set()
        while pending:
            for names in set(self._packages[pending.pop()].depends) - seen:
                budget.check()
                installed = {one for each in names for one in self._providers.get(each, ())}
                if not installed:
                    return frozenset()
                seen.add(names)
                pending += installed - reached
                reached |= installed
        return frozenset(reached)

    @cached_property
    def _packages(self) -> Mapping[str, _Package]:
        packages = {}
        for paragraph in (self._contents.text(STATUS) or b"").decode(errors="replace").split("\n\n"):
            budget.check()
            fields = dict(_FIELD.findall(paragraph))
            if "Package" in fields and fields.get("Status", "").split()[-1:] == ["installed"]:
                name = fields["Package"].strip()
                provided = (one for names in _names(fields.get("Provides", "")) for one in names)
                text = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
                names = (name, *provided)
                computed = bool(
                    _LEAST.search(text) or any(map(_OF_C.fullmatch, names))
                )  # that of C depends on no other
                packages[name] = _Package(names, _names(text), computed)
        return packages

    @cached_property
    def _providers(self) -> Mapping[str, list[str]]:
        providers: defaultdict[str, list[str]] = defaultdict(list)
        for own, package in self._packages.items():
            for name in package.names:
                providers[name].append(own)
        return providers

    @cached_property
    def _owners(self) -> Mapping[str, str]:
        """The package of each file."""
        records = (owned for owned in self._contents.owned.values() if owned.owner.manager == "dpkg")
        return {path: owned.owner.name for owned in records for path in owned.files}

    @cached_property
    def _files(self) -> Mapping[str, list[str]]:
        """The places of each package's files."""
        files: defaultdict[str, list[str]] = defaultdict(list)
        for path, owner in self._owners.items():
            if place := self._contents.tree.find(path):
                files[owner].append(place[0])
        return files

    @cached_property
    def _owners_of_name(self) -> Mapping[str, set[str]]:
        """The packages that have files of a name, there or not."""
        owners: defaultdict[str, set[str]] = defaultdict(set)
        for path, owner in self._owners.items():
            owners[posixpath.basename(path)].add(owner)
        return owners


def _names(field: str) -> tuple[tuple[str, ...], ...]:
    """Return the alternatives of each package in a field, without versions and architectures."""
    clauses = ([_NAME.match(name) for name in clause.split("|")] for clause in field.split(",") if clause.strip())
    return tuple(tuple(match[1] for match in matches if match) for matches in clauses)
