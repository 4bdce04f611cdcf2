"""The dynamic section of an ELF file, as glibc's loader reads it from memory: what it refuses, or crashes by.

Sources: bminor/glibc glibc-2.36, elf/get-dynamic-info.h:29 (`elf_get_dynamic_info`), elf/dl-setup_hash.c:23,
elf/do-rel.h:43 (`elf_dynamic_do_Rel`), sysdeps/x86_64/dl-machine.h:238 and sysdeps/aarch64/dl-machine.h:166
(`elf_machine_rela`), elf/dl-reloc.c:336 (`_dl_protect_relro`), elf/dl-init.c (`call_init`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import IO, Final, NamedTuple

from containers import budget
from containers.image.elf.header import AARCH64, DYNAMIC, PROGRAM, SYMBOLS, TLS, X86_64, ElfHeader
from containers.image.elf.loadable import check_code
from containers.image.elf.memory import READ, WRITE, Memory, Unloadable, up

NEEDED, HASH, STRTAB, SYMTAB, STRSZ, SONAME, RPATH, RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
FLAGS, GNU_HASH, FLAGS_1, VERDEF, VERNEED, VERSYM = 30, 0x6FFFFEF5, 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE, 0x6FFFFFF0
_PLTRELSZ, _RELA, _RELASZ, _RELAENT, _INIT, _FINI, _REL, _RELENT, _PLTREL, _TEXTREL, _JMPREL = (
    *(2, 7, 8, 9, 12, 13, 17, 19, 20, 22, 23),
)
_INIT_ARRAY, _FINI_ARRAY, _INIT_ARRAYSZ, _FINI_ARRAYSZ, _RELRSZ, _RELR, _RELRENT, _RELACOUNT = (
    *(25, 26, 27, 28, 35, 36, 37, 0x6FFFFFF9),
)
_HAS_TEXTREL, _NOW, _NOW_1, _PIE_1 = 4, 8, 1, 0x08000000
"""Flags, the last two of DT_FLAGS_1."""
_PLTGOT, _BIND_NOW = 3, 24

_PAIRS: Final[Sequence[tuple[int, int, str]]] = (
    (_RELA, _RELASZ, "DT_RELA without DT_RELASZ"),
    (_RELA, _RELAENT, "DT_RELA without DT_RELAENT"),
    (_RELR, _RELRENT, "DT_RELR without DT_RELRENT"),
    (_RELR, _RELRSZ, "DT_RELR without DT_RELRSZ"),
    (_JMPREL, _PLTRELSZ, "DT_JMPREL without DT_PLTRELSZ"),
    (_JMPREL, _PLTREL, "DT_JMPREL without DT_PLTREL"),
    (_PLTREL, _JMPREL, "DT_PLTREL without DT_JMPREL"),
    (_INIT_ARRAY, _INIT_ARRAYSZ, "DT_INIT_ARRAY without DT_INIT_ARRAYSZ"),
    (_FINI_ARRAY, _FINI_ARRAYSZ, "DT_FINI_ARRAY without DT_FINI_ARRAYSZ"),
)
"""Entries that the loader takes to come together: the first, the one that it needs, and what is missing."""


_VALUES: Final[Sequence[tuple[int, int, int, str]]] = (
    (_RELA, _RELAENT, 24, "DT_RELAENT"),
    (_RELR, _RELRENT, 8, "DT_RELRENT"),
    (_PLTREL, _PLTREL, _RELA, "DT_PLTREL"),
)
"""Beside the first entry, the values of the second one that glibc's loader asserts in a file of 64 bits, for a
processor whose relocations have addends."""
_REQUIRED: Final[Sequence[tuple[int, str, tuple[int, ...]]]] = (
    (STRTAB, "DT_STRTAB", (NEEDED, SONAME, VERNEED, VERDEF)),
    (SYMTAB, "DT_SYMTAB", (_RELA, _REL, _JMPREL)),
)
"""Tables, and the entries that need them."""


class _Machine(NamedTuple):
    """The relocations of a processor: all, those without a symbol, those of variables of threads, and of functions.

    The first one without a symbol is for an address in the file.
    """

    types: frozenset[int]
    without: tuple[int, ...]
    threads: frozenset[int]
    functions: frozenset[int]


_MACHINES: Final[Mapping[int, _Machine]] = {
    X86_64: _Machine(
        frozenset({0, 1, 2, 5, 6, 7, 8, 10, 16, 17, 18, 32, 33, 36, 37, 38}),
        (8, 37, 38, 0),
        frozenset({16, 17, 18, 36}),
        frozenset({7, 36, 37}),
    ),
    AARCH64: _Machine(
        frozenset({0, 257, 258, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032}),
        (1027, 1032, 0),
        frozenset({1028, 1029, 1030, 1031}),
        frozenset({1026, 1031, 1032}),
    ),
}
"""What `elf_machine_rela` handles, by the number of the machine."""


class _Hashes(NamedTuple):
    """The head of a GNU hash table: its counts, and the addresses of its filter, its buckets and its chains."""

    buckets: int
    first: int
    words: int
    shift: int
    filter: int
    heads: int
    chains: int


_ENTRY: Final = 24
"""Bytes of a relocation or symbol of 64 bits."""
_OWN: Final = {1, 2}
"""Visibilities of symbols that no other file may define."""
_MOST_LOOKED_UP: Final = 8
"""Own symbols of a file that are looked up as the loader does: a broken table has none of them."""


class Dynamic:
    """The entries of a dynamic section, of which the last one of each tag counts, as in the loader.

    Args:
        memory: the file's.
        file: its header, whose last PT_DYNAMIC counts.
        start: the section's address, if not the one that PT_DYNAMIC states.

    Raises:
        Unloadable: the section cannot be read.
    """

    def __init__(self, memory: Memory, file: ElfHeader, start: int | None = None) -> None:
        self.memory, self.file, self._order, self._wide = memory, file, file.order, file.wide
        self._segment = file.of(DYNAMIC)[-1]
        self.needed: list[int] = []
        self._tags: dict[int, int] = {}
        pair = struct.Struct(self._order + ("QQ" if self._wide else "II"))
        first = place = self._segment.address if start is None else start
        while True:
            tag, value = pair.unpack(memory.read(place, pair.size))
            if not tag:
                break
            if tag == NEEDED:
                self.needed.append(value)
            self._tags[tag] = value
            place += pair.size
        self._length = place - first

    def __contains__(self, tag: object) -> bool:
        """Return whether there is an entry."""
        return tag in self._tags

    def value(self, tag: int) -> int:
        """Return the value of an entry; 0 without one."""
        return self._tags.get(tag, 0)

    def text(self, offset: int) -> str:
        """Return a name. Raises Unloadable: it is in no segment."""
        return self.memory.text(self.value(STRTAB) + offset).decode(errors="replace")

    def unpack(self, place: int, layout: str) -> tuple[int, ...]:
        """Return the values at an address. Raises Unloadable: it is in no segment."""
        shape = self._order + layout
        return struct.unpack(shape, self.memory.read(place, struct.calcsize(shape)))

    def check(self, *, is_program: bool) -> None:
        """Check what a process does with the entries. Raises Unloadable: it crashes or gives up."""
        if STRTAB not in self and SYMTAB not in self:
            raise Unloadable("it has neither DT_STRTAB nor DT_SYMTAB")
        for tag, name, users in _REQUIRED:
            if tag not in self and any(user in self for user in users):
                raise Unloadable(f"it has no {name}")
        for tag, needs, reason in _PAIRS:
            if tag in self and needs not in self:
                raise Unloadable(f"it has {reason}")
        if self._segment.flags & WRITE and not self.memory.holds(self._segment.address, self._length, WRITE):
            raise Unloadable("its dynamic section is in memory that is read-only")
        for tag, name in ((_INIT, "its DT_INIT"), (_FINI, "its DT_FINI")):
            if tag in self:
                check_code(self.file, self.memory, self.value(tag), name)
        if self._machine:
            if GNU_HASH in self:
                self._check_hashes(is_program=is_program)
            if is_program and not self.binds_now and _JMPREL in self:
                self._check_lazy(self._machine)
            self.relocate()

    @property
    def _machine(self) -> _Machine | None:
        return _MACHINES.get(self.file.machine) if self._wide and self._order == "<" else None

    @property
    def binds_now(self) -> bool:
        """Whether functions of others are looked up before the start, and not when they are called."""
        return bool(_BIND_NOW in self or self.value(FLAGS) & _NOW or self.value(FLAGS_1) & _NOW_1)

    def _check_hashes(self, *, is_program: bool) -> None:
        """Check the table of hashes, which each search for a symbol reads: that of a program to its end."""
        hashes = self._hashes
        if hashes.words.bit_count() != 1:
            raise Unloadable(f"malformed: its table of hashes has {hashes.words} words, which is no power of two")
        first = min(filter(None, self.unpack(hashes.heads, f"{hashes.buckets}I")), default=hashes.first)
        if is_program and first < hashes.first:
            raise Unloadable(f"malformed: its table of hashes leads to symbol {first}, and begins with {hashes.first}")

    def _check_lazy(self, machine: _Machine) -> None:
        """Check the table by which functions are looked up when they are called."""
        place = self.value(_PLTGOT)
        if not self.memory.holds(place, 24, WRITE) or (
            machine is _MACHINES[X86_64] and self.unpack(place, "Q")[0] != self._segment.address
        ):
            raise Unloadable(f"malformed: its DT_PLTGOT is {place:#x}, which is no table of functions")
        rows = memoryview(self.memory.read(self.value(_JMPREL), -(-self.value(_PLTRELSZ) // _ENTRY) * _ENTRY))
        if unknown := set(rows.cast("I")[2::6]) - machine.functions:
            raise Unloadable(f"malformed: it has a relocation of type {min(unknown)} for a function")

    def relocate(self) -> None:
        """Check what a process does with the relocations, its loader's or its own. Raises Unloadable: it crashes."""
        machine = self._machine
        if not machine:
            return
        for base, tag, value, name in _VALUES:
            if base in self and self.value(tag) != value:
                raise Unloadable(f"malformed: its {name} is {self.value(tag)}, which has to be {value}")
        arrays = [
            (self.value(tag), (self.value(size) // 8 & most) * 8)
            for tag, size, most in ((_INIT_ARRAY, _INIT_ARRAYSZ, 0xFFFFFFFF), (_FINI_ARRAY, _FINI_ARRAYSZ, -1))
            if tag in self and self.value(size) // 8 & most
        ]
        slots: dict[int, int | None] = {}
        used: set[int] = set()
        for table, size in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            if table in self and self.value(size):
                relative = self.value(_RELACOUNT) & 0xFFFFFFFF if table == _RELA else 0
                rows = self._relocations(table, -(-self.value(size) // _ENTRY), relative, machine)
                used |= self._symbols_of(rows, machine)
                slots |= _slots(rows, arrays, machine.without[0])
        for start, size in arrays:
            for place in range(start, start + size, 8):
                self._check_slot(place, slots)
        self._check_versions_of(used)

    def _relocations(self, table: int, count: int, relative: int, machine: _Machine) -> memoryview:
        """Return a table of relocations, whose types and places are checked."""
        rows = memoryview(self.memory.read(self.value(table), count * _ENTRY))
        types = rows.cast("I")[2::6]
        if unknown := set(types) - machine.types:
            raise Unloadable(f"malformed: it has a relocation of type {min(unknown)}, which its processor has not")
        if relative > count or set(types[:relative]) - {machine.without[0]}:
            raise Unloadable(f"malformed: not all of its first {relative} relocations are relative ones")
        writable = 0 if _TEXTREL in self or self.value(FLAGS) & _HAS_TEXTREL else WRITE
        places = rows.cast("Q")[0::3]
        low, high = min(places), max(places)
        if not self.memory.holds(low, high + 8 - low, WRITE):
            for place in {place for place, kind in zip(places, types, strict=True) if kind}:
                if not self.memory.holds(place, 8, writable):
                    raise Unloadable(f"malformed: a relocation writes to {place:#x}, which is not writable")
        return rows

    def _symbols_of(self, rows: memoryview, machine: _Machine) -> set[int]:
        """Return the numbers of the symbols that relocations name."""
        names = rows.cast("I")
        used = set(names[3::6])
        if max(used) >= (count := self.symbol_count):
            pairs = zip(names[3::6], names[2::6], strict=True)
            used = {number for number, kind in pairs if kind not in machine.without}
            if max(used, default=0) >= count:
                raise Unloadable(f"malformed: a relocation names symbol {max(used)}, of {count}")
        if not any(each.memory for each in self.file.of(TLS)) and machine.threads.intersection(names[2::6]):
            own = [number for number, kind in zip(names[3::6], names[2::6], strict=True) if kind in machine.threads]
            if any(not number or self._symbol(number)[3] for number in own):
                raise Unloadable("it has variables of threads, and no PT_TLS")
        return used - {0}

    def _check_slot(self, place: int, slots: Mapping[int, int | None]) -> None:
        """Check that a slot of an array has the address of code."""
        budget.check()
        address = slots.get(place, 0)
        if place not in slots:
            address = self.unpack(place, "Q")[0]
            if self.file.kind != PROGRAM and _RELR not in self:
                address = 0
        if address is not None:
            check_code(self.file, self.memory, address, "what it calls when it is loaded or ends")

    def _symbol(self, number: int) -> tuple[int, ...]:
        """Return name, info, other, section, value and size of a symbol."""
        return self.unpack(self.value(SYMTAB) + number * _ENTRY, "IBBHQQ")

    def _check_versions_of(self, used: set[int]) -> None:
        """Check the versions of the symbols that relocations name, and that the file finds its own ones."""
        highest = self._highest_version()
        if highest and VERSYM not in self:
            raise Unloadable("it has versions of symbols, and no DT_VERSYM")
        if not used:
            return
        count = max(used) + 1
        table = self.memory.read(self.value(SYMTAB), count * _ENTRY)
        if any(table[:_ENTRY]):
            raise Unloadable("malformed: its first symbol has to be empty")
        kinds, others = table[4::_ENTRY], table[5::_ENTRY]
        looked_up = sorted(number for number in used if kinds[number] >> 4 and others[number] & 3 not in _OWN)
        if VERSYM in self and looked_up:
            versions = memoryview(self.memory.read(self.value(VERSYM), count * 2)).cast("H")
            version = max(versions[number] & 0x7FFF for number in looked_up)
            if version > max(highest, 1) or not highest:
                raise Unloadable(f"malformed: a symbol has version {version}, of {highest}")
        own = (
            number
            for number in looked_up
            if kinds[number] >> 4 == 1 and any(table[number * _ENTRY + 6 : number * _ENTRY + 8])
        )
        for number in islice(own, _MOST_LOOKED_UP):
            name = self._symbol(number)[0]
            if not self._finds(self.memory.text(self.value(STRTAB) + name)):
                raise Unloadable(f"malformed: its table of hashes lacks its own symbol {self.text(name)}")

    @cached_property
    def symbol_count(self) -> int:
        """The number of symbols: of the section at their address, or else as the hash tables have it."""
        address, size = self.value(SYMTAB), _ENTRY if self._wide else 16
        for section in self.file.sections:
            if section.kind == SYMBOLS and section.address == address:
                return section.size // size
        if HASH in self:
            return self.unpack(self.value(HASH), "II")[1]
        if GNU_HASH in self and (count := self._count_hashed()):
            return count
        # Linkers write the names after the symbols.
        return max(0, (self.value(STRTAB) - address) // size)

    @cached_property
    def _hashes(self) -> _Hashes:
        """The head of the GNU hash table. Raises Unloadable: it is in no segment."""
        place = self.value(GNU_HASH)
        buckets, first, words, shift = self.unpack(place, "IIII")
        heads = place + 16 + words * (8 if self._wide else 4)
        return _Hashes(buckets, first, words, shift & 31, place + 16, heads, heads + buckets * 4)

    def _count_hashed(self) -> int:
        """Return the number of symbols by a GNU hash table; 0 if it has none."""
        hashes = self._hashes
        last = max(self.unpack(hashes.heads, f"{hashes.buckets}I"), default=0)
        if last < hashes.first:
            return 0
        place = hashes.chains + (last - hashes.first) * 4
        while not self.unpack(place, "I")[0] & 1:
            last += 1
            place += 4
        return last + 1

    def _highest_version(self) -> int:
        """Return the highest number of a version that the file needs or defines."""
        numbers = [0]
        for place, values in self.chain(VERNEED, "HHIII"):
            numbers += [other & 0x7FFF for _, (_, _, other, _, _) in self.following(place + values[3], "IHHII")]
        numbers += [values[2] & 0x7FFF for _, values in self.chain(VERDEF, "HHHHIII")]
        return max(numbers)

    def chain(self, tag: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and values of each structure that an entry leads to: see :meth:`following`."""
        if tag in self:
            yield from self.following(self.value(tag), layout)

    def following(self, place: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and values of structures; the last value of each is the distance to the next one, 0 to end.

        Raises:
            Unloadable: one is in no segment.
        """
        while True:
            values = self.unpack(place, layout)
            yield place, values
            if not values[-1]:
                return
            place += values[-1]

    def _finds(self, name: bytes) -> bool:
        """Return whether the loader finds a symbol of the file by its tables of hashes."""
        if GNU_HASH not in self:
            return HASH in self
        hashes = self._hashes
        if not hashes.buckets:
            return False
        value = gnu_hash(name)
        word = self.unpack(hashes.filter + (value // 64 & hashes.words - 1) * 8, "Q")[0]
        if not (word >> value % 64) & (word >> (value >> hashes.shift) % 64) & 1:
            return False
        number = self.unpack(hashes.heads + value % hashes.buckets * 4, "I")[0]
        while number:
            chained = self.unpack(hashes.chains + (number - hashes.first) * 4, "I")[0]
            if chained | 1 == value | 1 and self.memory.text(self.value(STRTAB) + self._symbol(number)[0]) == name:
                return True
            if chained & 1:
                return False
            number += 1
        return False


def is_static(content: IO[bytes], file: ElfHeader, size: int) -> bool:
    """Return whether a file without an interpreter is a program that loads itself, which the kernel maps.

    Raises:
        Unloadable: it is a program that needs libraries.
    """
    memory = Memory(content)
    memory.put(0, up(size), 0, READ)
    try:
        entries = Dynamic(memory, file, file.of(DYNAMIC)[-1].start)
    except Unloadable:
        return False
    is_program = bool(entries.value(FLAGS_1) & _PIE_1)
    if is_program and entries.needed:
        raise Unloadable("it needs libraries, and names no loader")
    return is_program


def gnu_hash(name: bytes) -> int:
    """Return a symbol's hash in a GNU hash table (bminor/glibc glibc-2.36, elf/dl-lookup.c, `_dl_new_hash`)."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """Return the hash of a version's name (System V ABI, `ELF hash`)."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def _slots(rows: memoryview, arrays: Sequence[tuple[int, int]], relative: int) -> dict[int, int | None]:
    """Return the addresses that relocations write to arrays, None where a symbol decides."""
    if not arrays:
        return {}
    low, high = min(start for start, _ in arrays), max(start + size for start, size in arrays)
    words = rows.cast("Q")
    numbers = [number for number, place in enumerate(words[0::3]) if low <= place < high]
    return {
        words[number * 3]: words[number * 3 + 2] if words[number * 3 + 1] == relative else None for number in numbers
    }
