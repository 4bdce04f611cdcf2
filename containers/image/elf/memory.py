"""What a process has of a file in memory, by the addresses that the file names: what glibc's loader or the kernel maps.

Sources: bminor/glibc glibc-2.36, elf/dl-load.c:940 (`_dl_map_object_from_fd`) and elf/dl-map-segments.h:77
(`_dl_map_segments`); Linux, fs/binfmt_elf.c (`load_elf_binary`, `elf_load`). Held against both in
tests/unit/containers/test_damaged_files.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from io import SEEK_END
from typing import IO, Final, NamedTuple

from containers import budget

PAGE: Final = 4096
"""Bytes of a page, on hosts with the smallest ones."""
RUN, WRITE, READ = 1, 2, 4
"""Rights, as in the flags of a segment; on most processors each of them lets a process read."""
_HIGHEST: Final = 1 << 47
"""The end of the addresses that a process has (x86-64; Linux, Documentation/arch/x86/x86_64/mm.rst)."""
_WORDS: Final = 1 << 64
_LOWEST: Final = 1 << 16
"""The lowest address for all but the superuser of the host (Linux, `vm.mmap_min_addr` of distributions)."""
_MOST_MEMORY: Final = 1 << 36
"""Bytes of writable memory in one segment; the kernel refuses more than the host can have."""
_CHUNK: Final = 1 << 12
_LONGEST: Final = 1 << 20
"""Bytes of the longest text that is read."""


class Unloadable(ValueError):
    """Why a loader or the kernel refuses a file, or a process crashes while it loads it."""


class Segment(NamedTuple):
    """A row of the program header: places and sizes in bytes."""

    kind: int
    start: int
    address: int
    size: int
    flags: int
    alignment: int
    memory: int


class _Region(NamedTuple):
    """Addresses with the same rights; ``place`` is the file's byte at the first of them, None for zeros."""

    start: int
    end: int
    place: int | None
    flags: int


class Memory:
    """The memory that is mapped for a file."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content, self._size = content, content.seek(0, SEEK_END)
        self._regions: list[_Region] = []
        self._starts: list[int] = []

    def put(self, start: int, end: int, place: int | None, flags: int) -> None:
        """Map addresses in place of what is there. Pages after the file's end are mapped, and nobody may use them."""
        filled = end if place is None else min(end, max(start, start + up(self._size) - place))
        new = [_Region(start, filled, place, flags)] if filled > start else []
        new += [_Region(filled, end, None, 0)] if end > filled else []
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = first
        kept: list[_Region] = []
        while last < len(self._regions) and self._regions[last].start < end:
            old = self._regions[last]
            if old.start < start:
                kept.append(old._replace(end=min(old.end, start)))
            if old.end > end:
                after = None if old.place is None else old.place + end - old.start
                new.append(_Region(end, old.end, after, old.flags))
            last += 1
        self._regions[first:last] = [*kept, *new]
        self._starts[first:last] = [region.start for region in (*kept, *new)]

    def _at(self, address: int) -> _Region | None:
        number = bisect_right(self._starts, address) - 1
        region = self._regions[number] if number >= 0 else None
        return region if region and address < region.end else None

    def holds(self, address: int, length: int, right: int = 0) -> bool:
        """Return whether so many bytes are mapped, with a right if one is asked for."""
        while length > 0:
            region = self._at(address)
            if region is None or (right and not region.flags & right):
                return False
            length -= region.end - address
            address = region.end
        return True

    def read(self, address: int, length: int) -> bytes:
        """Return so many bytes. Raises Unloadable: a process crashes that reads them."""
        budget.check()  # tables name each other
        if length > self._size + PAGE:
            raise Unloadable(f"malformed: a table of {length} bytes in a file of {self._size}")
        parts: list[bytes] = []
        address %= _WORDS
        while length > 0:
            region = self._at(address)
            if region is None or not region.flags:
                raise Unloadable(f"malformed: address {address:#x} is in no segment")
            part = min(length, region.end - address)
            parts.append(self._bytes(region, address, part))
            address, length = address + part, length - part
        return b"".join(parts)

    def _bytes(self, region: _Region, address: int, length: int) -> bytes:
        if region.place is None:
            return bytes(length)
        self._content.seek(region.place + address - region.start)
        return self._content.read(length).ljust(length, b"\0")

    def place(self, address: int) -> int | None:
        """Return the byte of the file that an address has; None for none."""
        region = self._at(address)
        return region.place + address - region.start if region and region.place is not None else None

    def available(self, address: int) -> int:
        """Return how many bytes can be read from an address on, in one region."""
        region = self._at(address)
        return region.end - address if region and region.flags else 0

    def text(self, address: int) -> bytes:
        """Return the text that ends with a zero byte. Raises Unloadable: a process crashes that reads it."""
        found = b""
        while len(found) < _LONGEST:
            start = address + len(found)
            part = self.read(start, max(1, min(_CHUNK, self.available(start))))
            before, end, _ = part.partition(b"\0")
            found += before
            if end:
                return found
        raise Unloadable(f"malformed: a text of more than {_LONGEST} bytes")


def mapped(content: IO[bytes], segments: Sequence[Segment], *, by_kernel: bool, is_fixed: bool) -> Memory:
    """Map the segments of a file: the kernel those of a program, glibc's loader those of a library.

    A file ``is_fixed`` whose addresses are as it states them.

    Raises Unloadable: the segments cannot be mapped.
    """
    if not segments:
        raise Unloadable("it has no loadable segments")
    if not by_kernel:  # whose end wraps around, so that nothing is filled
        segments = [
            each._replace(memory=each.memory - _WORDS) if each.memory > _WORDS - _HIGHEST // 2 else each
            for each in segments
        ]
    for segment in segments:
        _check(segment, by_kernel=by_kernel)
    memory = Memory(content)
    first, last = segments[0], segments[-1]
    start = down(first.address)
    if by_kernel:
        if is_fixed and min(segment.address for segment in segments) < _LOWEST:
            raise Unloadable(f"its segments begin below address {_LOWEST:#x}")
    else:
        _reserve(memory, segments, start, last.address + last.memory)
    for number, segment in enumerate(segments):
        low, data = down(segment.address), segment.address + segment.size
        if (by_kernel and segment.size) or (number and up(data) > low):
            memory.put(low, up(data), segment.start - (segment.address - low), segment.flags)
        _fill(memory, segment, by_kernel=by_kernel)
    return memory


def _reserve(memory: Memory, segments: Sequence[Segment], start: int, end: int) -> None:
    """Map the first segment over the place of all, as glibc's loader does, and close what is between them."""
    first, last = segments[0], segments[-1]
    largest = max((each.alignment for each in segments if each.alignment & (each.alignment - 1) == 0), default=0)
    length = end - start
    if not 0 < length <= _HIGHEST or length + largest > _HIGHEST:
        raise Unloadable(f"its segments span {length} bytes, aligned by {largest}")
    for segment in segments:
        if up(segment.address + max(segment.size, segment.memory)) > up(end):
            raise Unloadable(f"its segment for {segment.address:#x} ends after the last one")
    memory.put(start, up(end), first.start - (first.address - start), first.flags)
    ends = [up(segment.address + segment.size) for segment in segments]
    if any(down(after.address) != before for before, after in zip(ends, segments[1:], strict=False)):
        if down(last.address) < ends[0]:
            raise Unloadable("its segments overlap, and leave holes")
        memory.put(ends[0], down(last.address), None, 0)


def _check(segment: Segment, *, by_kernel: bool) -> None:
    """Check one segment."""
    name = f"its segment for {segment.address:#x}"
    if segment.address + max(segment.memory, segment.size) > _HIGHEST:
        raise Unloadable(f"{name} of {max(segment.memory, segment.size)} bytes is outside of the address space")
    if by_kernel and segment.size > segment.memory:
        raise Unloadable(f"{name} has {segment.size} bytes in the file, and {segment.memory} in memory")
    if (by_kernel or segment.flags & WRITE) and segment.memory - segment.size > _MOST_MEMORY:
        raise Unloadable(f"{name} takes {segment.memory} bytes of memory")


def _fill(memory: Memory, segment: Segment, *, by_kernel: bool) -> None:
    """Set the memory after a segment's data to zero."""
    zero, end = segment.address + segment.size, segment.address + segment.memory
    page = min(up(zero), end) if segment.size or not by_kernel else down(zero)
    if end <= zero:
        return
    # The kernel looks at its result for writable memory alone.
    if page > zero and (not by_kernel or segment.flags & WRITE):
        region = memory.available(zero)
        if not region:
            raise Unloadable(f"truncated: the memory after its segment for {segment.address:#x} begins after its end")
        memory.put(zero, page, None, segment.flags)
    if end > page:
        memory.put(page, up(end), None, segment.flags)


def down(address: int) -> int:
    """Return the start of an address' page."""
    return address & -PAGE


def up(address: int) -> int:
    """Return the start of the next page, or an address that is one."""
    return (address + PAGE - 1) & -PAGE
