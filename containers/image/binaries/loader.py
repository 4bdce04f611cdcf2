"""The search of glibc's loader for the libraries of a process, in an image that does not run.

Source: glibc 2.39, elf/dl-load.c (`_dl_map_object`, `open_path`, `open_verify`), elf/dl-deps.c (the order),
elf/dl-version.c (symbol versions) and elf/rtld.c (`do_preload`). Compared with the loader itself in
tests/images/test_inspect.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, cast

from containers.image.binaries import loader_config
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import AARCH64, ARM, I386, X86_64, Binary, ElfMachine, Version
from containers.image.binaries.loader_config import Cached

_INTERPRETERS: Final[Mapping[ElfMachine, tuple[str, int]]] = {
    X86_64: ("lib64/ld-linux-x86-64.so.2", 0x0303),
    AARCH64: ("lib/ld-linux-aarch64.so.1", 0x0A03),
    I386: ("lib/ld-linux.so.2", 0x0003),
    ARM: ("lib/ld-linux-armhf.so.3", 0x0903),
}
"""glibc's loader for a machine, and the kind of its libraries in the cache (dl-cache.h)."""

CAPABILITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "x86-64": (),
    "x86-64-v2": ("x86-64-v2",),
    "x86-64-v3": ("x86-64-v3", "x86-64-v2"),
    "x86-64-v4": ("x86-64-v4", "x86-64-v3", "x86-64-v2"),
}
"""Folders below ``glibc-hwcaps`` that the loader searches, by the level of the processor (x86-64 psABI)."""
DEFAULT_LEVEL: Final = "x86-64-v3"
"""The level of the processors beside GPUs since A100: AMD's Rome has no AVX-512."""

_RELEASE: Final = re.compile(r"GLIBC_(\d+)\.(\d+)")
_TOKEN: Final = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
_PLATFORMS: Final = {X86_64: "haswell", AARCH64: "aarch64", I386: "i686", ARM: "v7l"}
"""What ``$PLATFORM`` stands for (sysdeps/x86/cpu-features.c: from AVX2 on)."""


class Place(NamedTuple):
    """A file that the loader opens: by ``name``, which is ``path`` after following links; ``problem`` if it fails."""

    name: str
    path: str
    binary: Binary | None
    problem: str = ""


@dataclass(eq=False)
class Loaded:
    """An object of a process: how it was opened, and the object that needed it first, None for the program."""

    place: Place
    loader: Loaded | None
    names: set[str] = field(default_factory=set)

    @property
    def binary(self) -> Binary:
        """The file's facts; only such files are loaded."""
        return cast("Binary", self.place.binary)


class Missing(NamedTuple):
    """A library that an object needs and the loader does not find; ``problem`` says why if a file was there."""

    needed: str
    by: Loaded
    problem: str


class MissingVersion(NamedTuple):
    """A symbol version that an object needs and the library does not have; None for a library that is not loaded."""

    version: Version
    by: Loaded
    library: Loaded | None


@dataclass
class Process:
    """The objects of a process in the loader's order, the program first, and what the loader misses.

    ``links`` has each need that was met: by whom, the name, and the library. ``ignored`` are missing libraries to be
    preloaded; the process starts without them. ``environment`` are the folders of `LD_LIBRARY_PATH`. ``versioned`` is
    whether the loader looks at versions of symbols.
    """

    objects: list[Loaded]
    environment: tuple[str, ...] = ()
    missing: list[Missing] = field(default_factory=list)
    versioned: bool = True
    links: list[tuple[Loaded, str, Loaded]] = field(default_factory=list)
    ignored: list[Missing] = field(default_factory=list)
    by_name: dict[str, Loaded] = field(default_factory=dict, repr=False)
    by_file: dict[int, Loaded] = field(default_factory=dict, repr=False)

    def versions(self) -> Iterator[MissingVersion]:
        """Yield the symbol versions that libraries of the process lack."""
        libraries = {(id(by), name): library for by, name, library in self.links}
        by_name = {name: library for _, name, library in reversed(self.links)}
        for by in self.objects if self.versioned else ():
            for version in by.binary.versions:
                library = libraries.get((id(by), version.library)) or by_name.get(version.library)
                if library is None and version.library not in {*self.by_name, *(each.needed for each in self.missing)}:
                    yield MissingVersion(version, by, None)
                if library is None or version.weak or library.binary.provided is None:
                    continue  # a library without any version satisfies all, with a warning
                if version.name not in library.binary.provided:
                    yield MissingVersion(version, by, library)


class Loader:
    """glibc's loader for one machine in an image. ``level`` is that of the processor, a key of ``CAPABILITIES``."""

    def __init__(self, contents: Contents, machine: ElfMachine, level: str = DEFAULT_LEVEL) -> None:
        self._contents = contents
        self.machine = machine
        self._located: dict[tuple[tuple[str, ...], str], Place | None] = {}
        self._places: dict[str, str | None] = {}
        self._level = level
        self._capabilities: tuple[str, ...] = ()
        self._system: tuple[str, ...] = ()
        self._environment: tuple[str, ...] = ()
        self.place: Place | None = None
        self.preloaded: tuple[str, ...] = ()
        self.always_preloaded: tuple[str, ...] = ()
        self._configure()

    def _configure(self) -> None:
        """Read what the image says of the loader."""
        contents = self._contents
        self._capabilities = CAPABILITIES[self._level] if self.machine == X86_64 else ()
        name, self._kind = _INTERPRETERS.get(self.machine, ("", 0))
        self.place = self._open(f"/{name}") if name else None
        known = self.place and self.place.binary
        self._system = tuple(folder.rstrip("/") for folder in known.system_folders) if known else ()
        self._lib = self._system[0].lstrip("/") if self._system else "lib64"
        environment = contents.environment.get("LD_LIBRARY_PATH", "")
        self._environment = tuple(self._folders(re.split("[:;]", environment), None)) if environment else ()
        self.preloaded = loader_config.preloaded(contents.environment.get("LD_PRELOAD", ""))
        self.always_preloaded = loader_config.preloaded_always(contents.text(loader_config.PRELOAD) or b"")
        self.configured = tuple(loader_config.configured(contents.text, contents.texts))
        self._cache: dict[str, list[Cached]] = loader_config.cached(contents.text(loader_config.CACHE) or b"")

    @property
    def present(self) -> bool:
        """Whether the image has the loader."""
        return bool(self.place and self.place.binary and self.place.binary.system_folders)

    @cached_property
    def release(self) -> tuple[int, int] | None:
        """The release of glibc, by the newest version of a symbol of its library; None if the image has none."""
        library = self._in(self._system, "libc.so.6")
        names = library.binary.provided if library and library.binary else None
        releases = (match for name in names or () if (match := _RELEASE.fullmatch(name)))
        return max(((int(match[1]), int(match[2])) for match in releases), default=None)

    def process(self, path: str, *, privileged: bool = False) -> Process:
        """Return the process that a file makes: a program, or a library that is opened alone.

        Where it is ``privileged``, its user id or group id bit is set, and the environment does not count.
        """
        program = Loaded(Place(f"/{path}", path, self._contents.binaries[path]), None)
        process = Process([program], () if privileged else self._environment)
        self._add(process, program)
        if self.place and self.place.binary:  # the loader is part of each process, and can be needed
            self._add(process, Loaded(self.place, None))
        for name in self.always_preloaded if privileged else (*self.preloaded, *self.always_preloaded):
            library = self._find(process, name, self._preloads_for(program))
            if isinstance(library, Missing):
                process.ignored.append(library)
        self._load(process, 0)
        return process

    def _preloads_for(self, program: Loaded) -> Loaded:
        """Return the object whose path counts for libraries to be preloaded."""
        return program

    def opened(self, process: Process, name: str, by: Loaded) -> Loaded | Missing:
        """Open a library in a process as `dlopen` does when an object calls it, with what the library needs."""
        first = len(process.objects)
        library = self._find(process, name, by)
        self._load(process, first)
        return library

    def _load(self, process: Process, first: int) -> None:
        """Load what the objects of a process from number ``first`` on need, breadth first."""
        for by in islice(process.objects, first, None):  # which grows
            for needed in filter(None, by.binary.needed):  # an empty name is the program's own
                library = self._find(process, needed, by)
                if isinstance(library, Missing):
                    process.missing.append(library)
                else:
                    process.links.append((by, needed, library))

    def _find(self, process: Process, needed: str, by: Loaded) -> Loaded | Missing:
        """Return the library of a name in a process, which it becomes part of."""
        library = process.by_name.get(needed)
        if library is None:
            place = self._search(needed, by, process.environment)
            if place is None or place.binary is None:
                return Missing(needed, by, place.problem if place else "")
            library = process.by_file.get(id(self._contents.entries[place.path]))
            if library is None:
                library = Loaded(place, by)
                self._add(process, library)
                process.objects.append(library)
            process.by_name[needed] = library
        elif library.place == self.place and library not in process.objects:
            process.objects.append(library)
        return library

    def own(self, by: Loaded, name: str) -> Place | None:
        """Return the file of a name in an object's own RUNPATH, which LD_LIBRARY_PATH may hide."""
        return self._in(self._path(by, by.binary.runpath), name) if by.binary.runpath and "/" not in name else None

    def by_path(self, name: str, by: Loaded, environment: tuple[str, ...]) -> Place | None:
        """Return the file of a name in the folders of an object and of the environment, which come before the cache."""
        return next(filter(None, (self._in(folders, name) for folders in self._searched(by, environment))), None)

    def is_system_file(self, place: Place) -> bool:
        """Return whether a place is a file in a folder of the loader's own, and not a link to one elsewhere."""
        return self._system_path(place) == place.path

    def is_system_link(self, place: Place) -> bool:
        """Return whether a place is a link in a folder of the loader's own, which `ldconfig` may lead elsewhere."""
        return self._system_path(place) not in {"", place.path}

    def _system_path(self, place: Place) -> str:
        """Return the path of a place in a folder of the loader's own, before its last link; empty in others."""
        folder, name = posixpath.split(place.name)
        real = self._real(folder or "/")
        return f"{real}/{name}" if any(real == self._real(own) for own in self._system) else ""

    def elsewhere(self, name: str) -> str | None:
        """Return the place of a library that ``ld.so.conf`` leads to and the cache lacks."""
        place = self._in((*self.configured, *self._system), name)
        return place.path if place and place.binary else None

    def _add(self, process: Process, loaded: Loaded) -> None:
        process.by_name.setdefault(loaded.place.name, loaded)
        if soname := loaded.binary.soname:
            process.by_name.setdefault(soname, loaded)
        process.by_file[id(self._contents.entries[loaded.place.path])] = loaded

    def _search(self, name: str, by: Loaded, environment: tuple[str, ...]) -> Place | None:
        """Return the file that a needed name stands for, in the loader's order of folders."""
        if "/" in name:
            place = self._open(self._absolute(self._expanded(name, by)))
            return place or None
        if place := self.by_path(name, by, environment):
            return place
        if (place := self._cached(name, by)) or by.binary.only_own_folders:
            return place
        return self._in(self._system, name)

    def _searched(self, by: Loaded, environment: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield lists of folders: RPATH of the object and of those that led to it, environment, RUNPATH."""
        if by.binary.runpath is None:
            above: Loaded | None = by
            while above:
                yield self._path(above, above.binary.rpath if above.binary.runpath is None else None)
                above = above.loader
        yield environment
        yield self._path(by, by.binary.runpath)

    def _path(self, loaded: Loaded, value: str | None) -> tuple[str, ...]:
        return tuple(self._folders(value.split(":"), loaded)) if value else ()

    def _folders(self, values: Iterable[str], loaded: Loaded | None) -> Iterator[str]:
        for value in values:
            expanded = self._expanded(value, loaded)
            yield self._absolute(expanded).rstrip("/") if expanded else self._contents.folder

    def _expanded(self, value: str, loaded: Loaded | None) -> str:
        if "$" not in value:
            return value
        origin = posixpath.dirname(loaded.place.name) if loaded else ""
        meanings = {"ORIGIN": origin, "LIB": self._lib, "PLATFORM": _PLATFORMS.get(self.machine, "")}
        return _TOKEN.sub(lambda token: meanings[token[1] or token[2]], value)

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._contents.folder.rstrip('/')}/{path}"

    def _in(self, folders: Sequence[str], name: str) -> Place | None:
        key = (tuple(folders), name)
        if key not in self._located:
            self._located[key] = self._look(folders, name)
        return self._located[key]

    def _look(self, folders: Iterable[str], name: str) -> Place | None:
        for folder in folders:
            if self._real(folder) is None:
                continue
            for capability in self._capabilities:
                below = f"{folder}/glibc-hwcaps/{capability}"
                if self._real(below) is not None and (place := self._open(f"{below}/{name}")):
                    return place
            if place := self._open(f"{folder}/{name}"):
                return place
        return None

    def _real(self, folder: str) -> str | None:
        """Return a folder's path after following links; None if it does not exist."""
        if folder not in self._places:
            place = self._contents.tree.find(folder)
            is_folder = place and (place[1] is None or place[1].kind == "directory")
            self._places[folder] = place[0] if place and is_folder else None
        return self._places[folder]

    def _open(self, name: str) -> Place | None:
        """Return the file of a name; None if it does not exist or is for another machine, as the loader has it."""
        folder = self._real(posixpath.dirname(name) or "/")
        if folder is None:
            return None
        place = self._contents.tree.find(f"{folder}/{posixpath.basename(name)}")
        if place is None:
            return None
        path, entry = place
        binary = self._contents.binaries.get(path)
        if binary is None:
            what = "a folder" if entry is None or entry.kind == "directory" else "no ELF file"
            return Place(name, path, None, f"{name} is {what}")
        if problem := self._problem(binary):
            return Place(name, path, None, f"{name} cannot be loaded: {problem}")
        if binary.machine != self.machine:
            return None
        return Place(name, path, binary) if binary.loaded else Place(name, path, None, f"{name} is no library")

    def _problem(self, binary: Binary) -> str:
        """Return why this loader takes no such file; empty if it does."""
        return binary.problem or binary.of_glibc

    def _cached(self, name: str, by: Loaded) -> Place | None:
        """Return the file that the cache has for a name: of the best folder below ``glibc-hwcaps``, or the first."""
        libraries = [library for library in self._cache.get(name, []) if library.flags in {1, self._kind}]
        ranks = {capability: rank for rank, capability in enumerate((*self._capabilities, ""))}
        usable = [library for library in libraries if library.capabilities in ranks]
        if not usable:
            return None
        path = min(usable, key=lambda library: ranks[library.capabilities]).path
        if by.binary.only_own_folders and path.startswith(tuple(f"{folder}/" for folder in self._system)):
            return None
        return self._open(path)
