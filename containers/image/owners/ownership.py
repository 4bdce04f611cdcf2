"""The files of an image that two distributions own with different content: the last one installed has won."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from containers.image.binaries.contents import Contents
from containers.image.binaries.loading import Fault, exceptions
from containers.image.copies.families import is_grafted
from containers.image.layers import packages
from containers.image.owners.ownership_records import DIVERSIONS, STATUS, Owned, Owner, RecordedContent

_BUILD: Final = re.compile("-(?:cpu|headless|contrib)(?=-|$)")
"""What the name of a build without GPUs or windows, or with OpenCV's further modules, has beside the plain one's."""


@dataclass(frozen=True)
class Contested:
    """A file with its owners, of which the ``winner``'s content is there, if sizes tell; ``binary`` for an ELF file.

    ``whole`` is whether the owners are builds of one package, of which one has won all files: it works.
    """

    path: str
    owners: tuple[Owner, ...]
    winner: Owner | None
    binary: bool
    whole: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether what needs the file may get another one than it is built for."""
        return self.binary and not self.whole

    def fault(self) -> Fault:
        """Return it as a fault."""
        owners = " and ".join(map(str, self.owners))
        winner = f"it has that of {self.winner}" if self.winner else ""
        names = tuple(owner.name for owner in self.owners)
        return Fault("owner", self.path, f"owned by {owners} with different content", winner, names=names)


def contested(contents: Contents) -> list[Contested]:
    """Return the files with several owners and contents, by path."""
    places: dict[str, str] = {}
    owners: defaultdict[str, dict[Owner, RecordedContent]] = defaultdict(dict)
    for owner, path, content in _recorded(contents):
        folder, name = posixpath.split(path)
        if folder not in places:
            place = contents.tree.find(folder)
            places[folder] = place[0] if place else folder
        owners[posixpath.join(places[folder], name)][owner] = content
    rows = [one for path, recorded in sorted(owners.items()) if (one := _contested(contents, path, recorded))]
    winners: defaultdict[tuple[Owner, ...], set[Owner]] = defaultdict(set)
    for one in rows:
        winners[one.owners].update((one.winner,) if one.winner else ())
    won = ((same, next(iter(winning))) for same, winning in winners.items() if len(winning) == 1)
    whole = {same for same, winner in won if _are_builds_of_one(same) and _is_alone(contents, winner, same)}
    return [replace(one, whole=one.owners in whole) for one in rows]


def _are_builds_of_one(owners: Iterable[Owner]) -> bool:
    """Return whether distributions are builds of one package for the same use, as tensorflow and tensorflow-cpu.

    A package that requires one of them, as tf-keras does, brings it beside the other; so do MediaPipe and Ultralytics
    with OpenCV. Not so builds for a GPU or for another CUDA: what works by the one does not by the other.
    """
    same = {(owner.manager, _BUILD.sub("", owner.name)) for owner in owners}
    return len(same) == 1 and all(owner.manager == "pip" for owner in owners)


def _is_alone(contents: Contents, winner: Owner, builds: Iterable[Owner]) -> bool:
    """Return whether the builds beside the one that has won are of its release line, or have left no library.

    OpenCV is one library, whose repaired wheel has others for that one alone.
    """
    others = {one for one in builds if one.version.split(".")[:2] != winner.version.split(".")[:2]}
    if not others:
        return True
    if any(one.name == winner.name for one in others):  # a record that an upgrade left
        return False
    own = {path for owned in contents.owned.values() if owned.owner == winner for path in owned.files}
    paths = {path for owned in contents.owned.values() if owned.owner in others for path in owned.files}
    left = (path for path in paths - own if path in contents.binaries and not is_grafted(path))
    return all(exceptions().may_lack_any(path) for path in left)


def _contested(contents: Contents, path: str, recorded: dict[Owner, RecordedContent]) -> Contested | None:
    digests: defaultdict[str, set[str]] = defaultdict(set)
    for content in recorded.values():
        digests[content.digest.partition(":")[0]].add(content.digest)
    if all(len(values) == 1 for values in digests.values()):
        return None
    place = contents.tree.find(path)
    if place is None or place[1] is None or place[1].kind != "file":
        return None
    fitting = {content.digest: owner for owner, content in recorded.items() if content.size == place[1].size}
    winner = next(iter(fitting.values())) if len(fitting) == 1 else None
    return Contested(f"/{path}", tuple(sorted(recorded)), winner, place[0] in contents.binaries)


def _recorded(contents: Contents) -> Iterator[tuple[Owner, str, RecordedContent]]:
    """Yield each file that a distribution owns; of dpkg those in its list, if there is one, and not diverted."""
    diverted = {line.lstrip("/") for line in (contents.text(DIVERSIONS) or b"").decode(errors="replace").splitlines()}
    lists = {path.removesuffix(".list"): owned for path, owned in contents.owned.items() if path.endswith(".list")}
    for path, owned in sorted(contents.owned.items()):
        listed: Owned | None = lists.get(path.removesuffix(".md5sums"))
        for name, content in owned.files.items():
            if content is None or (listed and owned.owner.manager == "dpkg" and not _lists(listed, name)):
                continue
            if name not in diverted:
                yield owned.owner, name, content


def _lists(listed: Owned, name: str) -> bool:
    """Return whether a list has a file; with merged /usr the digests may name it below the other folder."""
    return name in listed.files or f"usr/{name}" in listed.files or name.removeprefix("usr/") in listed.files


def owners(contents: Contents, paths: Iterable[str]) -> dict[str, Owner]:
    """Return the distribution of each file that a package manager recorded: of several, one whose size it has."""
    recorded = {path: path for path in paths}
    recorded.update((path.removeprefix("usr/"), path) for path in [*recorded])  # dpkg's names before /usr was merged
    by_path: dict[str, Owner] = {}
    fitting: dict[str, Owner] = {}
    for owned in contents.owned.values():
        for name in recorded.keys() & owned.files.keys():
            path, content = recorded[name], owned.files[name]
            by_path.setdefault(path, owned.owner)
            if content and path in contents.entries and content.size == contents.entries[path].size:
                fitting.setdefault(path, owned.owner)
    by_path |= fitting
    if any(owner.manager == "dpkg" for owner in by_path.values()):
        versions = _of_dpkg(contents)
        for path, owner in by_path.items():
            if owner.manager == "dpkg":
                by_path[path] = owner._replace(version=versions.get(owner.name, ""))
    return by_path


def _of_dpkg(contents: Contents) -> dict[str, str]:
    """Return the versions of Debian's packages by name."""
    parse = packages.database(STATUS)
    installed = parse(contents.text(STATUS) or b"") if parse else {}
    return {name.partition(":")[0]: version for name, version in installed.items()}
