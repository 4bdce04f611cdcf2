"""An ELF file: what the loader and the GPU's driver read of it (System V ABI; Linux Standard Base, symbol versioning).

Tables are unpacked in bulk: pyelftools takes ten milliseconds for a file of Debian's, and an image has thousands; LIEF
holds whole files in memory. As in the loader, the dynamic segment counts, since section headers may be missing.
"""

from __future__ import annotations

import re
import struct
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import SEEK_END, BytesIO
from itertools import islice
from typing import IO, Final, NamedTuple

from containers import budget
from containers.errors import SlipwayError
from containers.image.binaries import plugin_table
from containers.image.extensions import numpy_api
from containers.image.extensions.numpy_api import NumpyBuild
from containers.image.gpu import gpu_code
from containers.image.gpu.gpu_code import GpuCode

MAGIC: Final = b"\x7fELF"
_IN_MEMORY: Final = 16 << 20
"""Bytes of the largest file that is held in memory; larger ones are in an unnamed temporary file, one at a time."""
_LARGEST: Final = 8 << 30
"""Bytes of the largest file that is read."""
_CHUNK: Final = 1 << 20
_AT_ONCE: Final = 1 << 12
"""Symbols between two looks at the budget."""
_MOST_SECTION_NAME: Final = 256
"""Bytes of a section's name that are compared."""

_OBJECT, _PROGRAM, _SHARED = 1, 2, 3
"""Types of files: the second and third are loaded."""
_LOAD, _DYNAMIC, _INTERPRETER, _TLS, _STACK = 1, 2, 3, 7, 0x6474E551
"""Types of segments; the last one has the rights of the stack alone."""
_OTHER_SYSTEMS: Final = {2, 6, 9, 12}
"""Systems that a file may name as its own: NetBSD, Solaris, FreeBSD, OpenBSD. Linux' loaders refuse their libraries
(bminor/glibc 010d205, elf/dl-load.c, `open_verify`), which packages of Node.js have beside those for Linux."""
_EXECUTABLE: Final = 1
_LARGEST_PAGE: Final = 64 << 10
"""Bytes of the largest page of a kernel that containers run on: of aarch64."""
_NO_CONTENT, _SYMBOLS, _ALLOCATED = 8, 11, 2
"""Types of sections, and a flag."""
_READ_ONLY_DATA: Final = b".rodata"
_MOST_HELD: Final = 16
"""Names of other libraries that are read from the data of one."""
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_FLAGS, _GNU_HASH, _FLAGS_1, _VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = (
    *(30, 0x6FFFFEF5, 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF),
)
_NODEFLIB: Final = 0x800
_STATIC_TLS: Final = 0x10
_WEAK_VERSION: Final = 2
_LOCAL, _WEAK = 0, 2

_LOADER: Final = re.compile(r"ld(-linux[^/]*|64|)\.so\.\d+")
"""Sonames of glibc's loader."""
_SYSTEM_FOLDERS: Final = re.compile(rb"(?:/(?:usr/)?lib[\w/-]{0,99}/\0){2,}")
"""The folders that glibc's loader searches last, as it holds them: `system_dirs` of elf/dl-load.c."""

_LARGEST_LOADER: Final = 4 << 20
"""Bytes of a loader in which its folders are searched."""


class ElfMachine(NamedTuple):
    """What an ELF file runs on: ``e_machine``, and the width of its addresses in bits."""

    number: int
    bits: int

    def __str__(self) -> str:
        """Return the usual name."""
        name = _MACHINES.get(self.number, f"machine {self.number}")
        return name if self.bits == 64 or self.number in {3, 40} else f"{name} ({self.bits} bits)"


X86_64: Final = ElfMachine(62, 64)
AARCH64: Final = ElfMachine(183, 64)
I386: Final = ElfMachine(3, 32)
ARM: Final = ElfMachine(40, 32)
PLATFORM_MACHINES: Final[Mapping[str, ElfMachine]] = {
    "amd64": X86_64,
    "arm64": AARCH64,
    "386": I386,
    "arm": ARM,
    "ppc64le": ElfMachine(21, 64),
    "s390x": ElfMachine(22, 64),
    "riscv64": ElfMachine(243, 64),
}
"""Machines by the architecture of a platform (image-spec, config.md; Go's GOARCH)."""
_UNKNOWN: Final = ElfMachine(0, 0)
_CUDA: Final = 190
_MACHINES: Final[Mapping[int, str]] = {
    3: "i386",
    8: "mips",
    20: "powerpc",
    21: "powerpc64",
    22: "s390x",
    40: "arm",
    62: "x86-64",
    183: "aarch64",
    _CUDA: "NVIDIA GPU",
    224: "AMD GPU",
    243: "riscv",
    247: "bpf",
    258: "loongarch",
}
"""Names by ``e_machine`` (binutils, include/elf/common.h)."""


class Version(NamedTuple):
    """A symbol version that a file needs of a library; a ``weak`` one may be missing."""

    library: str
    name: str
    weak: bool


def symbol_hash(name: bytes) -> int:
    """Return a symbol's hash, the same in each process: Python's own differs.

    Images have millions of symbols, and two checksums take half of a cryptographic hash's time.
    """
    return zlib.crc32(name) << 32 | zlib.adler32(name)


@dataclass(frozen=True, slots=True)
class Binary:
    """What is needed of one ELF file.

    ``kind`` is ``program``, ``library``, ``static`` for a file without dynamic segment, or ``other`` for what no loader
    reads: object files, debug symbols, machine code of GPUs. ``rpath`` and ``runpath`` are None where there is none.
    ``provided`` are the versions that its symbols have, None for a file without any. ``defined`` has a hash of the name
    of each defined symbol, ``undefined`` the names of those that another file must define, each with a zero byte.
    ``holds`` are names of libraries that it opens at run time, as `plugins.toml` has them, and ``cuda`` is the release
    line of CUDA in its data. ``system_folders`` are those of a loader. ``page`` is the largest page in bytes for its
    segments, ``alignment`` the least alignment of one of them. ``executable_stack`` is whether it asks for an
    executable stack, ``static_tls`` the bytes that each thread must have for it from the start. ``numpy`` is the NumPy
    that it is built for, None if it calls none. ``problem`` says why the rest is not known.
    """

    size: int
    machine: ElfMachine = _UNKNOWN
    kind: str = "other"
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    only_own_folders: bool = False
    versions: tuple[Version, ...] = ()
    provided: frozenset[str] | None = None
    defined: array[int] = field(default_factory=lambda: array("Q"))
    undefined: bytes = b""
    gpu_code: tuple[GpuCode, ...] = ()
    holds: tuple[str, ...] = ()
    cuda: str = ""
    system_folders: tuple[str, ...] = ()
    page: int = _LARGEST_PAGE
    alignment: int = _LARGEST_PAGE
    executable_stack: bool = False
    static_tls: int = 0
    numpy: NumpyBuild | None = None
    problem: str = ""

    @property
    def loaded(self) -> bool:
        """Whether a loader reads it."""
        return self.kind in {"program", "library"}


def read(file: IO[bytes], size: int, start: bytes = b"") -> Binary:
    """Read an ELF file of ``size`` bytes from a stream, whose ``start`` is read; a malformed one has a ``problem``.

    Raises:
        SlipwayError: a large file cannot be held in a temporary one.
    """
    if size > _LARGEST:
        return Binary(size, problem=f"{size} bytes, at most {_LARGEST} are read")
    with _seekable(file, size, start) as content:
        try:
            return _read(content, size)
        except (ValueError, IndexError, OverflowError, struct.error) as error:
            return Binary(size, problem=f"malformed: {error}")


@contextmanager
def _seekable(file: IO[bytes], size: int, start: bytes) -> Iterator[IO[bytes]]:
    if size <= _IN_MEMORY:
        yield BytesIO(start + file.read())
        return
    with ExitStack() as stack:
        with _explained(size):
            content = stack.enter_context(tempfile.TemporaryFile(prefix="slipway-"))
        while chunk := start or file.read(_CHUNK):
            start = b""
            with _explained(size):
                content.write(chunk)
                content.flush()
        yield content


@contextmanager
def _explained(size: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        folder = tempfile.gettempdir()
        raise SlipwayError(f"{folder}: no room for a library of {size} bytes: {error.strerror}; set TMPDIR") from None


class _Segment(NamedTuple):
    kind: int
    start: int
    address: int
    size: int
    flags: int
    alignment: int
    memory: int


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    start: int
    size: int


class _Header:
    """The header of an ELF file, its segments and sections."""

    def __init__(self, content: IO[bytes]) -> None:
        start = _bytes(content, 0, 16)
        if start[4] not in {1, 2} or start[5] not in {1, 2}:
            raise ValueError(f"class {start[4]}, byte order {start[5]}")
        self.wide, self.order, self.abi = start[4] == 2, "<" if start[5] == 1 else ">", start[8]
        shape = struct.Struct(self.order + ("HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH"))
        values = shape.unpack(_bytes(content, 16, shape.size))
        self.of_other_system = start[7] in _OTHER_SYSTEMS
        self.kind, number, _, _, segments, sections, self.flags, _, segment, count, section, parts, names = values
        self.machine = ElfMachine(number, 64 if self.wide else 32)
        shape = struct.Struct(self.order + ("IIQQ8xQQQ" if self.wide else "III4xIIII"))
        rows = _table(content, segments, segment, count, shape)
        order = (0, 2, 3, 4, 1, 6, 5) if self.wide else (0, 1, 2, 3, 5, 6, 4)
        self.segments = [_Segment(*(row[place] for place in order)) for row in rows]
        self.sections: list[_Section] = []
        self._names = b""
        with suppress(ValueError, struct.error):  # the loader does without sections
            shape = struct.Struct(self.order + ("IIQQQQ24x" if self.wide else "IIIIII16x"))
            self.sections = [_Section(*values) for values in _table(content, sections, section, parts, shape)]
            if names < len(self.sections):
                self._names = _bytes(content, self.sections[names].start, self.sections[names].size)

    def segment(self, kind: int) -> _Segment | None:
        """Return the first segment of a kind, if there is one."""
        return next((segment for segment in self.segments if segment.kind == kind), None)

    def section_name(self, section: _Section) -> bytes:
        """Return a section's name."""
        return self._names[section.name : section.name + _MOST_SECTION_NAME].partition(b"\0")[0]


def _table(content: IO[bytes], start: int, size: int, count: int, shape: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Yield the rows of a table of headers, of which each has ``size`` bytes."""
    if count and size < shape.size:
        raise ValueError(f"headers of {size} bytes, expected {shape.size}")
    table = _bytes(content, start, size * count)
    return (shape.unpack_from(table, row * size) for row in range(count))


def _read(content: IO[bytes], size: int) -> Binary:
    header = _Header(content)
    machine = header.machine
    if machine.number == _CUDA:
        return Binary(size, machine, gpu_code=(gpu_code.of_cubin(header.flags, header.abi),))
    loads = [segment for segment in header.segments if segment.kind == _LOAD]
    dynamic = header.segment(_DYNAMIC)
    interpreter = header.segment(_INTERPRETER)
    is_foreign = header.of_other_system and interpreter is None
    if header.kind not in {_PROGRAM, _SHARED} or (dynamic and (is_foreign or _without_content(header, dynamic))):
        return Binary(size, machine)
    end = max((segment.start + segment.size for segment in loads), default=0)
    if end > size:
        return Binary(size, machine, "library", problem=f"truncated: {size} bytes, its segments end at {end}")
    codes = tuple(sorted(set(_gpu_code(header, content, size))))
    mapped = _mapped(loads)
    if dynamic is None:
        return Binary(size, machine, "static", gpu_code=codes, page=mapped[0])
    named = _bytes(content, interpreter.start, interpreter.size).rstrip(b"\0") if interpreter else b""
    tables = _Tables(content, header, loads, dynamic)
    soname = tables.name(_SONAME)
    defined, undefined = tables.symbols()
    return Binary(
        size,
        machine,
        # A library that can be run has an interpreter as well: libc.so.6.
        "program" if header.kind == _PROGRAM or (interpreter and not soname) else "library",
        named.decode(errors="replace"),
        soname,
        tuple(tables.names(_NEEDED)),
        tables.name(_RPATH) if _RPATH in tables.tags else None,
        tables.name(_RUNPATH) if _RUNPATH in tables.tags else None,
        bool(tables.tags.get(_FLAGS_1, [0])[0] & _NODEFLIB),
        tuple(tables.versions_needed()),
        tables.versions_provided(),
        defined,
        undefined,
        codes,
        *_held(header, content, soname),
        _system_folders(content) if _LOADER.fullmatch(soname) else (),
        *mapped,
        _has_executable_stack(header),
        _static_tls(header, tables.tags.get(_FLAGS, [0])[0]),
        numpy_api.build(_read_only_data(header, content)) if numpy_api.NEEDED in undefined else None,
    )


def _mapped(loads: Iterable[_Segment]) -> tuple[int, int]:
    """Return the largest page that segments can be mapped by, and the least alignment of one."""
    used = [segment for segment in loads if segment.size]
    apart = 0
    for segment in used:
        apart |= segment.address - segment.start
    page = min(apart & -apart or _LARGEST_PAGE, _LARGEST_PAGE)
    return page, min((segment.alignment for segment in used if segment.alignment), default=_LARGEST_PAGE)


def _has_executable_stack(header: _Header) -> bool:
    """Return whether a file asks for it; one that does not say, as compilers of 2003, asks but on aarch64.

    Source: bminor/glibc 04277e0, sysdeps/aarch64/stackinfo.h and sysdeps/x86_64/stackinfo.h (`DEFAULT_STACK_PERMS`).
    """
    flags = [segment.flags for segment in header.segments if segment.kind == _STACK]
    return bool(flags[-1] & _EXECUTABLE) if flags else header.machine != AARCH64


def _static_tls(header: _Header, flags: int) -> int:
    return sum(each.memory for each in header.segments if each.kind == _TLS and flags & _STATIC_TLS)


def _without_content(header: _Header, dynamic: _Segment) -> bool:
    """Return whether a file has debug symbols only: its sections then have no content."""
    return any(
        section.kind == _NO_CONTENT and section.address == dynamic.address and section.flags & _ALLOCATED
        for section in header.sections
        if header.section_name(section) == b".dynamic"
    )


def _gpu_code(header: _Header, content: IO[bytes], size: int) -> Iterator[GpuCode]:
    for start, end in _parts(header, gpu_code.SECTION):
        yield from gpu_code.read(content, start, min(end, size))


def _parts(header: _Header, name: bytes) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of the sections of a name, each byte once: tens of thousands of them may overlap."""
    read = 0
    for section in sorted(header.sections, key=lambda section: section.start):
        end = section.start + section.size
        if section.kind != _NO_CONTENT and end > read and header.section_name(section) == name:
            yield max(section.start, read), end
            read = end


def _held(header: _Header, content: IO[bytes], soname: str) -> tuple[tuple[str, ...], str]:
    """Return what an opener of plugins has in its read-only data: names of other libraries, and its CUDA."""
    row = plugin_table.opener(soname)
    names: dict[str, None] = {}
    cuda = ""
    if row and row.holds_names:
        for data in _read_only_data(header, content):
            names.update(dict.fromkeys(islice(row.held_in(data), _MOST_HELD)))
            cuda = cuda or row.cuda_in(data)
    return tuple(names), cuda


def _read_only_data(header: _Header, content: IO[bytes]) -> Iterator[bytes]:
    for start, end in _parts(header, _READ_ONLY_DATA):
        with suppress(ValueError):  # the loader does without sections
            yield _bytes(content, start, end - start)


def _system_folders(content: IO[bytes]) -> tuple[str, ...]:
    content.seek(0)
    match = _SYSTEM_FOLDERS.search(content.read(_LARGEST_LOADER))
    return tuple(match.group().decode().rstrip("\0").split("\0")) if match else ()


def _bytes(content: IO[bytes], start: int, length: int) -> bytes:
    """Return a part of a file. Raises ValueError: it ends after the file."""
    budget.check()  # tables name each other
    if start + length > content.seek(0, SEEK_END):
        raise ValueError(f"a table at {start} ends after the file")
    content.seek(start)
    return content.read(length)


class _Tables:
    """The tables that a dynamic segment names."""

    def __init__(self, content: IO[bytes], header: _Header, loads: list[_Segment], dynamic: _Segment) -> None:
        self._content, self._header, self._loads = content, header, loads
        self._order, self._wide = header.order, header.wide
        self.tags: dict[int, list[int]] = {}
        pairs = struct.Struct(self._order + ("QQ" if self._wide else "II"))
        table = _bytes(content, dynamic.start, dynamic.size)
        for tag, value in pairs.iter_unpack(table[: len(table) // pairs.size * pairs.size]):
            if not tag:
                break
            self.tags.setdefault(tag, []).append(value)
        self._strings = b""
        if _STRTAB in self.tags:
            self._strings = _bytes(content, self._offset(self.tags[_STRTAB][0]), self.tags.get(_STRSZ, [0])[0])

    def name(self, tag: int) -> str:
        """Return the name of a tag; empty without one."""
        return next(self.names(tag), "")

    def names(self, tag: int) -> Iterator[str]:
        """Yield the names of a tag."""
        for offset in self.tags.get(tag, []):
            yield self._string(offset)

    def versions_needed(self) -> Iterator[Version]:
        """Yield the symbol versions that the file needs of others."""
        for place, (_, count, file, first, _) in self._chain(_VERNEED, _VERNEEDNUM, "HHIII"):
            library = self._string(file)
            part = place + first
            for _ in range(count):
                _, flags, _, name, step = self._unpack(part, "IHHII")
                yield Version(library, self._string(name), bool(flags & _WEAK_VERSION))
                if not step:
                    break
                part += step

    def versions_provided(self) -> frozenset[str] | None:
        """Return the symbol versions that the file defines."""
        if _VERDEF not in self.tags:
            return None
        names = set()
        for place, (_, _, _, _, _, first, _) in self._chain(_VERDEF, _VERDEFNUM, "HHHHIII"):
            names.add(self._string(self._unpack(place + first, "II")[0]))
        return frozenset(names)

    def symbols(self) -> tuple[array[int], bytes]:
        """Return hashes of the names of defined symbols, and the names of undefined ones that are not weak."""
        defined: array[int] = array("Q")
        if _SYMTAB not in self.tags:
            return defined, b""
        undefined = bytearray()
        layout = struct.Struct(self._order + ("IBBHQQ" if self._wide else "IIIBBH"))
        address = self.tags[_SYMTAB][0]
        table = _bytes(self._content, self._offset(address), self._symbol_count(address, layout.size) * layout.size)
        strings, end = self._strings, self._strings.find
        part = layout.size * _AT_ONCE
        for start in range(0, len(table), part):
            budget.check()
            for symbol in layout.iter_unpack(table[start : start + part]):
                if self._wide:
                    name, info, _, section, _, _ = symbol
                else:
                    name, _, _, info, _, section = symbol
                binding = info >> 4
                if binding == _LOCAL:
                    continue
                text = strings[name : end(b"\0", name)]
                if section:
                    defined.append(symbol_hash(text))
                elif binding != _WEAK:
                    undefined += text + b"\0"
        return defined, bytes(undefined)

    def _symbol_count(self, address: int, size: int) -> int:
        """Return the number of symbols: of the section at their address, or else as the hash tables have it."""
        for section in self._header.sections:
            if section.kind == _SYMBOLS and section.address == address:
                return section.size // size
        if _HASH in self.tags:
            return self._unpack(self._offset(self.tags[_HASH][0]), "II")[1]
        if _GNU_HASH in self.tags and (count := self._hashed(self._offset(self.tags[_GNU_HASH][0]))):
            return count
        # Linkers write the names after the symbols.
        return max(0, (self.tags.get(_STRTAB, [0])[0] - address) // size)

    def _hashed(self, start: int) -> int:
        """Return the number of symbols by a GNU hash table; 0 if it has none."""
        buckets, offset, words, _ = self._unpack(start, "IIII")
        place = start + 16 + words * (8 if self._wide else 4)
        last = max(struct.unpack(f"{self._order}{buckets}I", _bytes(self._content, place, buckets * 4)), default=0)
        if last < offset:
            return 0
        place += buckets * 4 + (last - offset) * 4
        while not self._unpack(place, "I")[0] & 1:
            last += 1
            place += 4
        return last + 1

    def _chain(self, tag: int, number: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and values of each structure of a chain; the last value is the distance to the next one."""
        if tag not in self.tags:
            return
        place = self._offset(self.tags[tag][0])
        for _ in range(self.tags.get(number, [0])[0]):
            values = self._unpack(place, layout)
            yield place, values
            if not values[-1]:
                break
            place += values[-1]

    def _unpack(self, place: int, layout: str) -> tuple[int, ...]:
        shape = self._order + layout
        return struct.unpack(shape, _bytes(self._content, place, struct.calcsize(shape)))

    def _string(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode(errors="replace")

    def _offset(self, address: int) -> int:
        for segment in self._loads:
            if segment.address <= address < segment.address + segment.size:
                return segment.start + address - segment.address
        raise ValueError(f"address {address:#x} is in no segment")
