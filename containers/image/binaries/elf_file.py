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
from io import BytesIO
from itertools import islice
from typing import IO, Final, NamedTuple

from containers import budget
from containers.errors import SlipwayError
from containers.image.binaries import plugin_table
from containers.image.elf import dynamic, header, loadable
from containers.image.elf.dynamic import Dynamic, Tag, sysv_hash
from containers.image.elf.header import (
    DYNAMIC,
    INTERPRETER,
    LOAD,
    NO_CONTENT,
    PROGRAM,
    STACK,
    TLS,
    ElfHeader,
    part,
)
from containers.image.elf.memory import PAGE, RUN, Segment, Unloadable
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
_LARGEST_PAGE: Final = 64 << 10
"""Bytes of the largest page of a kernel that containers run on: of aarch64."""
_READ_ONLY_DATA: Final = b".rodata"
_MOST_HELD: Final = 16
"""Names of other libraries that are read from the data of one."""
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


X86_64: Final = ElfMachine(header.X86_64, 64)
AARCH64: Final = ElfMachine(header.AARCH64, 64)
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
    header.X86_64: "x86-64",
    header.AARCH64: "aarch64",
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
    that it is built for, None if it calls none. ``problem`` says why no loader takes it: then
    the rest is not known. ``of_glibc`` says why glibc's alone does not.
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
    of_glibc: str = ""

    @property
    def loaded(self) -> bool:
        """Whether a loader reads it."""
        return self.kind in {"program", "library"}

    def is_module(self, name: str) -> bool:
        """Return whether Python can import the file as a module of that name."""
        return symbol_hash(f"PyInit_{name}".encode(errors="surrogateescape")) in self.defined


def read(file: IO[bytes], size: int, start: bytes = b"") -> Binary:
    """Read an ELF file of ``size`` bytes from a stream, whose ``start`` is read; a malformed one has a ``problem``.

    Raises SlipwayError: a large file cannot be held in a temporary one.
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


def _read(content: IO[bytes], size: int) -> Binary:
    file = ElfHeader(content)
    machine = ElfMachine(file.machine, 64 if file.wide else 32)
    if machine.number == _CUDA:
        return Binary(size, machine, gpu_code=(gpu_code.of_cubin(file.flags, file.ident[8]),))
    try:
        return _loaded(content, file, size, machine) if loadable.is_for_loaders(file) else Binary(size, machine)
    except Unloadable as error:
        # What other processors have, such as GPUs, has loaders of its own.
        is_known = machine in PLATFORM_MACHINES.values() or machine.number not in _MACHINES
        return Binary(size, machine, "library", problem=str(error) if is_known else "")


def _loaded(content: IO[bytes], file: ElfHeader, size: int, machine: ElfMachine) -> Binary:
    """Return what is needed of a file that a loader or the kernel reads. Raises Unloadable: it is refused."""
    mapped = _mapped(file.of(LOAD))
    codes = tuple(sorted(set(_gpu_code(file, content, size))))
    segments = file.of(DYNAMIC)
    named, by_kernel = _interpreter(content, file, size)
    if not segments or (not by_kernel and dynamic.is_static(content, file, size)):
        memory = loadable.memory_of(content, file, size, by_kernel=True)
        loadable.check_static(file, memory, named)
        if segments:
            Dynamic(memory, file).relocate()
        return Binary(size, machine, "static", gpu_code=codes, page=mapped[0])
    if mapped[0] < PAGE:  # nobody knows what would be where
        return Binary(size, machine, "program" if by_kernel else "library", named, gpu_code=codes, page=mapped[0])
    memory = loadable.memory_of(content, file, size, by_kernel=by_kernel)
    tables = _Tables(memory, file)
    needed = list(tables.names())
    soname = tables.name(Tag.SONAME)
    kind = "program" if file.kind == PROGRAM or (by_kernel and not soname) else "library"
    if kind == "library" and loadable.is_of_other_system(file, needed):
        return Binary(size, machine)
    loadable.check_parts(file, memory, named, needed, is_program=kind == "program")
    tables.check(is_program=kind == "program")
    defined, undefined = tables.symbols()
    return Binary(
        size,
        machine,
        kind,
        named,
        soname,
        tuple(needed),
        tables.name(Tag.RPATH) if Tag.RPATH in tables else None,
        tables.name(Tag.RUNPATH) if Tag.RUNPATH in tables else None,
        bool(tables.value(Tag.FLAGS_1) & _NODEFLIB),
        tuple(tables.versions_needed()),
        tables.versions_provided(),
        defined,
        undefined,
        codes,
        *_held(file, content, soname),
        _system_folders(content) if _LOADER.fullmatch(soname) else (),
        *mapped,
        _has_executable_stack(file, machine),
        _static_tls(file, tables.value(Tag.FLAGS)),
        numpy_api.build(_read_only_data(file, content)) if numpy_api.NEEDED in undefined else None,
        of_glibc=loadable.of_glibc(file) if kind == "library" else "",
    )


def _interpreter(content: IO[bytes], file: ElfHeader, size: int) -> tuple[str, bool]:
    """Return a file's interpreter, and whether the kernel may start the file. Raises Unloadable: it is refused."""
    # A library that can be run has an interpreter as well: libc.so.6.
    if file.kind != PROGRAM and not (file.of(INTERPRETER) and file.entry):
        return "", False
    try:
        return loadable.interpreter(content, file), True
    except Unloadable:  # of a library no loader reads it: libQt5Core of opencv-contrib-python 5.1.0.95 has 1 byte
        library = file.of(DYNAMIC) and _Tables(loadable.memory_of(content, file, size, by_kernel=False), file)
        if file.kind == PROGRAM or not library or not library.name(Tag.SONAME):
            raise
        return "", False


def _mapped(loads: Iterable[Segment]) -> tuple[int, int]:
    """Return the largest page that segments can be mapped by, and the least alignment of one."""
    used = [segment for segment in loads if segment.size]
    apart = 0
    for segment in used:
        apart |= segment.address - segment.start
    page = min(apart & -apart or _LARGEST_PAGE, _LARGEST_PAGE)
    return page, min((segment.alignment for segment in used if segment.alignment), default=_LARGEST_PAGE)


def _has_executable_stack(file: ElfHeader, machine: ElfMachine) -> bool:
    """Return whether a file asks for it; one that does not say, as compilers of 2003, asks but on aarch64.

    Source: bminor/glibc 04277e0, sysdeps/aarch64/stackinfo.h and sysdeps/x86_64/stackinfo.h (`DEFAULT_STACK_PERMS`).
    """
    flags = [segment.flags for segment in file.of(STACK)]
    return bool(flags[-1] & RUN) if flags else machine != AARCH64


def _static_tls(file: ElfHeader, flags: int) -> int:
    return sum(each.memory for each in file.of(TLS) if flags & _STATIC_TLS)


def _gpu_code(file: ElfHeader, content: IO[bytes], size: int) -> Iterator[GpuCode]:
    for start, end in _parts(file, gpu_code.SECTION):
        yield from gpu_code.read(content, start, min(end, size))


def _parts(file: ElfHeader, name: bytes) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of the sections of a name, each byte once: tens of thousands of them may overlap."""
    read = 0
    for section in sorted(file.sections, key=lambda section: section.start):
        end = section.start + section.size
        if section.kind != NO_CONTENT and end > read and file.name(section) == name:
            yield max(section.start, read), end
            read = end


def _held(file: ElfHeader, content: IO[bytes], soname: str) -> tuple[tuple[str, ...], str]:
    """Return what an opener of plugins has in its read-only data: names of other libraries, and its CUDA."""
    row = plugin_table.opener(soname)
    names: dict[str, None] = {}
    cuda = ""
    if row and row.holds_names:
        for data in _read_only_data(file, content):
            names.update(dict.fromkeys(islice(row.held_in(data), _MOST_HELD)))
            cuda = cuda or row.cuda_in(data)
    return tuple(names), cuda


def _read_only_data(file: ElfHeader, content: IO[bytes]) -> Iterator[bytes]:
    for start, end in _parts(file, _READ_ONLY_DATA):
        with suppress(ValueError):  # the loader does without sections
            yield part(content, start, end - start)


def _system_folders(content: IO[bytes]) -> tuple[str, ...]:
    content.seek(0)
    match = _SYSTEM_FOLDERS.search(content.read(_LARGEST_LOADER))
    return tuple(match.group().decode().rstrip("\0").split("\0")) if match else ()


class _Tables(Dynamic):
    """The tables that a dynamic section names."""

    def name(self, tag: int) -> str:
        """Return the name of a tag; empty without one, or one that the loader does not find."""
        with suppress(Unloadable):
            return self.text(self.value(tag)) if tag in self else ""
        return ""

    def names(self) -> Iterator[str]:
        """Yield the names of the needed libraries."""
        return map(self.text, self.needed)

    def versions_needed(self) -> Iterator[Version]:
        """Yield the symbol versions that the file needs of others. The loader counts none of them."""
        for place, (version, _, file, first, _) in self.chain(Tag.VERNEED, "HHIII"):
            if version != 1 and place == self.value(Tag.VERNEED):
                raise Unloadable(f"malformed: a need of versions has version {version}")
            library = self.text(file)
            for _, (number, flags, _, name, _) in self.following(place + first, "IHHII"):
                yield Version(library, self._version(number, name), bool(flags & _WEAK_VERSION))

    def versions_provided(self) -> frozenset[str] | None:
        """Return the symbol versions that the file defines."""
        if Tag.VERDEF not in self:
            return None
        names = set()
        for place, (_, _, _, _, number, first, _) in self.chain(Tag.VERDEF, "HHHHIII"):
            with suppress(Unloadable):  # the loader reads the name of none that it does not search
                names.add(self._version(number, self.unpack(place + first, "II")[0]))
        return frozenset(names)

    def _version(self, number: int, place: int) -> str:
        """Return the name of a version, by which and by whose hash the loader compares."""
        name = self.text(place)
        return name if sysv_hash(name.encode(errors="surrogateescape")) == number else f"{name} with hash {number:#x}"

    def symbols(self) -> tuple[array[int], bytes]:
        """Return hashes of the names of defined symbols, and the names of undefined ones that are not weak."""
        defined: array[int] = array("Q")
        undefined = bytearray()
        wide = self.file.wide
        layout = struct.Struct(self.file.order + ("IBBHQQ" if wide else "IIIBBH"))
        address = self.value(Tag.SYMTAB)
        table = self.memory.read(address, self.symbol_count * layout.size)
        strings = self._strings(table, layout)
        end = strings.find
        part = layout.size * _AT_ONCE
        for start in range(0, len(table), part):
            budget.check()
            for symbol in layout.iter_unpack(table[start : start + part]):
                if wide:
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

    def _strings(self, table: bytes, layout: struct.Struct) -> bytes:
        """Return the names up to that of the last symbol: the loader does not look at the size of all."""
        start = self.value(Tag.STRTAB)
        names = struct.Struct(f"{self.file.order}I{layout.size - 4}x")
        last = max((name for (name,) in names.iter_unpack(table)), default=0)
        stated = self.value(Tag.STRSZ)
        if last < stated <= self.memory.available(start):
            return self.memory.read(start, stated)
        return self.memory.read(start, last) + self.memory.text(start + last) + b"\0"
