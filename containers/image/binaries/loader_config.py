"""The files in an image with the folders of libraries, for glibc's loader and ldconfig.

Sources, of glibc 2.39: sysdeps/generic/dl-cache.h for `ld.so.cache`, elf/ldconfig.c (`parse_conf`) for `ld.so.conf`,
elf/rtld.c (`handle_preload_list`, `dl_main`) for `LD_PRELOAD` and `ld.so.preload`.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

CACHE: Final = "etc/ld.so.cache"
CONFIGURATION: Final = "etc/ld.so.conf"
PRELOAD: Final = "etc/ld.so.preload"

_OLD: Final = b"ld.so-1.7.0\0"
_NEW: Final = b"glibc-ld.so.cache1.1"
_EXTENSION: Final = 0xEAA42174
_HWCAPS_SECTION: Final = 1
_NAMED: Final = 1 << 30
"""The bit in the upper half of an entry's hardware capabilities that makes the lower half a folder's number."""
_ISA_LEVEL: Final = (1 << 10) - 1


class Cached(NamedTuple):
    """A library in the cache: what kind it is for, its path, and its folder below ``glibc-hwcaps``, if any."""

    flags: int
    path: str
    capabilities: str


def is_configuration(path: str) -> bool:
    """Return whether a file may say where libraries are; ``ld.so.conf`` may include any file that ends in .conf.

    `ld-musl-ARCH.path` is for musl's loader.
    """
    named = path in {CACHE, CONFIGURATION, PRELOAD} or (path.startswith("etc/") and path.endswith(".conf"))
    return named or (path.startswith("etc/ld-musl-") and path.endswith(".path"))


def cached(content: bytes) -> dict[str, list[Cached]]:
    """Return the libraries of a cache by soname, in its order; none for one that the loader does not read either."""
    libraries: dict[str, list[Cached]] = {}
    start, text = 0, partial(_text, content)
    try:
        if content.startswith(_OLD):
            (count,) = struct.unpack_from("<I", content, len(_OLD))
            start = (len(_OLD) + 4 + 12 * count + 7) // 8 * 8
        if content[start : start + len(_NEW)] != _NEW:
            return {}
        count, _, _, extensions = struct.unpack_from("<IIB3xI", content, start + len(_NEW))
        names = _capabilities(content, extensions, text) if extensions else []
        for entry in range(count):
            flags, key, value, _, low, high = struct.unpack_from("<iIIIII", content, start + 48 + 24 * entry)
            named = high & ~_ISA_LEVEL == _NAMED
            if (low or high) and not named:
                continue  # for other processors, before glibc 2.37
            library = Cached(flags, text(start + value), names[low] if named else "")
            libraries.setdefault(text(start + key), []).append(library)
    except (IndexError, ValueError, struct.error):
        return libraries
    return libraries


def _capabilities(content: bytes, place: int, text: Callable[[int], str]) -> list[str]:
    """Return the folders below ``glibc-hwcaps``: of several sections with them, those of the last."""
    magic, count = struct.unpack_from("<II", content, place)
    sections = (struct.unpack_from("<IIII", content, place + 8 + 16 * section) for section in range(count))
    folders = [(offset, size) for tag, _, offset, size in sections if tag == _HWCAPS_SECTION]
    if magic != _EXTENSION or not folders:
        return []
    offset, size = folders[-1]
    return [text(name) for (name,) in struct.iter_unpack("<I", content[offset : offset + size // 4 * 4])]


def _text(content: bytes, place: int) -> str:
    """Return the text at a place, up to a zero. Raises ValueError if it does not end."""
    return content[place : content.index(b"\0", place)].decode(errors="replace")


def preloaded(value: str) -> tuple[str, ...]:
    """Return the libraries of a value of `LD_PRELOAD`, which spaces and colons divide."""
    return tuple(dict.fromkeys(filter(None, re.split("[ :]", value))))


def preloaded_always(content: bytes) -> tuple[str, ...]:
    """Return the libraries of `ld.so.preload`, which has comments, and tabs and lines too."""
    lines = (line.partition("#")[0] for line in content.decode(errors="replace").split("\n"))
    return preloaded(" ".join(lines).replace("\t", " "))


def configured(read: Callable[[str], bytes | None], paths: Iterable[str]) -> list[str]:
    """Return the folders that ``ld.so.conf`` names, in its order; ``paths`` has all files that it may include."""
    known = sorted(paths)
    folders: list[str] = []
    pending, done = [CONFIGURATION], set[str]()
    while pending:
        path = pending.pop()
        if path in done:  # a second reading adds nothing
            continue
        done.add(path)
        included: list[str] = []
        for line in (read(path) or b"").decode(errors="replace").splitlines():
            words = line.partition("#")[0].split()
            if not words:
                continue
            if words[0] == "include":
                for word in words[1:]:
                    included += _included(posixpath.join(f"/{posixpath.dirname(path)}", word).lstrip("/"), known)
            elif words[0] != "hwcap":
                folders.append(words[0].partition("=")[0])
        pending += reversed(dict.fromkeys(included))
    return list(dict.fromkeys(folders))


def _included(pattern: str, known: Iterable[str]) -> list[str]:
    """Return the files that a pattern includes."""
    return [path for path in known if path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)]
