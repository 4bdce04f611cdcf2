"""The libraries that libraries of an image open by name while they run, and whether each is found."""

from __future__ import annotations

import fnmatch
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from containers.image.binaries import plugin_table
from containers.image.binaries.contents import Contents
from containers.image.binaries.library_needs import Needs
from containers.image.binaries.loader import Loaded, Loader, Missing, Process
from containers.image.binaries.plugin_table import Opener
from containers.image.copies.families import former_names

_MOST_NAMES: Final = 16
"""Names in one environment variable (NCCL v2.30.7-1, src/plugin/net.cc)."""


@dataclass(frozen=True)
class Plugin:
    """A library that another opens by name.

    ``opener`` is the path of the other one, ``file`` of the library, empty if none is found. ``loads`` is whether the
    file loads. ``needed`` is whether the opener cannot work without. ``elsewhere`` is the path of a file of that name
    outside the searched folders. ``needs`` are the libraries that the file itself needs, each with its path, empty if
    it is missing; not of files in a folder beside the opener.
    """

    opener: str
    name: str
    file: str
    loads: bool
    needed: bool
    elsewhere: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)


class Unmet(NamedTuple):
    """A library that its opener cannot work without and does not find; paths are relative to the image's root.

    ``unused`` is whether no process loads an opener that has the library in its folder. Whoever opens one by its path,
    as in a second toolkit that nothing leads to, can lead to the other.
    """

    opener: str
    name: str
    missing: Missing | None
    reason: str
    users: Sequence[str]
    unused: bool = False


class _Name(NamedTuple):
    """A library to open: ``tried`` are its names, the first that exists counts; ``reason`` says who asks for it."""

    name: str
    tried: tuple[str, ...]
    needed: bool
    reason: str = ""


class Plugins:
    """What the openers of an image find; ``files`` are paths of the ELF files that it loads."""

    def __init__(self, contents: Contents, loader: Loader, files: Iterable[str]) -> None:
        self._contents, self._loader = contents, loader
        self._openers = {path: row for path in files if (row := _opener(contents, path))}
        self._names = {path: tuple(self._named(path, row)) for path, row in self._openers.items()}
        self._needs = Needs()
        self._libraries: dict[tuple[str, str], str] = {}
        self._needed_by: dict[tuple[str, str], Mapping[str, str]] = {}
        self._missing: dict[tuple[str, str], Missing] = {}
        self._folders: dict[str, list[str]] = defaultdict(list)
        if any(row.components or row.some or row.defaults for row in self._openers.values()):
            for path in contents.binaries:
                folder, name = posixpath.split(path)
                self._folders[folder].append(name)
        self._matches: dict[tuple[str, str], list[str]] = {}
        self._components = dict(self._opened_components())

    def open(self, process: Process, root: str, *, program: bool) -> None:
        """Open what each object of a process opens; ``root`` is the path of the file that makes it."""
        for by in process.objects:  # which grows
            path = by.place.path
            for name in self._names.get(path, ()):
                self._open(process, by, name, root, program=program)
            if path == root:
                for file in self._components.get(path, ()):
                    self._loader.opened(process, f"/{file}", by)

    def _open(self, process: Process, by: Loaded, name: _Name, root: str, *, program: bool) -> None:
        key = (by.place.path, name.name)
        for tried in name.tried:
            library = self._loader.opened(process, tried, by)
            if self._openers[by.place.path].linked:  # a repair has renamed it, which the linker does not mind
                library = next((one for one in process.objects if tried in former_names(one.binary.soname)), library)
            if isinstance(library, Loaded):
                self._needs.met.add(key)
                if key not in self._libraries:
                    self._libraries[key] = library.place.path
                    met = {needed: f"/{one.place.path}" for by_, needed, one in process.links if by_ is library}
                    self._needed_by[key] = dict.fromkeys(library.binary.needed, "") | met
                return
            self._missing[key] = library
        self._needs.missed(key, root, program=program)

    def unmet(self) -> Iterator[Unmet]:
        """Yield what is missing."""
        missed = dict(self._needs.unmet())
        for path, row in self._openers.items():
            for name in self._names[path]:
                users = missed.get((path, name.name))
                if users is not None and self._needed(path, name, missed):
                    unused = self._is_unused(path, name, users)
                    yield Unmet(path, name.name, self._missing[path, name.name], name.reason, users, unused)
            for pattern in row.one_of(self._contents.environment):
                if not any(self._files(path, [pattern])):
                    yield Unmet(path, pattern, None, "it does not start without", [])

    def listed(self, broken: set[str]) -> list[Plugin]:
        """Return the plugins of each opener; ``broken`` are the paths of files that do not load."""
        missed = dict(self._needs.unmet())
        elsewhere = self._elsewhere()
        plugins = []
        for path, names in sorted(self._names.items()):
            for name in names:
                needed = self._needed(path, name, missed)
                if file := self._libraries.get((path, name.name), ""):
                    needs = self._needed_by[path, name.name]
                    plugins.append(Plugin(f"/{path}", name.name, f"/{file}", file not in broken, needed, needs=needs))
                else:
                    place = elsewhere.get(name.name, "")
                    plugins.append(Plugin(f"/{path}", name.name, "", loads=False, needed=needed, elsewhere=place))
            for file in self._components.get(path, ()):
                component, loads = posixpath.basename(file), file not in broken
                plugins.append(Plugin(f"/{path}", component, f"/{file}", loads, needed=False))
        return plugins

    def _elsewhere(self) -> dict[str, str]:
        """Return by name the places of plugins in folders that are not searched, if a variable could name them."""
        usual = {f"{name}.so" for row in self._openers.values() for name in row.variables.values()}
        absent = usual.difference(name for _, name in self._libraries)
        places: dict[str, str] = {}
        for path, entry in self._contents.tree.paths() if absent else ():
            name = posixpath.basename(path)
            if name in absent and entry and entry.kind in {"file", "symlink"}:
                file = self._contents.tree.find(path)
                if file and file[0] in self._contents.binaries:
                    places.setdefault(name, f"/{path}")
        return places

    def _is_unused(self, path: str, name: _Name, users: Iterable[str]) -> bool:
        """Return whether no process loads an opener that has the library in its folder."""
        place = self._contents.tree.find(posixpath.join(posixpath.dirname(path), name.name))
        neighbour = self._contents.binaries.get(place[0]) if place else None
        is_for_it = neighbour is None or neighbour.machine == self._contents.binaries[path].machine
        return all(user == path for user in users) and place is not None and is_for_it

    def _needed(self, path: str, name: _Name, missed: Collection[tuple[str, str]]) -> bool:
        """Return whether an opener cannot work without a library: not in an edition that has none of its group.

        A wheel that has copied the opener alone, as CTranslate2's has cuDNN, leaves the rest to users with a GPU.
        """
        row = self._openers[path]
        groups = [row.together, *([(*row.always, *row.together)] if self._is_copied(path) else [])]
        return name.needed and not any(
            name.name in group and all((path, one) in missed for one in group) for group in groups
        )

    def _is_copied(self, path: str) -> bool:
        """Return whether the repair of a wheel put a library into it."""
        return former_names(posixpath.basename(path)) != (posixpath.basename(path),)

    def _named(self, path: str, row: Opener) -> Iterator[_Name]:
        held = self._contents.binaries[path].holds
        for name in (*row.always, *row.together, *held):
            yield _Name(name, (name,), needed=True)
        for name in row.optional:
            yield _Name(name, (name,), needed=False)
        settings = (self._contents.text(row.settings) or b"").decode(errors="replace") if row.settings else ""
        lines = (line.partition("=") for line in settings.split("\n") if "=" in line and not line.startswith("#"))
        environment = {**{variable: value for variable, _, value in lines}, **self._contents.environment}
        for variable, name in row.variables.items():
            yield from _of_variable(variable, name, environment)

    def _opened_components(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each opener of files in folders beside it, with their paths."""
        for path, row in self._openers.items():
            if row.components:
                yield path, tuple(self._files(path, row.components))

    def _files(self, opener: str, patterns: Iterable[str]) -> Iterator[str]:
        """Yield the paths of the files that patterns name, relative to an opener's folder."""
        for pattern in patterns:
            folder, name = posixpath.split(posixpath.join("/", posixpath.dirname(opener), pattern))
            if place := self._contents.tree.find(folder):
                yield from self._matching(place[0], name)

    def _matching(self, folder: str, pattern: str) -> list[str]:
        """Return the paths of the libraries in a folder whose names match."""
        key = (folder, pattern)
        if key not in self._matches:
            names = fnmatch.filter(sorted(self._folders.get(folder, ())), pattern)
            paths = [posixpath.join(folder, name) for name in names]
            binaries = self._contents.binaries
            self._matches[key] = [path for path in paths if binaries[path].loaded or binaries[path].problem]
        return self._matches[key]


def _opener(contents: Contents, path: str) -> Opener | None:
    return plugin_table.opener(contents.binaries[path].soname or posixpath.basename(path))


def _of_variable(variable: str, name: str, environment: Mapping[str, str]) -> Iterator[_Name]:
    """Yield the libraries that an environment variable names, as NCCL tries them; without it the usual one."""
    value = environment.get(variable, "")
    if not value:
        yield _Name(f"{name}.so", (f"{name}.so",), needed=False)
    for part in value.split(",")[:_MOST_NAMES]:
        if not part or part.lower() == "none" or "static_plugin".startswith(part.lower()):
            continue
        whole = "/" in part or (part.startswith("lib") and part.endswith(".so"))
        tried = (part,) if whole else (part, f"{name}-{part}.so")
        yield _Name(tried[-1], tried, needed=True, reason=f"{variable} of the image names it")
