"""The libraries of the table's families in each process of an image, as the loader has them."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.loader import Loaded, Loader, Process
from containers.image.copies.families import Family, plain, table


class Member(NamedTuple):
    """A library of a family in a process: its path, its first user, the file hidden by LD_LIBRARY_PATH, its need.

    ``name`` is the needed name, if that is not its soname: another library of the soname does not serve then.
    """

    path: str
    by: str
    hidden: str = ""
    name: str = ""


class Root(NamedTuple):
    """The start of a process, a program or a library that is opened alone, and its members of families."""

    path: str
    program: bool
    members: tuple[Member, ...]


class Processes:
    """The processes of a loader in which there are libraries of families.

    ``families`` has those libraries by path, ``preloaded`` the ones that are in each process first.
    """

    def __init__(self, contents: Contents, loader: Loader) -> None:
        self._loader = loader
        self.families: dict[str, Family] = dict(_of_families(contents))
        self.roots: list[Root] = []
        self.preloaded: set[str] = set()
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for path in self.families:
            self._by_name[contents.binaries[path].soname].append(path)

    def note(self, process: Process, root: str, *, program: bool) -> None:
        """Keep what a process has of families; a library that Python must have opened before counts if there is one."""
        loaded = [one for one in process.objects if one.place.path in self.families]
        names = {one: needed for _, needed, one in reversed(process.links)} if loaded else {}
        members = [self._member(process, one, names.get(one, "")) for one in loaded]
        missing = [(self._by_name.get(one.needed, ()), one.by.place.path) for one in process.missing]
        members += [Member(paths[0], by) for paths, by in missing if len(paths) == 1]
        if members:
            self.roots.append(Root(root, program, tuple(dict.fromkeys(members))))
            first = (*self._loader.preloaded, *self._loader.always_preloaded)
            preloaded = [process.by_name[name] for name in first if name in process.by_name]
            self.preloaded.update(library.place.path for library in preloaded)

    def found(self, name: str, program: str) -> str:
        """Return the path that a program opens by a name; empty if none is.

        An empty ``program`` is any that is linked with nothing.
        """
        process = self._loader.process(program or (self._loader.place.path if self._loader.place else ""))
        library = self._loader.opened(process, name, process.objects[0])
        return library.place.path if isinstance(library, Loaded) else ""

    def _member(self, process: Process, loaded: Loaded, name: str) -> Member:
        by = loaded.loader
        if by is None:
            return Member(loaded.place.path, loaded.place.path)
        own = self._loader.own(by, loaded.binary.soname) if process.environment else None
        hidden = own.path if own and own.binary and own.path != loaded.place.path else ""
        return Member(loaded.place.path, by.place.path, hidden, "" if name == loaded.binary.soname else name)


def _of_families(contents: Contents) -> Iterator[tuple[str, Family]]:
    for path, binary in contents.binaries.items():
        name = binary.soname or posixpath.basename(path)
        loads = name.startswith("lib") and binary.kind == "library" and not binary.problem
        if loads and (family := table().family(plain(name))):
            yield path, family
