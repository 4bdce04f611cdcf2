"""The dynamic section of an ELF file, as glibc's loader reads it from memory: what it refuses, or crashes by.

Sources: bminor/glibc glibc-2.36, elf/get-dynamic-info.h:29 (`elf_get_dynamic_info`), elf/dl-setup_hash.c:23,
elf/do-rel.h:43 (`elf_dynamic_do_Rel`), elf/dynamic-link.h (`_ELF_DYNAMIC_DO_RELOC`, `elf_dynamic_do_relr`),
elf/dl-reloc-static-pie.c (`_dl_relocate_static_pie`), sysdeps/x86_64/dl-machine.h:238 and
sysdeps/aarch64/dl-machine.h:166 (`elf_machine_rela`), elf/dl-init.c (`call_init`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import IO, Final, NamedTuple

from containers import budget
from containers.image.elf.header import AARCH64, DYNAMIC, OF_DYNAMIC, PROGRAM, SYMBOLS, TLS, X86_64, ElfHeader
from containers.image.elf.loadable import check_code
from containers.image.elf.memory import READ, RUN, WRITE, Memory, Unloadable, up

Tag = IntEnum("Tag", {
    "NEEDED": 1, "PLTRELSZ": 2, "PLTGOT": 3, "HASH": 4, "STRTAB": 5, "SYMTAB": 6, "RELA": 7, "RELASZ": 8, "RELAENT": 9,
    "STRSZ": 10, "INIT": 12, "FINI": 13, "SONAME": 14, "RPATH": 15, "REL": 17, "PLTREL": 20, "TEXTREL": 22,
    "JMPREL": 23, "BIND_NOW": 24, "INIT_ARRAY": 25, "FINI_ARRAY": 26, "INIT_ARRAYSZ": 27, "FINI_ARRAYSZ": 28,
    "RUNPATH": 29, "FLAGS": 30, "RELRSZ": 35, "RELR": 36, "RELRENT": 37, "GNU_HASH": 0x6FFFFEF5, "VERSYM": 0x6FFFFFF0,
    "RELACOUNT": 0x6FFFFFF9, "FLAGS_1": 0x6FFFFFFB, "VERDEF": 0x6FFFFFFC, "VERNEED": 0x6FFFFFFE,
})  # fmt: skip
"""Entries of a dynamic section, without the DT_ of their names (System V ABI, chapter 5)."""
_HAS_TEXTREL, _NOW, _NOW_1, _PIE_1 = 4, 8, 1, 0x08000000
"""Flags, the last two of DT_FLAGS_1."""
_PAIRS: Final = (
    (Tag.RELA, Tag.RELASZ),
    (Tag.RELA, Tag.RELAENT),
    (Tag.RELR, Tag.RELRENT),
    (Tag.RELR, Tag.RELRSZ),
    (Tag.JMPREL, Tag.PLTRELSZ),
    (Tag.JMPREL, Tag.PLTREL),
    (Tag.PLTREL, Tag.JMPREL),
    (Tag.INIT_ARRAY, Tag.INIT_ARRAYSZ),
    (Tag.FINI_ARRAY, Tag.FINI_ARRAYSZ),
)
"""Entries that the loader takes to come together: the first, and the one that it needs."""
_VALUES: Final = ((Tag.RELA, Tag.RELAENT, 24), (Tag.RELR, Tag.RELRENT, 8), (Tag.PLTREL, Tag.PLTREL, Tag.RELA))
"""Beside the first entry, the values of the second one that glibc's loader asserts in a file of 64 bits, for a
processor whose relocations have addends."""
_REQUIRED: Final = (
    (Tag.STRTAB, (Tag.NEEDED, Tag.SONAME, Tag.VERNEED, Tag.VERDEF)),
    (Tag.SYMTAB, (Tag.RELA, Tag.REL, Tag.JMPREL)),
)
"""Tables, and the entries that need them."""
_TABLES: Final = (Tag.STRTAB, Tag.SYMTAB, Tag.VERSYM, Tag.VERNEED, Tag.RELA, Tag.JMPREL, Tag.RELR)
"""Tables that linkers write as sections of their own."""


class _Machine(NamedTuple):
    """The relocations of a processor: all, those without a symbol, those of variables of threads, and of functions.

    The first one without a symbol is for an address in the file. ``chosen`` is for what a function chooses.
    """

    types: frozenset[int]
    without: tuple[int, ...]
    chosen: int
    threads: frozenset[int]
    functions: frozenset[int]


_MACHINES: Final[Mapping[int, _Machine]] = {
    X86_64: _Machine(
        frozenset({0, 1, 2, 5, 6, 7, 8, 10, 16, 17, 18, 32, 33, 36, 37, 38}),
        (8, 38, 0),
        37,
        frozenset({16, 17, 18, 36}),
        frozenset({7, 36, 37}),
    ),
    AARCH64: _Machine(
        frozenset({0, 257, 258, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032}),
        (1027, 0),
        1032,
        frozenset({1028, 1029, 1030, 1031}),
        frozenset({1026, 1031, 1032}),
    ),
}
"""What `elf_machine_rela` handles, by the number of the machine."""


_RELOCATIONS: Final = ((Tag.RELA, Tag.RELASZ), (Tag.JMPREL, Tag.PLTRELSZ))
"""Tables of relocations, and the entries of their sizes."""
_ENTRY: Final = 24
"""Bytes of a relocation or symbol of 64 bits."""
_OWN: Final = {1, 2}
"""Visibilities of symbols that no other file may define."""


class Dynamic:
    """The entries of a dynamic section, of which the last one of each tag counts, as in the loader.

    The last PT_DYNAMIC of the header ``file`` counts. ``start`` is the section's address, if not the one stated there.

    Raises Unloadable: the section cannot be read.
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
            if tag == Tag.NEEDED:
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
        return self.memory.text(self.value(Tag.STRTAB) + offset).decode(errors="replace")

    def unpack(self, place: int, layout: str) -> tuple[int, ...]:
        """Return the values at an address. Raises Unloadable: it is in no segment."""
        shape = self._order + layout
        return struct.unpack(shape, self.memory.read(place, struct.calcsize(shape)))

    def check(self, *, is_program: bool) -> None:
        """Check what a process does with the entries. Raises Unloadable: it crashes or gives up."""
        if Tag.STRTAB not in self and Tag.SYMTAB not in self:
            raise Unloadable("it has neither DT_STRTAB nor DT_SYMTAB")
        for tag, users in _REQUIRED:
            if tag not in self and any(user in self for user in users):
                raise Unloadable(f"it has no DT_{tag.name}")
        for tag, needed in _PAIRS:
            if tag in self and needed not in self:
                raise Unloadable(f"it has DT_{tag.name} without DT_{needed.name}")
        if self._segment.flags & WRITE and not self.memory.holds(self._segment.address, self._length, WRITE):
            raise Unloadable("its dynamic section is in memory that is read-only")
        for tag in (Tag.INIT, Tag.FINI):
            if tag in self:
                check_code(self.file, self.memory, self.value(tag), f"its DT_{tag.name}")
        if self._machine:
            self._check_wide(self._machine, is_program=is_program)

    def _check_wide(self, machine: _Machine, *, is_program: bool) -> None:
        if Tag.GNU_HASH in self:
            self._check_hashes(is_program=is_program)
        if is_program and not self._binds_now and Tag.JMPREL in self:
            self._check_lazy(machine)
        arrays = ((Tag.INIT_ARRAY, Tag.INIT_ARRAYSZ, 0xFFFFFFFF), (Tag.FINI_ARRAY, Tag.FINI_ARRAYSZ, -1))
        called = ((self.value(tag), (self.value(size) // 8 & most) * 8) for tag, size, most in arrays if tag in self)
        self.relocate([(start, size) for start, size in called if size])

    @property
    def _machine(self) -> _Machine | None:
        return _MACHINES.get(self.file.machine) if self._wide and self._order == "<" else None

    @property
    def _binds_now(self) -> bool:
        """Whether functions of others are looked up before the start, and not when they are called."""
        return bool(Tag.BIND_NOW in self or self.value(Tag.FLAGS) & _NOW or self.value(Tag.FLAGS_1) & _NOW_1)

    def _check_hashes(self, *, is_program: bool) -> None:
        """Check the table of hashes, which each search for a symbol reads, and that of a program for each symbol."""
        words, offset, heads, chains = self._hashes()
        if words.bit_count() != 1:
            raise Unloadable(f"malformed: its table of hashes has {words} words, which is no power of two")
        numbers = set(heads if is_program else ()) - {0}
        first, last = min(numbers, default=0), max(numbers, default=-1)
        # Also before the table, where that is mapped.
        if not self.memory.holds(chains + (first - offset) * 4, (last + 1 - first) * 4, READ | WRITE | RUN):
            for number in numbers:
                self.memory.read(chains + (number - offset) * 4, 4)

    def _check_lazy(self, machine: _Machine) -> None:
        """Check the table by which functions are looked up when they are called.

        It begins with the address of the dynamic section. The loader does not read that, and a repair may move the
        section alone, as of `clp` in casadi 3.8.2. Then the place of the first function follows the first three words.
        """
        place = self.value(Tag.PLTGOT)
        rows = memoryview(self.memory.read(self.value(Tag.JMPREL), -(-self.value(Tag.PLTRELSZ) // _ENTRY) * _ENTRY))
        if not self.memory.holds(place, 24, WRITE) or (
            machine is _MACHINES[X86_64]
            and self.unpack(place, "Q")[0] != self._segment.address
            and place + 24 != min(rows.cast("Q")[0::3], default=0)
        ):
            raise Unloadable(f"malformed: its DT_PLTGOT is {place:#x}, which is no table of functions")
        # The loader would resolve a function before its start, and move its address once more.
        ends = [self.value(table) + self.value(size) for table, size in _RELOCATIONS]
        if self.value(Tag.RELA) <= self.value(Tag.JMPREL) < ends[0] != ends[1]:
            raise Unloadable("malformed: its DT_RELA reaches into its DT_JMPREL")
        if unknown := set(rows.cast("I")[2::6]) - machine.functions:
            raise Unloadable(f"malformed: it has a relocation of type {min(unknown)} for a function")

    def relocate(self, arrays: Sequence[tuple[int, int]] = ()) -> None:
        """Check what a process does with the relocations, its loader's or its own. Raises Unloadable: it crashes.

        ``arrays`` are the places and sizes of those whose functions the loader calls.
        """
        machine = self._machine
        if not machine:
            return
        for base, tag, value in _VALUES:
            if base in self and self.value(tag) != value:
                raise Unloadable(f"malformed: its DT_{tag.name} is {self.value(tag)}, which has to be {value}")
        self._check_tables()
        self._check_written(self._places_of_relr())
        slots: dict[int, int | None] = {}
        used: set[int] = set()
        for table, size in _RELOCATIONS:
            if table in self and self.value(size):
                relative = self.value(Tag.RELACOUNT) if table == Tag.RELA else 0
                rows = self._relocations(table, -(-self.value(size) // _ENTRY), relative, machine)
                used |= self._symbols_of(rows, machine)
                slots |= _slots(rows, arrays, machine.without[0])
        for start, length in arrays:
            for place in range(start, start + length, 8):
                self._check_slot(place, slots)
        self._check_versions_of(used)

    def _check_tables(self) -> None:
        """Check that tables begin where their sections do, in a file whose sections have the place of this one.

        The loader reads no sections, and those of a file may be stale. A linker's script may put the relocations of
        functions into the section of the others.
        """
        if not any(each.kind == OF_DYNAMIC and each.address == self._segment.address for each in self.file.sections):
            return
        whole = self.file.section_at(self.value(Tag.RELA))
        for tag in _TABLES:
            section = self.file.section_at(self.value(tag))
            if tag not in self or not section or (tag == Tag.JMPREL and section == whole):
                continue
            if section.address != self.value(tag):
                name = self.file.name(section).decode(errors="replace")
                raise Unloadable(f"malformed: its DT_{tag.name} is {self.value(tag):#x}, within its section {name}")

    def _relocations(self, table: int, count: int, relative: int, machine: _Machine) -> memoryview:
        """Return a table of relocations, whose types and places are checked."""
        rows = memoryview(self.memory.read(self.value(table), count * _ENTRY))
        types = rows.cast("I")[2::6]
        kinds = set(types)
        if unknown := kinds - machine.types:
            raise Unloadable(f"malformed: it has a relocation of type {min(unknown)}, which its processor has not")
        if relative > count or set(types[:relative]) - {machine.without[0]}:
            raise Unloadable(f"malformed: not all of its first {relative} relocations are relative ones")
        if machine.chosen in kinds:
            for kind, chooser in zip(types, rows.cast("Q")[2::3], strict=True):
                if kind == machine.chosen:
                    check_code(self.file, self.memory, chooser, "what chooses a function")
        places = rows.cast("Q")[0::3]
        self._check_written(
            [place for place, kind in zip(places, types, strict=True) if kind] if 0 in kinds else places
        )
        return rows

    def _check_written(self, places: Sequence[int] | memoryview) -> None:
        if not len(places) or self.memory.holds(min(places), max(places) + 8 - min(places), WRITE):
            return
        writable = 0 if Tag.TEXTREL in self or self.value(Tag.FLAGS) & _HAS_TEXTREL else WRITE
        for place in set(places):
            budget.check()
            if not self.memory.holds(place, 8, writable):
                raise Unloadable(f"malformed: a relocation writes to {place:#x}, which is not writable")

    def _places_of_relr(self) -> list[int]:
        """Return the places in DT_RELR, of each map of 63 words the last one."""
        places, following = [], 0
        size = -(-self.value(Tag.RELRSZ) // 8) * 8 if Tag.RELR in self else 0
        for word in memoryview(self.memory.read(self.value(Tag.RELR), size)).cast("Q"):
            budget.check()
            if word != 1:  # an empty map, with which linkers fill the table up
                places.append(following + 8 * (word.bit_length() - 2) if word & 1 else word)
            following = following + 63 * 8 if word & 1 else word + 8
        return places

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
            if self.file.kind != PROGRAM and Tag.RELR not in self:
                address = 0
        if address is not None and not self.file.is_unnamed(place):
            check_code(self.file, self.memory, address, "what it calls when it is loaded or ends")

    def _symbol(self, number: int) -> tuple[int, ...]:
        """Return name, info, other, section, value and size of a symbol."""
        return self.unpack(self.value(Tag.SYMTAB) + number * _ENTRY, "IBBHQQ")

    def _check_versions_of(self, used: set[int]) -> None:
        """Check the versions of the symbols that relocations name."""
        highest = self._highest_version()
        if highest and Tag.VERSYM not in self:
            raise Unloadable("it has versions of symbols, and no DT_VERSYM")
        if not used:
            return
        count = max(used) + 1
        table = self.memory.read(self.value(Tag.SYMTAB), count * _ENTRY)
        kinds, others = table[4::_ENTRY], table[5::_ENTRY]
        looked_up = sorted(number for number in used if kinds[number] >> 4 and others[number] & 3 not in _OWN)
        if Tag.VERSYM in self and looked_up:
            versions = memoryview(self.memory.read(self.value(Tag.VERSYM), count * 2)).cast("H")
            version = max(versions[number] & 0x7FFF for number in looked_up)
            if version > max(highest, 1) or not highest:
                raise Unloadable(f"malformed: a symbol has version {version}, of {highest}")

    @cached_property
    def symbol_count(self) -> int:
        """The number of symbols: of the section at their address, or else as the hash tables have it."""
        address, size = self.value(Tag.SYMTAB), _ENTRY if self._wide else 16
        for section in self.file.sections:
            if section.kind == SYMBOLS and section.address == address:
                return section.size // size
        if Tag.HASH in self:
            return self.unpack(self.value(Tag.HASH), "II")[1]
        if Tag.GNU_HASH in self and (count := self._count_hashed()):
            return count
        # Linkers write the names after the symbols.
        return max(0, (self.value(Tag.STRTAB) - address) // size)

    def _hashes(self) -> tuple[int, int, tuple[int, ...], int]:
        """Return the GNU hash table: words of its filter, its first symbol, the heads of its chains, and their place.

        Raises Unloadable: it is in no segment.
        """
        place = self.value(Tag.GNU_HASH)
        buckets, first, words, _ = self.unpack(place, "IIII")
        place += 16 + words * (8 if self._wide else 4)
        return words, first, self.unpack(place, f"{buckets}I"), place + buckets * 4

    def _count_hashed(self) -> int:
        """Return the number of symbols by a GNU hash table; 0 if it has none."""
        _, first, heads, chains = self._hashes()
        last = max(heads, default=0)
        if last < first:
            return 0
        place = chains + (last - first) * 4
        while not self.unpack(place, "I")[0] & 1:
            last += 1
            place += 4
        return last + 1

    def _highest_version(self) -> int:
        """Return the highest number of a version that the file needs or defines."""
        numbers = [0]
        for place, values in self.chain(Tag.VERNEED, "HHIII"):
            numbers += [other & 0x7FFF for _, (_, _, other, _, _) in self.following(place + values[3], "IHHII")]
        numbers += [values[2] & 0x7FFF for _, values in self.chain(Tag.VERDEF, "HHHHIII")]
        return max(numbers)

    def chain(self, tag: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and values of each structure that an entry leads to: see :meth:`following`."""
        if tag in self:
            yield from self.following(self.value(tag), layout)

    def following(self, place: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and values of structures; the last value of each is the distance to the next one, 0 to end.

        Raises Unloadable: one is in no segment.
        """
        while True:
            values = self.unpack(place, layout)
            yield place, values
            if not values[-1]:
                return
            place += values[-1]


def is_static(content: IO[bytes], file: ElfHeader, size: int) -> bool:
    """Return whether a file without an interpreter is a program that loads itself, which the kernel maps.

    Raises Unloadable: it is a program that needs libraries.
    """
    memory = Memory(content)
    memory.put(0, up(size), 0, READ)
    try:
        entries = Dynamic(memory, file, file.of(DYNAMIC)[-1].start)
    except Unloadable:
        return False
    is_program = bool(entries.value(Tag.FLAGS_1) & _PIE_1)
    if is_program and entries.needed:
        raise Unloadable("it needs libraries, and names no loader")
    return is_program


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
