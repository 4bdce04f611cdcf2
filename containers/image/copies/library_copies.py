"""Copies of one library in one process: two files of one family, who brings each, and how the loader mixes them."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from typing import Any, Final

from containers import budget
from containers.errors import abridged
from containers.image.binaries.contents import Contents
from containers.image.binaries.loading import Fault
from containers.image.copies.families import Case, Family, plain, table
from containers.image.copies.processes import Member, Processes
from containers.image.copies.subjects import Subject, subjects
from containers.image.owners.ownership import owners
from containers.image.owners.ownership_records import Owner
from containers.image.owners.package_folders import PackageFolders

_VERSION: Final = re.compile(r"\d+(?:\.\d+)+$")
_NUMBERS: Final = re.compile(r"\d+")
_MOST: Final = 32
"""Different files of one part that are looked at: each is compared with the others."""


@dataclass(frozen=True)
class Copy:
    """One file of a family.

    Args:
        path: of the file, with a slash.
        version: of the library, as its symbol versions or its name have it; empty if neither does.
        owner: the distribution that has the file, empty if none is known.
        by: who brings it into the process: distributions, or else files.
        everywhere: the opener that puts its names before those of everything loaded later; empty if nothing does.
    """

    path: str
    version: str
    owner: str
    by: tuple[str, ...]
    everywhere: str = ""

    def __str__(self) -> str:
        """Return it as text."""
        facts = ", ".join(filter(None, (self.version, self.owner)))
        by = f"by {abridged(self.by, 3)}" if self.by else ""
        return f"{self.path} ({'; '.join(filter(None, (facts or 'of no package', by)))})"


@dataclass(frozen=True)
class Copies:
    """Copies of one family in a process.

    ``how`` is ``both`` if the loader loads them all, ``mixed`` if names meant for one then mean another, ``first`` if
    the first one serves all, ``hidden`` if LD_LIBRARY_PATH leads to the first in place of the second, ``parts`` if one
    process has parts of each, or ``name`` if the loader finds the second by the name alone. ``mixing`` is the
    consequence, and ``case`` the known failure.
    """

    family: str
    process: str
    how: str
    copies: tuple[Copy, ...]
    mixing: str
    case: Case | None = None

    def __str__(self) -> str:
        """Return it as text."""
        return f"{self.family} in {self.process}: {' and '.join(map(str, self.copies))}: {self.mixing}"

    def fault(self) -> Fault | None:
        """Return it as a fault, if it is known to break."""
        if self.case is None:
            return None
        one, *others = self.copies
        missing = f"is beside {' and '.join(map(str, others))}, a second {self.family} in {self.process}"
        reason = f"{self.mixing}; {self.case.fails}; {self.case.mend} ({self.case.source})"
        return Fault("copies", one.path, missing, reason, names=(self.family,))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "family": self.family,
            "process": self.process,
            "how": self.how,
            "mixing": self.mixing,
            "copies": [vars(copy) for copy in self.copies],
            "fails": self.case.fails if self.case else None,
            "source": self.case.source if self.case else None,
        }


def copies(contents: Contents, every: Iterable[Processes]) -> list[Copies]:
    """Return the copies of each process of an image, those that are known to break first."""
    listed: dict[tuple[str, ...], Copies] = {}
    folders = PackageFolders(contents)
    for processes in every:
        search = partial(_Search, contents, processes)
        found = [one for subject in subjects(contents, processes, folders) for one in search(subject).copies()]
        for one in (*found, *search(Subject("each program that opens it by its name")).hiding()):
            listed.setdefault((one.family, one.how, *sorted(copy.path for copy in one.copies)), one)
    return sorted(listed.values(), key=lambda one: (one.case is None, one.family, one.process, one.how))


class _Search:
    """The copies in one subject."""

    def __init__(self, contents: Contents, processes: Processes, subject: Subject) -> None:
        self._contents, self._processes, self._subject = contents, processes, subject
        self._members: defaultdict[str, list[tuple[str, Member]]] = defaultdict(list)
        for root in subject.roots:
            for member in root.members:
                self._members[member.path].append((root.path, member))

    def copies(self) -> Iterator[Copies]:
        """Yield them by family."""
        by_family: defaultdict[Family, list[str]] = defaultdict(list)
        for path in sorted(self._members):
            by_family[self._processes.families[path]].append(path)
        for family, paths in by_family.items():
            if files := self._distinct(family, paths):
                yield self._copies(family, *self._loaded(files))
            if family.by_name:
                yield from self._hidden(family, paths)
                yield from self._parts(family, {*paths})
                yield from self._named(family, paths)

    def hiding(self) -> Iterator[Copies]:
        """Yield the files that a name leads to in place of the file of the distribution's packages."""
        named: defaultdict[tuple[Family, str], list[str]] = defaultdict(list)
        for path, family in self._processes.families.items():
            if family.of_system:
                named[family, self._soname(path)].append(path)
        for (family, name), paths in named.items():
            if len(paths) < 2:
                continue
            found = self._processes.found(name, "")
            packaged = {
                path for path, owner in owners(self._contents, paths).items() if owner.manager in {"dpkg", "rpm"}
            }
            if found and found not in packaged:
                hidden = [path for path in sorted(packaged) if not self._are_equal(path, found)][:_MOST]
                mixing = f"{name} is the first, whose providers are not the distribution's"
                yield from [self._copies(family, "hidden", [found, *hidden], mixing)] if hidden else []

    def _distinct(self, family: Family, paths: Iterable[str]) -> list[str]:
        """Return the different files of which a process should have one: of the first part that has several."""
        by_part: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for path in paths:
            budget.check()
            same = by_part[family.part(self._plain(path))]
            if len(same) < _MOST and not any(self._are_one(path, other) for other in same):
                same.append(path)
        return next((same for _, same in sorted(by_part.items()) if len(same) > 1), [])

    def _are_apart(self, files: Sequence[str]) -> bool:
        """Return whether the loader loads them all: they differ in name, or one is opened by its path."""
        opened = self._subject.environment and any(map(self._is_opened, files))
        return len(set(map(self._soname, files))) > 1 or opened

    def _loaded(self, files: Sequence[str]) -> tuple[str, Sequence[str], str]:
        """Return what the loader makes of different files in one process: how it has them, they, and what follows."""
        by_name: defaultdict[str, list[str]] = defaultdict(list)
        for path in files:
            by_name[self._soname(path)].append(path)
        clauses = [
            f"those named {name} serve all as the first one that is loaded{self._but(same)}"
            for name, same in by_name.items()
            if len(same) > 1 and not self._are_apart(same)
        ]
        if not self._are_apart(files):
            return "first", files, "; ".join(clauses)
        whom, path = self._mixed(files)
        calls = f"{whom} calls /{path} by the names that both have"
        apart = f"all are loaded, and {calls}" if path else "all are loaded, each called by those that need it"
        return "mixed" if path else "both", files, "; ".join([*clauses, apart])

    def _but(self, files: Iterable[str]) -> str:
        """Return which needs a file of the same name as others does not serve, since they have another name for it."""
        names = sorted({member.name for path in files for _, member in self._members[path] if member.name})
        return f", but for what needs {' or '.join(names)}" if names else ""

    def _mixed(self, files: Sequence[str]) -> tuple[str, str]:
        """Return the caller of a loaded file that means another one, and the file; empty if there is none."""
        for one, other in permutations(files, 2):
            opener = self._subject.everywhere.get(one)
            if opener and self._are_mixable(one, other):
                return f"what is loaded after {opener}" if self._subject.environment else "the whole process", one
        for root in sorted(self._subject.roots, key=lambda root: root.path in self._members):  # what is opened first
            together = [*dict.fromkeys(member.path for member in root.members if member.path in files)]
            if len(together) > 1 and self._are_mixable(*together[:2]):
                return f"the process of /{root.path}", together[0]
        return "", ""

    def _are_mixable(self, one: str, other: str) -> bool:
        """Return whether a name that was meant for one file can mean another: both define it, in a common version."""
        first, second = self._contents.binaries[one], self._contents.binaries[other]
        versions = first.provided is None or second.provided is None or first.provided & second.provided
        return bool(versions) and not set(first.defined).isdisjoint(second.defined)

    def _are_one(self, one: str, other: str) -> bool:
        """Return whether files are equal and one serves all.

        It does not if each is needed by a name of its own, or opened by path. A wheel has no links: what a package
        opens by one of a file's names serves those that need the soname, of an equal file beside it.
        """
        if not self._are_equal(one, other):
            return False
        needed = self._needed(one), self._needed(other)
        is_beside = posixpath.dirname(one) == posixpath.dirname(other)
        return not needed[0].isdisjoint(needed[1]) or (is_beside and {self._soname(one)} in needed)

    def _needed(self, path: str) -> Set[str]:
        """Return the names by which a file is needed, or its path if it is opened by that."""
        if self._is_opened(path):
            return {path}
        return {member.name or self._soname(path) for root, member in self._members[path] if root != path}

    def _is_opened(self, path: str) -> bool:
        """Return whether a file is opened by its path, which another one's name does not serve."""
        return self._subject.everywhere.get(path) == f"/{path}" or all(root == path for root, _ in self._members[path])

    def _are_equal(self, one: str, other: str) -> bool:
        """Return whether files are one library: a repair names a copy by a hash of it, and then changes its RPATH."""
        name = self._soname(one)
        is_named_alike = name == self._soname(other) and name != plain(name)
        return is_named_alike or self._contents.binaries[one] == self._contents.binaries[other]

    def _hidden(self, family: Family, paths: Iterable[str]) -> Iterator[Copies]:
        """Yield the files that LD_LIBRARY_PATH puts in place of those beside the library in need."""
        members = [member for path in paths for _, member in self._members[path] if member.hidden]
        for member in members:
            if not self._are_equal(member.path, member.hidden):
                mixing = f"LD_LIBRARY_PATH leads /{member.by} to the first, and hides its own"
                yield self._copies(family, "hidden", [member.path, member.hidden], mixing)
                return

    def _parts(self, family: Family, paths: Set[str]) -> Iterator[Copies]:
        """Yield parts of two copies in the process of one file."""
        for root in self._subject.roots:
            by_origin: dict[str, str] = {}
            for member in root.members:
                if member.path in paths:
                    by_origin.setdefault(self._origin(member.path), member.path)
            first, second, *_ = [*by_origin.values(), "", ""]
            if second and self._plain(first) != self._plain(second):
                yield self._copies(family, "parts", [first, second], f"the process of /{root.path} has parts of each")
                return

    def _origin(self, path: str) -> str:
        """Return whose a file is: of a wheel, of the system's packages, or of a folder."""
        owner = self._owner(path)
        if owner is None:
            return posixpath.dirname(path)
        return f"{owner.manager}: {owner.name}" if owner.manager == "pip" else owner.manager

    def _named(self, family: Family, paths: Iterable[str]) -> Iterator[Copies]:
        """Yield the file that a variable names, or the loader finds by a name alone, if packages bring another one."""
        for variable in family.variables if self._subject.environment else ():
            library = self._processes.found(self._contents.environment.get(variable, ""), self._subject.python)
            others = [path for path in paths if library and not self._are_equal(path, library)]
            if others and self._processes.families.get(library) == family:
                mixing = f"the second is loaded too, as {variable} names it"
                yield self._copies(family, "name", [others[0], library], mixing)
        names = Counter(map(self._soname, paths))
        for path in paths if self._subject.environment else ():
            name = self._soname(path)
            if family.rank(self._plain(path)) or names[name] > 1:
                continue
            library = self._processes.found(name, self._subject.python)
            if library and not self._are_equal(library, path):
                mixing = f"what opens {name} by its name before the first is loaded gets the second"
                yield self._copies(family, "name", [path, library], mixing)

    def _copies(self, family: Family, how: str, files: Sequence[str], mixing: str) -> Copies:
        case, first = self._case(family, how, files)
        ordered = [files[first], *files[:first], *files[first + 1 :]]
        return Copies(family.name, self._process, how, tuple(map(self._copy, ordered)), mixing, case)

    @property
    def _process(self) -> str:
        more = len(self._subject.roots) - 1
        if self._subject.environment:
            return f"the Python of {self._subject.name}"
        return f"{self._subject.name} and {more} more programs" if more > 0 else self._subject.name

    def _case(self, family: Family, how: str, files: Sequence[str]) -> tuple[Case | None, int]:
        """Return the known case of copies, and the number of the copy that it begins with."""
        cases = [case for case in table().cases if case.family == family.name and how in case.how]
        for case in cases if len(files) > 1 else ():
            for first, second in permutations(range(len(files)), 2):
                if case.unless not in self._contents.environment and self._is_case(case, files[first], files[second]):
                    return case, first
        return None, 0

    def _is_case(self, case: Case, one: str, other: str) -> bool:
        has = case.has(self._plain(one)) and case.has(self._plain(other))
        return has and case.is_of(self._owner(one), self._owner(other))

    def _copy(self, path: str) -> Copy:
        equal = [other for other in self._members if self._soname(other) == self._soname(path)]
        roots = [root for other in equal if self._are_one(other, path) for root, _ in self._members[other]]
        families = self._processes.families  # what a library opens of its own family, somebody else brought
        brought = [root for root in roots if families.get(root) != families.get(path)] or roots
        by = tuple(dict.fromkeys(map(self._bringer, brought)))
        owner = str(self._owner(path) or "")
        return Copy(f"/{path}", self._version(path), owner, by, self._subject.everywhere.get(path, ""))

    def _bringer(self, root: str) -> str:
        owner = self._owner(root)
        return owner.name if owner and owner.manager == "pip" else f"/{root}"

    def _version(self, path: str) -> str:
        """Return a library's release by its symbol versions or its name; empty if neither has it."""
        family = self._processes.families.get(path)
        provided = self._contents.binaries[path].provided or ()
        releases = [name for name in provided if family and family.version and _is_release(name, family.version)]
        if releases:
            return max(releases, key=lambda name: [*map(int, _NUMBERS.findall(name))])
        match = _VERSION.search(posixpath.basename(path))
        return match[0] if match and match[0].strip("0.") else ""

    def _soname(self, path: str) -> str:
        return self._contents.binaries[path].soname or posixpath.basename(path)

    def _plain(self, path: str) -> str:
        return plain(self._soname(path))

    def _owner(self, path: str) -> Owner | None:
        return self._owners[path] if path in self._owners else owners(self._contents, [path]).get(path)

    @cached_property
    def _owners(self) -> Mapping[str, Owner | None]:
        paths = {*self._members, *(root.path for root in self._subject.roots)}
        return {**dict.fromkeys(paths), **owners(self._contents, paths)}


def _is_release(version: str, start: str) -> bool:
    return version.startswith(start) and version[len(start) :].replace(".", "").isdigit()
