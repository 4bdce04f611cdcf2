"""Files that glibc's loader finds, reads and refuses: for what they ask of stacks and threads, and for their layout.

Sources: bminor/glibc 010d205, elf/dl-load.c (`_dl_map_object_from_fd`); older releases check `p_align` too; 024a764,
elf/dl-tls.c (`LEGACY_TLS`). Tried with the loader of Debian's glibc 2.41.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import Binary
from containers.image.binaries.loader import Loaded, Loader, Process

DEFAULT_PAGE: Final = 4096
"""Bytes of a page of x86-64, and of most kernels for aarch64."""
_WITHOUT_STACK: Final = (2, 41)
"""The glibc from which on only the start of a process makes its stack executable."""
_BY_PAGE_ALONE: Final = (2, 35)
"""The glibc from which on the alignment that a file names may be less than a page."""
_MOST_OF_THREAD: Final = 1664 + 63
"""Bytes of a thread that can be left for a library that is opened, in any release of glibc, and rounded up."""
_MORE_OF_THREAD: Final = re.compile(r"(?:^|:)glibc\.rtld\.(?:optional_static_tls|nns)=")
_EXTENSION: Final = re.compile(r".*\.(?:cpython-3\d+t?-[^/]*|abi3)\.so")
"""Names of what Python opens, and nothing is linked with."""
_ALWAYS: Final = re.compile(r"(?:^|:)glibc\.rtld\.execstack=2(?::|$)")
"""The tunable with which each process has an executable stack from its start."""


class RefusedFile(NamedTuple):
    """A file that is refused: its path, the missing library, the reason, and the files that load it."""

    path: str
    missing: str
    reason: str
    users: tuple[str, ...] = ()


class RefusedFiles:
    """What a loader refuses of an image's files; ``page`` is the bytes of a page of the host's kernel."""

    def __init__(self, contents: Contents, loader: Loader, page: int) -> None:
        self._contents, self._loader, self._page = contents, loader, page
        tunables = contents.environment.get("GLIBC_TUNABLES", "")
        by_start = loader.release is not None and loader.release >= _WITHOUT_STACK
        self._refuses_stacks = by_start and not _ALWAYS.search(tunables)
        self._limits_threads = loader.release is not None and not _MORE_OF_THREAD.search(tunables)
        self._opened: defaultdict[str, list[str]] = defaultdict(list)
        self._too_late: defaultdict[str, list[str]] = defaultdict(list)
        self._started: set[str] = set()
        self._with_threads: set[str] = set()

    def note(self, process: Process, root: str, first: int, *, program: bool) -> None:
        """Note a process; a program opens its objects from number ``first`` on while it runs, a library all."""
        large = [one for one in process.objects if one.binary.static_tls > _MOST_OF_THREAD]
        if large and self._limits_threads:
            self._note_threads(process, large, root, first, program=program)
        if not self._refuses_stacks:
            return
        started = process.objects[:first] if program else []
        if any(one.binary.executable_stack for one in started):
            self._started.update(one.place.path for one in process.objects)
            return
        for one in process.objects[len(started) :]:
            if one.binary.executable_stack:
                self._opened[one.place.path].append(root)

    def _note_threads(self, process: Process, large: Iterable[Loaded], root: str, first: int, *, program: bool) -> None:
        """Note libraries that must be there from a process' start. Whether one on its own is opened is not known."""
        preloaded = (*self._loader.preloaded, *self._loader.always_preloaded)
        started = process.objects[:first] if program else [process.by_name.get(name) for name in preloaded]
        for one in large:
            if one in started:
                self._with_threads.add(one.place.path)
            elif program or _EXTENSION.fullmatch(root):
                self._too_late[one.place.path].append(root)

    def refused(self, files: Iterable[str]) -> Iterator[RefusedFile]:
        """Yield what is refused; ``files`` are the paths that the loader reads."""
        for path, roots in self._opened.items():
            # A library on its own may be one that only programs have, and those from their start.
            if opened := [root for root in roots if root not in self._started]:
                why = f"glibc {'.'.join(map(str, self._loader.release or ()))} opens no library that asks for one"
                users = tuple(root for root in opened if root != path)
                yield RefusedFile(path, "needs an executable stack", why, users)
        for path, roots in self._too_late.items():
            if path not in self._with_threads:
                size = self._contents.binaries[path].static_tls
                why = f"glibc has no {size} bytes of each thread left for it, once a process runs; preload it"
                users = tuple(root for root in roots if root != path)
                yield RefusedFile(path, "cannot be opened", why, users)
        for path in files:
            if why := unmapped(self._contents.binaries[path], self._page, self._loader.release):
                yield RefusedFile(path, "cannot be mapped", why)


def unmapped(binary: Binary, page: int, release: tuple[int, int] | None = None) -> str:
    """Return why a file cannot be mapped by pages of a size in bytes, if so; ``release`` is that of glibc."""
    by_alignment = release is not None and release < _BY_PAGE_ALONE and binary.kind == "library"
    largest = min(binary.page, binary.alignment) if by_alignment else binary.page
    return f"it is for pages of {largest} bytes, and those of the host have {page}" if largest < page else ""
