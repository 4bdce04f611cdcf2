"""What glibc's loader or the kernel refuses of a file by its header and its segments, and what a process crashes by.

Sources: bminor/glibc glibc-2.36, elf/dl-load.c:1578 (`open_verify`) and :940 (`_dl_map_object_from_fd`),
elf/rtld.c (`rtld_setup_main_map`), elf/dl-reloc.c:336 (`_dl_protect_relro`), csu/libc-tls.c (`__libc_setup_tls`),
sysdeps/gnu/ldsodefs.h:29; Linux, fs/binfmt_elf.c (`load_elf_binary`), which looks neither at the class nor at the
system of a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Final

from containers.image.elf import header
from containers.image.elf.header import ElfHeader, Section, part
from containers.image.elf.memory import READ, RUN, WRITE, Memory, Segment, Unloadable, down, mapped, up

_PLACES: Final[Mapping[int, tuple[str, frozenset[int]]]] = {
    4: ("class", frozenset({1, 2})),
    5: ("order of bytes", frozenset({1, 2})),
    6: ("version", frozenset({1})),
    7: ("system", frozenset({0, 3})),
    8: ("version of the system", frozenset({0, 1, 2, 3})),
    **dict.fromkeys(range(9, 16), ("padding", frozenset({0}))),
}
"""The bytes of a library's `e_ident` after the first four, and their values."""
_ARM, _OF_ARM = 40, {64, 97}
"""A machine, and its values of the system."""
_OTHER_SYSTEMS: Final = {2, 6, 9, 12}
"""Systems that a file may name as its own: NetBSD, Solaris, FreeBSD, OpenBSD. Linux' loaders refuse their libraries,
which packages of Node.js have beside those for Linux."""
_OF_GLIBC: Final = "libc.so.6"
_WIDE: Final = {8, 15, 21, 22, 43, 50, 62, 180, 181, 183, 190, 191, 224, 243, 247, 251, 256, 258, 0x9026}
"""Machines with addresses of 64 bits (binutils, include/elf/common.h)."""
_RELOCATABLE, _CORE = 1, 4
_LONGEST_PATH: Final = 4096
_MOST_ROWS: Final = 65536
"""Bytes of the segments' rows of a program."""
_MOST_OF_THREAD: Final = 1 << 30
"""Bytes of the largest copy for a thread, and of its alignment."""
_WRITTEN: Final = {b".data", b".bss"}
"""Sections that a process writes to as long as it runs."""
_STARTS: Final = {b".init", b".fini"}
"""Sections that are one function."""


def is_for_loaders(file: ElfHeader) -> bool:
    """Return whether a file is one that loaders read, and not an object file, a core or debug symbols.

    Raises Unloadable: it is none of these, and no loader reads it.
    """
    sections = file.of(header.DYNAMIC)
    if file.kind in {header.PROGRAM, header.SHARED}:
        if file.wide and file.machine not in _WIDE:
            raise Unloadable(f"it is for machine {file.machine} with 64 bits, which there is not")
        return not (sections and _without_content(file, sections[-1]))
    if not file.of(header.LOAD) or (file.kind in {_RELOCATABLE, _CORE} and not sections):
        return False
    raise Unloadable(f"its type is {file.kind}; 2 and 3 are loaded")


def is_of_other_system(file: ElfHeader, needed: Sequence[str]) -> bool:
    """Return whether a library is for another system than Linux."""
    return file.ident[7] in _OTHER_SYSTEMS and _OF_GLIBC not in needed


def _without_content(file: ElfHeader, section: Segment) -> bool:
    """Return whether a file has debug symbols only: its sections then have no content."""
    return any(
        each.kind == header.NO_CONTENT and each.address == section.address and each.flags & header.ALLOCATED
        for each in file.sections
        if file.name(each) == b".dynamic"
    )


def of_glibc(file: ElfHeader) -> str:
    """Return why glibc alone refuses a library by its header; musl's loader looks at nothing of it."""
    if file.wide != (file.ident[4] == 2):
        return f"its class is {file.ident[4]}"
    for place, (name, values) in _PLACES.items():
        of_arm = place == 7 and file.machine == _ARM and file.ident[7] in _OF_ARM
        if (file.ident[place] not in values and not of_arm) or (place == 8 and file.ident[8] and not file.ident[7]):
            return f"its {name} is {file.ident[place]}, in byte {place} of its header"
    return "" if file.version == 1 else f"its version is {file.version}"


def memory_of(content: IO[bytes], file: ElfHeader, size: int, *, by_kernel: bool) -> Memory:
    """Map a file of ``size`` bytes. Raises Unloadable: it cannot be mapped."""
    rows = _MOST_ROWS // file.row if file.row else 0
    if by_kernel and not 0 < file.count <= rows:
        raise Unloadable(f"it has {file.count} segments")
    if file.row != (56 if file.wide else 32):
        raise Unloadable(f"malformed: headers of {file.row} bytes")
    loads = file.of(header.LOAD)
    end = max((segment.start + segment.size for segment in loads), default=0)
    # Whoever cuts a file cuts its sections' headers, which come last, and which no loader reads.
    if end > up(size) and not 0 < file.end <= size:
        raise Unloadable(f"truncated: {size} bytes, its segments end at {end}")
    return mapped(content, loads, by_kernel=by_kernel, is_fixed=file.kind == header.PROGRAM)


def interpreter(content: IO[bytes], file: ElfHeader) -> str:
    """Return the loader that a program names, or else nothing. Raises Unloadable: the kernel takes it for no name."""
    rows = file.of(header.INTERPRETER)
    if not rows:
        return ""
    size = rows[0].size
    name = part(content, rows[0].start, size) if 2 <= size <= _LONGEST_PATH else b"\1"
    if name[-1]:
        raise Unloadable(f"the name of its loader has {size} bytes, or does not end")
    return name.partition(b"\0")[0].decode(errors="replace")


def check_program(file: ElfHeader, memory: Memory, named: str, needed: Sequence[object]) -> None:
    """Check how a program is started. Raises Unloadable: it crashes, or its loader does."""
    check_code(file, memory, file.entry, "its start")
    _check_sections(file, memory)
    if needed and not named:
        raise Unloadable("it needs libraries, and names no loader")
    if named:
        memory.text(file.of(header.INTERPRETER)[-1].address)
        order = [segment.kind for segment in file.segments]
        first = min(order.index(kind) for kind in (header.INTERPRETER, header.DYNAMIC))
        if header.TABLE in order and file.kind == header.SHARED and order.index(header.TABLE) > first:
            raise Unloadable("its PT_PHDR comes after its PT_INTERP or PT_DYNAMIC")
    rows = file.of(header.TABLE)
    distances = ((segment, file.table - segment.start) for segment in file.of(header.LOAD))
    places = [segment.address + distance for segment, distance in distances if 0 <= distance < segment.size]
    if named and (not places or (rows[-1].address != places[0] if rows else file.kind == header.SHARED)):
        raise Unloadable("its PT_PHDR is not the place of its segments' rows")


def _check_sections(file: ElfHeader, memory: Memory) -> None:
    """Check that a program has its sections where its code looks for them."""
    for section in file.allocated:
        right = WRITE if section.flags & header.WRITABLE else READ | WRITE | RUN
        ends = (section.address, section.address + section.size - 1)
        moved = section.kind != header.NO_CONTENT and any(memory.place(at) != _place(section, at) for at in ends)
        if moved or not memory.holds(section.address, section.size, right):
            raise Unloadable(f"its section {file.name(section).decode(errors='replace')} is in no segment")


def check_static(file: ElfHeader, memory: Memory, named: str) -> None:
    """Check a program without a loader. Raises Unloadable: it crashes."""
    is_library = not file.entry and any(section.kind == header.OF_DYNAMIC for section in file.sections)
    if (named or is_library) and not file.of(header.DYNAMIC):
        raise Unloadable("it has no PT_DYNAMIC")
    if file.entry:  # without one it is no program, nor a library
        check_program(file, memory, named, ())
    _check_closed(file, memory)
    _check_threads(file, memory, is_program=True)


def check_code(file: ElfHeader, memory: Memory, address: int, name: str) -> None:
    """Check that an address that a process calls has code. Raises Unloadable: it has none."""
    section = file.section_at(address)
    is_code = memory.holds(address, 4, RUN) and any(memory.read(address, 4))
    if is_code and file.has_code and not file.is_unnamed(address):
        is_code = bool(section and section.flags & header.CODE and memory.place(address) == _place(section, address))
    if is_code and section and file.name(section) in _STARTS:
        is_code = address == section.address
    if not is_code:
        raise Unloadable(f"malformed: {name} is {address:#x}, which is no code")


def _place(section: Section, address: int) -> int | None:
    return None if section.kind == header.NO_CONTENT else section.start + address - section.address


def check_parts(file: ElfHeader, memory: Memory, named: str, needed: Sequence[object], *, is_program: bool) -> None:
    """Check the segments that are no memory of their own. Raises Unloadable: a process crashes by one."""
    if is_program:
        check_program(file, memory, named, needed)
    elif any(not segment.size for segment in file.of(header.DYNAMIC)):
        raise Unloadable("it has no dynamic section")
    if (rows := file.of(header.TABLE)) and not memory.holds(rows[-1].address, file.row * file.count):
        raise Unloadable("its PT_PHDR is in no segment")
    _check_closed(file, memory)
    if file.machine == header.X86_64:
        for segment in file.of(header.NOTE):
            _check_notes(file, memory, segment)
    for segment in file.of(header.PROPERTY):
        if segment.memory > 12:
            memory.read(segment.address, 12)
    _check_threads(file, memory, is_program=is_program)


def _check_closed(file: ElfHeader, memory: Memory) -> None:
    """Check what is read-only once it is relocated."""
    for segment in file.of(header.RELRO)[-1:]:
        start, end = down(segment.address), down((segment.address + segment.memory) % (1 << 64))
        if end != start and not memory.holds(start, end - start):
            raise Unloadable(f"its PT_GNU_RELRO at {segment.address:#x} is in no segment")
        for section in file.allocated:
            if start <= section.address < end and file.name(section) in _WRITTEN:
                raise Unloadable(f"its PT_GNU_RELRO closes {file.name(section).decode()} at {section.address:#x}")


def _check_threads(file: ElfHeader, memory: Memory, *, is_program: bool) -> None:
    """Check what each thread gets a copy of: the code of a program has the distances in it."""
    own = [each.address + each.size for each in file.sections if each.size and each.flags & header.OF_THREADS]
    if is_program and own and not file.of(header.TLS):
        raise Unloadable("it has variables of threads, and no PT_TLS")
    for segment in filter(lambda each: each.memory, file.of(header.TLS)):
        sizes = f"{segment.size} bytes of {segment.memory}, aligned by {segment.alignment}"
        step, least = max(segment.alignment, 1), max(own, default=0) - segment.address
        if segment.size > segment.memory or max(segment.memory, step) > _MOST_OF_THREAD:
            raise Unloadable(f"its PT_TLS has {sizes}")
        by_itself = is_program and not file.of(header.INTERPRETER)
        if (by_itself and step.bit_count() != 1) or (is_program and own and not 0 <= segment.memory - least < step):
            raise Unloadable(f"its PT_TLS has {sizes}; its sections have {least}")
        if not memory.holds(segment.address, segment.size, READ | WRITE | RUN):
            raise Unloadable(f"its PT_TLS at {segment.address:#x} is in no segment")


def _check_notes(file: ElfHeader, memory: Memory, segment: Segment) -> None:
    """Read the notes as glibc's loader does in search of properties; it stops at the second one."""
    if segment.alignment != (8 if file.wide else 4):
        return
    place, end, known = segment.address, segment.address + segment.memory, 0
    while place + 12 < end and known < 2:
        name, size, kind = (int.from_bytes(memory.read(place + each, 4), "little") for each in (0, 4, 8))
        known += name == 4 and kind == 5 and memory.read(place + 12, 4) == b"GNU\0"
        step = -(-(12 + name) // segment.alignment) * segment.alignment
        place += -(-(step + size) // segment.alignment) * segment.alignment
