"""The header of an ELF file, its segments and its sections (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from io import SEEK_END
from typing import IO, Final, NamedTuple

from containers import budget
from containers.image.elf.memory import Segment

PROGRAM, SHARED = 2, 3
"""Types of files that are loaded."""
X86_64, AARCH64 = 62, 183
"""Machines whose relocations are known."""
LOAD, DYNAMIC, INTERPRETER, NOTE, TABLE, TLS, PROPERTY, STACK, RELRO = (
    *(1, 2, 3, 4, 6, 7, 0x6474E553, 0x6474E551, 0x6474E552),
)
"""Types of segments; PT_GNU_STACK has the rights of the stack alone."""
OF_DYNAMIC, NO_CONTENT, SYMBOLS, WRITABLE, ALLOCATED, CODE, OF_THREADS = 6, 8, 11, 1, 2, 4, 0x400
"""Types of sections, and flags."""
_IDENT: Final = 16
"""Bytes of `e_ident`."""
_WIDE_ROW: Final = 56
"""Bytes of a segment's row in a file of 64 bits."""
_OF_NAMES: Final = b".shstrtab"
_MOST_NAME: Final = 256
"""Bytes of a section's name that are compared."""


class Section(NamedTuple):
    """A section: its name is a place among the names, ``start`` and ``size`` are bytes of the file."""

    name: int
    kind: int
    flags: int
    address: int
    start: int
    size: int


class ElfHeader:
    """The header of an ELF file, its segments and sections. Raises ValueError: they are not in the file."""

    def __init__(self, content: IO[bytes]) -> None:
        self.ident = part(content, 0, _IDENT)
        # The kernel takes a file for what its processor has, whatever its class.
        row = int.from_bytes(part(content, 54, 2), "little") if self.ident[4] != 1 or self.ident[5] != 2 else 0
        self.wide, self.order = self.ident[4] == 2 or row == _WIDE_ROW, ">" if self.ident[5] == 2 else "<"
        shape = struct.Struct(self.order + ("HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH"))
        self.kind, self.machine, self.version, self.entry, self.table, sections, self.flags, *values = shape.unpack(
            part(content, _IDENT, shape.size)
        )
        _, self.row, self.count, section, parts, names = values
        shape = struct.Struct(self.order + ("IIQQ8xQQQ" if self.wide else "III4xIIII"))
        rows = _table(content, self.table, self.row, self.count, shape)
        order = (0, 2, 3, 4, 1, 6, 5) if self.wide else (0, 1, 2, 3, 5, 6, 4)
        self.segments = [Segment(*(row[place] for place in order)) for row in rows]
        self.sections: list[Section] = []
        self.end = sections + section * parts
        self._names = b""
        with suppress(ValueError, IndexError, struct.error):  # the loader does without sections
            shape = struct.Struct(self.order + ("IIQQQQ24x" if self.wide else "IIIIII16x"))
            listed = [Section(*values) for values in _table(content, sections, section, parts, shape)]
            self._names = part(content, listed[names].start, listed[names].size)
            self.sections = listed if self.name(listed[names]) == _OF_NAMES else []

    def of(self, kind: int) -> list[Segment]:
        """Return the segments of a kind."""
        return [segment for segment in self.segments if segment.kind == kind]

    @cached_property
    def allocated(self) -> list[Section]:
        """The sections of a process, by their addresses; variables of threads without content have no place."""
        kept = (each for each in self.sections if each.flags & ALLOCATED and each.size)
        return sorted((each for each in kept if not each.flags & OF_THREADS), key=lambda each: each.address)

    def section_at(self, address: int) -> Section | None:
        """Return the section of an address, of those within each other the last one that begins."""
        before = self.allocated[: bisect_right(self.allocated, address, key=lambda each: each.address)]
        return next((each for each in reversed(before) if address < each.address + each.size), None)

    @cached_property
    def has_code(self) -> bool:
        """Whether its sections say what is code."""
        return any(each.flags & CODE for each in self.sections)

    def is_unnamed(self, address: int) -> bool:
        """Return whether the file has sections, and none in the segment of an address.

        The loader reads no sections. What protects a library adds segments without one, and its own code fills them
        (pypylon 26.9, whose libPylonVToolAdapter.so loads).
        """
        return any(one.address <= address < one.address + one.memory for one in self._unnamed)

    @cached_property
    def _unnamed(self) -> list[Segment]:
        places = sorted(each.address for each in self.sections if each.flags & ALLOCATED)
        rows = ((one, bisect_left(places, one.address)) for one in (self.of(LOAD) if places else ()))
        return [one for one, next_ in rows if next_ == len(places) or places[next_] >= one.address + one.memory]

    def name(self, section: Section) -> bytes:
        """Return a section's name."""
        return self._names[section.name : section.name + _MOST_NAME].partition(b"\0")[0]


def _table(content: IO[bytes], start: int, size: int, count: int, shape: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Yield the rows of a table of headers, of which each has ``size`` bytes."""
    if count and size < shape.size:
        raise ValueError(f"headers of {size} bytes, expected {shape.size}")
    table = part(content, start, size * count)
    return (shape.unpack_from(table, row * size) for row in range(count))


def part(content: IO[bytes], start: int, length: int) -> bytes:
    """Return a part of a file. Raises ValueError: it ends after the file."""
    budget.check()  # tables name each other
    if start + length > content.seek(0, SEEK_END):
        raise ValueError(f"a table at {start} ends after the file")
    content.seek(start)
    return content.read(length)
