"""The search of musl's loader for the libraries of a process, in an image that does not run.

Source: bminor/musl 039d3c3, ldso/dynlink.c (`load_library`, `path_open`, `fixup_rpath`, `load_preload`). Compared with
the loader itself, of Debian's musl 1.2.3, on 800 random programs and the 174 files of four musllinux wheels,
and on three for ARMv7 by QEMU.
Differences are left where a file cannot run or is no program: the loader takes a library for another machine, a cycle
of links ends its search, and it opens a library a second time that it was started with.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final

from containers.image.binaries.elf_file import AARCH64, ARM, I386, X86_64, Binary, ElfMachine
from containers.image.binaries.loader import Loaded, Loader, Missing, Place, Process

_ARCHITECTURES: Final[Mapping[ElfMachine, str]] = {X86_64: "x86_64", AARCH64: "aarch64", I386: "i386", ARM: "armhf"}
"""Names of machines in files of musl: of ARM with hard floats, as ARMv7 has (arch/arm/reloc.h, `LDSO_ARCH`)."""
_DEFAULT: Final = "/lib:/usr/local/lib:/usr/lib"
_OWN: Final = re.compile(r"lib(?:c|pthread|rt|m|dl|util|xnet)\.")
"""How names of libraries begin that the loader itself is."""
_ORIGIN: Final = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})")


class MuslLoader(Loader):
    """musl's loader for one machine in an image.

    A library counts by the name that it was found by, not by its soname. There are no versions of symbols, no cache and
    no folders by processor. `LD_LIBRARY_PATH` comes before all RPATH, which is RUNPATH, and each is inherited.
    """

    def _configure(self) -> None:
        architecture = _ARCHITECTURES.get(self.machine, "")
        self.place = self._open(f"/lib/ld-musl-{architecture}.so.1") if architecture else None
        system = self._contents.text(f"etc/ld-musl-{architecture}.path")
        self._system = self._divided(_DEFAULT if system is None else system.decode(errors="replace"))
        self._environment = self._divided(self._contents.environment.get("LD_LIBRARY_PATH", ""))
        preloaded = re.split(r"[\s:]", self._contents.environment.get("LD_PRELOAD", ""))
        self.preloaded = tuple(dict.fromkeys(filter(None, preloaded)))

    def _problem(self, binary: Binary) -> str:
        return binary.problem

    @property
    def present(self) -> bool:
        """Whether the image has the loader."""
        return bool(self.place and self.place.binary)

    def process(self, path: str, *, privileged: bool = False) -> Process:
        """Return the process that a file makes."""
        process = super().process(path, privileged=privileged)
        process.versioned = False
        return process

    def _preloads_for(self, program: Loaded) -> Loaded:
        """Return the loader itself: no program's path counts."""
        return Loaded(self.place, None) if self.place else program

    @property
    def release(self) -> None:
        """None: it is not glibc."""

    def elsewhere(self, name: str) -> str | None:
        """Return None: there is no cache that could lack a library."""

    def _divided(self, value: str) -> tuple[str, ...]:
        return tuple(self._absolute(folder).rstrip("/") for folder in re.split("[:\n]", value) if folder)

    def _find(self, process: Process, needed: str, by: Loaded) -> Loaded | Missing:
        if self.place and (_OWN.match(needed) or needed == self.place.name):
            needed = self.place.name
        return super()._find(process, needed, by)

    def _add(self, process: Process, loaded: Loaded) -> None:
        if loaded.place == self.place:
            process.by_name[loaded.place.name] = loaded
        process.by_file[id(self._contents.entries[loaded.place.path])] = loaded

    def _search(self, name: str, by: Loaded, environment: tuple[str, ...]) -> Place | None:
        """Return the file that a needed name stands for: the first that exists, even if it cannot be loaded."""
        if "/" in name:
            return self._open(self._absolute(name))
        places = (self._in(folders, name) for folders in (*self._searched(by, environment), self._system))
        return next(filter(None, places), None)

    def _searched(self, by: Loaded, environment: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield lists of folders: the environment, and the path of the object and of those that led to it."""
        yield environment
        above: Loaded | None = by
        while above:
            binary = above.binary
            yield self._path(above, binary.rpath if binary.runpath is None else binary.runpath)
            above = above.loader

    def _path(self, loaded: Loaded, value: str | None) -> tuple[str, ...]:
        """Return the folders of a path; none if it has another token than the origin."""
        if not value or "$" in _ORIGIN.sub("", value):
            return ()
        origin = posixpath.dirname(loaded.place.name).rstrip("/")
        return self._divided(_ORIGIN.sub(lambda _: origin, value))

    def _open(self, name: str) -> Place | None:
        place = super()._open(name)
        if place is None and (file := self._contents.tree.find(name)):
            binary = self._contents.binaries.get(file[0])
            return Place(name, file[0], None, f"{name} is for {binary.machine}") if binary else None
        return place
