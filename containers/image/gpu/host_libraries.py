"""Libraries of an image that processes get in place of the host's: of its GPU driver, which is mounted into containers.

NVIDIA's container toolkit puts the driver's folder first in ``/etc/ld.so.cache`` (NVIDIA/libnvidia-container 0f8e13d,
src/nvc_ldcache.c, `nvc_ldcache_update`), and `ldconfig` replaces links. The loader's folders before its cache stay, and
so does a file of that name in the driver's folder.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import Binary
from containers.image.binaries.loader import Loaded, Loader, Place, Process
from containers.image.copies.families import plain

_OPENED: Final = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so")
"""What CUDA's runtime, NCCL, Warp and Numba open by name."""
_STUBS: Final = "stubs"
"""The folder of CUDA's toolkit with libraries to link with, whose functions fail."""
_REACHES_NOTHING: Final = re.compile(rb"_\w*|f?printf|f?puts|fwrite|std(?:out|err)|abort|exit")
"""What a library may call that opens no device: only the functions of a stub fail so."""
_OF_C: Final = re.compile(r"(?:libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux[\w-]*|libc\.musl-\w+)\.so\.\d+")
"""What a stub needs: a library in C++ that asks another one may have names of the same kind as the compiler's alone."""


class Hiding(NamedTuple):
    """A library of an image that a name of the host's leads to; ``users`` are the files that need it."""

    path: str
    name: str
    is_stub: bool
    users: tuple[str, ...]


class HostLibraries:
    """The libraries that the processes of an image get if only a host has the right one.

    ``is_host`` returns whether only a host provides a library of a name.
    """

    def __init__(self, contents: Contents, loader: Loader, is_host: Callable[[str], bool]) -> None:
        self._contents, self._loader = contents, loader
        self._is_host = cache(lambda name: is_host(plain(PurePosixPath(name).name)))
        self._users: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)

    def note(self, process: Process) -> None:
        """Note what a process gets."""
        for by, needed, library in process.links:
            if self._is_host(needed) and self._stays(library.place, needed, library.loader or by, process.environment):
                self._users[library.place.name, library.place.path, needed].append(by.place.path)

    def hiding(self) -> Iterator[Hiding]:
        """Yield what hides a library of the host."""
        if self._loader.place and self._loader.place.binary:
            alone = self._loader.process(self._loader.place.path)
            self._note_preloaded(alone)
            for name in _OPENED:
                library = self._loader.opened(alone, name, alone.objects[0])
                if isinstance(library, Loaded) and self._stays(
                    library.place, name, alone.objects[0], alone.environment
                ):
                    self._users[library.place.name, library.place.path, name] += ()
        stubs = [one for path, one in self._contents.binaries.items() if f"/{_STUBS}/" in path]
        stubs += [one for _, path, _ in self._users if _reaches_nothing(one := self._contents.binaries[path])]
        for (place, path, name), users in self._users.items():
            is_stub = _STUBS in PurePosixPath(place, path).parts or self._contents.binaries[path] in stubs
            yield Hiding(place, name, is_stub, tuple(dict.fromkeys(users)))

    def _note_preloaded(self, process: Process) -> None:
        """Note the host's preloaded libraries, if their paths stay."""
        for name in dict.fromkeys((*self._loader.preloaded, *self._loader.always_preloaded)):
            library = process.by_name.get(name)
            known = library and next(filter(self._is_host, (library.binary.soname, name)), None)
            if library and known and self._stays(library.place, name, process.objects[0], process.environment):
                self._users[library.place.name, library.place.path, known] += ()

    def _stays(self, place: Place, name: str, by: Loaded, environment: tuple[str, ...]) -> bool:
        """Return whether a name leads to a file in a container with the host's library too."""
        if "/" in name:
            return not self._loader.is_system_link(place)
        by_path = self._loader.by_path(name, by, environment) == place
        return by_path or self._loader.is_system_file(place)


def _reaches_nothing(binary: Binary) -> bool:
    """Return whether a library with functions can reach no device: a stub that was copied from its folder."""
    calls = filter(None, binary.undefined.split(b"\0"))
    asks_none = all(map(_OF_C.fullmatch, binary.needed))
    return bool(binary.defined) and asks_none and all(map(_REACHES_NOTHING.fullmatch, calls))
