"""Damaged files, each with what this machine's loader or kernel makes of it; a test runs both over the whole table."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from containers.image.binaries import elf_file, loading
from containers.image.binaries.elf_file import X86_64
from containers.image.elf.header import ElfHeader
from containers.starting import started_programs
from tests.helpers.elf_writer import elf
from tests.helpers.every import every
from tests.helpers.image_files import Files, faults, image
from tests.helpers.needs import lack

LIBRARY: Final = """
#include <stdio.h>
static __thread int own = 5;
static int data[4] = {1, 2, 3, 4}, *place = &data[1], zeros[9000];
__attribute__((constructor)) static void begin(void) { zeros[100] = own++; }
int run(int number) { return printf("%d", number + own + *place + zeros[number]); }
"""
PROGRAM: Final = """
#include <stdio.h>
static __thread volatile int own = 5;
int zeros[9000];
int main(int count, char **words) { (void)words; return puts("ok") + own + zeros[count] < 0; }
"""
OPENER: Final = "#include <dlfcn.h>\nint main(int n, char **w) { return n < 2 || !dlopen(w[1], RTLD_NOW); }"
BUILT: Final[Mapping[str, tuple[str, list[str]]]] = {
    "library": (LIBRARY, ["-shared", "-fPIC"]),
    "program": (PROGRAM, ["-pie", "-fPIE"]),
    "fixed": (PROGRAM, ["-no-pie", "-fno-PIE"]),
    "static": (PROGRAM, ["-static", "-no-pie"]),
    "static pie": (PROGRAM, ["-static-pie", "-fPIE"]),
    "packed": (LIBRARY, ["-shared", "-fPIC", "-Wl,-z,pack-relative-relocs"]),
    "opener": (OPENER, []),
}
LIBRARIES: Final = {"library", "packed"}

HEADER: Final[Mapping[str, tuple[int, str]]] = {
    "class": (4, "B"), "order": (5, "B"), "ident": (6, "B"), "system": (7, "B"), "abi": (8, "B"), "padding": (15, "B"),
    "type": (16, "H"), "machine": (18, "H"), "version": (20, "I"), "entry": (24, "Q"), "phoff": (32, "Q"),
    "shoff": (40, "Q"), "flags": (48, "I"), "phentsize": (54, "H"), "phnum": (56, "H"), "shnum": (60, "H"),
}  # fmt: skip
SEGMENT: Final[Mapping[str, tuple[int, str]]] = {
    "type": (0, "I"), "flags": (4, "I"), "offset": (8, "Q"), "vaddr": (16, "Q"), "paddr": (24, "Q"),
    "filesz": (32, "Q"), "memsz": (40, "Q"), "align": (48, "Q"),
}  # fmt: skip
KINDS: Final = {"LOAD": 1, "DYNAMIC": 2, "INTERP": 3, "PHDR": 6, "TLS": 7, "RELRO": 0x6474E552}
TAGS: Final = {
    "NEEDED": 1, "PLTRELSZ": 2, "STRTAB": 5, "SYMTAB": 6, "RELA": 7, "RELASZ": 8, "RELAENT": 9, "STRSZ": 10,
    "PLTGOT": 3, "INIT": 12, "PLTREL": 20, "JMPREL": 23, "INIT_ARRAY": 25, "INIT_ARRAYSZ": 27, "GNU_HASH": 0x6FFFFEF5,
    "VERNEED": 0x6FFFFFFE, "VERSYM": 0x6FFFFFF0, "RELACOUNT": 0x6FFFFFF9, "RELRSZ": 35, "RELR": 36,
}  # fmt: skip
MOST: Final = (1 << 64) - 1

HASHES: Final = ("first", "bucket")
"""Of the table of GNU hashes: the number of its first symbol, and the symbol that its first bucket begins with."""
REFUSED, TAKEN = True, False
CASES: Final[tuple[tuple[str, str, int, bool], ...]] = (
    # The header, which glibc reads of a library, and the kernel hardly of a program.
    ("library", "class", 1, REFUSED),
    ("library", "order", 2, REFUSED),
    ("library", "ident", 0, REFUSED),
    ("library", "system", 3, TAKEN),
    ("library", "system", 9, REFUSED),
    ("library", "system", 64, REFUSED),
    ("library", "system", 255, REFUSED),
    ("library", "abi", 1, REFUSED),
    ("library", "padding", 1, REFUSED),
    ("library", "type", 0, REFUSED),
    ("library", "type", 2, REFUSED),
    ("library", "type", 4, REFUSED),
    ("library", "machine", 63, REFUSED),
    ("library", "version", 0, REFUSED),
    ("library", "version", 2, REFUSED),
    ("library", "entry", MOST, TAKEN),
    ("library", "flags", 1, TAKEN),
    ("library", "phoff", 0, REFUSED),
    ("library", "phoff", MOST, REFUSED),
    ("library", "phentsize", 57, REFUSED),
    ("library", "phnum", 0, REFUSED),
    ("library", "phnum", 65535, REFUSED),
    ("library", "shoff", MOST, TAKEN),
    ("library", "shnum", 0, TAKEN),
    ("program", "class", 9, TAKEN),
    ("program", "padding", 1, TAKEN),
    ("program", "system", 9, TAKEN),
    ("program", "version", 0, TAKEN),
    ("program", "type", 1, REFUSED),
    ("program", "entry", 0x10, REFUSED),
    ("program", "phentsize", 55, REFUSED),
    ("program", "phnum", 0, REFUSED),
    ("fixed", "entry", 0, REFUSED),
    ("static", "type", 0, REFUSED),
    ("static", "phoff", 1, REFUSED),
    # Its segments.
    ("library", "LOAD vaddr", 1, REFUSED),
    ("library", "LOAD vaddr", 1 << 47, REFUSED),
    ("library", "LOAD memsz", MOST, TAKEN),
    ("library", "LOAD memsz", 1 << 62, REFUSED),
    ("library", "LOAD filesz", 0x10000, REFUSED),
    ("library", "LOAD paddr", MOST, TAKEN),
    ("library", "LOAD align", 1, TAKEN),
    ("library", "LOAD align", 1 << 63, REFUSED),
    ("library", "DYNAMIC type", 0, REFUSED),
    ("library", "DYNAMIC offset", MOST, TAKEN),
    ("library", "DYNAMIC vaddr", 0x70000000, REFUSED),
    ("library", "DYNAMIC filesz", 0, REFUSED),
    ("library", "DYNAMIC filesz", MOST, TAKEN),
    ("library", "DYNAMIC memsz", 0, TAKEN),
    ("library", "TLS vaddr", 0x70000000, REFUSED),
    ("library", "TLS offset", MOST, TAKEN),
    ("library", "RELRO memsz", 1 << 40, REFUSED),
    ("library", "RELRO filesz", MOST, TAKEN),
    ("program", "LOAD filesz", 0x10000, REFUSED),
    ("program", "LOAD memsz", 0, REFUSED),
    ("program", "INTERP filesz", 0, REFUSED),
    ("program", "INTERP filesz", 1, REFUSED),
    ("program", "INTERP filesz", 5, REFUSED),
    ("program", "INTERP offset", 0, REFUSED),
    ("program", "INTERP memsz", MOST, TAKEN),
    ("program", "PHDR vaddr", 0, REFUSED),
    ("program", "DYNAMIC filesz", 0, TAKEN),
    ("program", "TLS vaddr", 0x70000000, REFUSED),
    ("library", "LOAD memsz", 0x100000, REFUSED),
    ("library", "RELRO memsz", 0x3DE8, REFUSED),
    ("program", "TLS align", 9, TAKEN),
    ("static", "TLS align", 0x108, REFUSED),
    ("static", "TLS memsz", 0x270, REFUSED),
    ("static", "RELRO vaddr", 0x20, REFUSED),
    ("static", "LOAD memsz", 0, REFUSED),
    ("static", "LOAD vaddr", 0x2000, REFUSED),
    # Its dynamic section: the place of a table, or its size.
    ("library", "NEEDED", 1 << 40, REFUSED),
    ("library", "STRTAB", 0, REFUSED),
    ("library", "STRTAB", 1 << 40, REFUSED),
    ("library", "SYMTAB", 1 << 40, REFUSED),
    ("library", "STRSZ", 0, TAKEN),
    ("library", "STRSZ", MOST, TAKEN),
    ("library", "RELA", 1 << 40, REFUSED),
    ("library", "RELASZ", MOST, REFUSED),
    ("library", "RELAENT", 23, REFUSED),
    ("library", "RELACOUNT", 0xFFFF, REFUSED),
    ("library", "RELACOUNT", MOST, REFUSED),
    ("packed", "RELR", 0x24, REFUSED),
    ("packed", "RELRSZ", 0x1000, REFUSED),
    # So many words that decode to nothing, with which lld fills its table up.
    ("packed", "ones", 0x100, TAKEN),
    ("library", "PLTREL", 17, REFUSED),
    ("library", "JMPREL", 1 << 40, REFUSED),
    ("program", "PLTGOT", 1 << 40, REFUSED),
    # Code in a segment without a section, as of a library that is protected: the loader reads no sections.
    ("library", "sections", 0, TAKEN),
    ("library", "stale", 0, TAKEN),
    ("library", "joined", 0, TAKEN),
    ("library", "nested", 0, TAKEN),
    ("program", "empty", 1 << 40, TAKEN),
    # The first word of its table, an address that a repair leaves as it is, and that the loader does not read.
    ("program", "GOT", 0, TAKEN),
    ("fixed", "GOT", 1, TAKEN),
    ("library", "INIT", 1 << 40, REFUSED),
    ("library", "INIT_ARRAY", 1 << 40, REFUSED),
    ("library", "INIT_ARRAYSZ", MOST, REFUSED),
    ("library", "GNU_HASH", 1 << 40, REFUSED),
    ("library", "VERNEED", 1 << 40, REFUSED),
    ("library", "VERNEED", 0, REFUSED),
    ("library", "VERSYM", 1 << 40, REFUSED),
    ("program", "STRTAB", 1 << 40, REFUSED),
    ("program", "RELACOUNT", 1 << 32, REFUSED),
    ("program", "RELASZ", 0xC8, REFUSED),
    ("static pie", "GNU_HASH", 1 << 40, TAKEN),
    ("static pie", "INIT_ARRAY", 0, TAKEN),
    ("static pie", "JMPREL", 0x20, REFUSED),
    ("static pie", "PLTREL", 0, REFUSED),
    ("static pie", "RELA", 0, REFUSED),
    ("static pie", "RELAENT", 8, REFUSED),
    ("static pie", "RELASZ", 0x9000, REFUSED),
    ("program", "first", 0, TAKEN),
    ("program", "first", 1 << 31, REFUSED),
    ("program", "bucket", 1, TAKEN),
    ("program", "bucket", 1 << 20, REFUSED),
    ("fixed", "SYMTAB", 1 << 40, REFUSED),
)
"""Files, the field that is changed, its value, and whether the loader refuses the file. Of segments the first counts.

A process that crashes while it loads a file, or starts it, counts as one that is refused.
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the undamaged files."""
    folder = tmp_path_factory.mktemp("built")
    for name, (source, options) in BUILT.items():
        command = ["gcc", "-O1", *options, "-x", "c", "-", "-o", str(folder / name), "-ldl"]
        try:
            subprocess.run(command, input=source, text=True, check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            lack("gcc with glibc's static library, on x86-64")
    return folder


def damaged(content: bytes, what: str, value: int) -> bytes:
    """Return a file with another value of a field, or of an entry of its dynamic section."""
    if what in CHANGES:
        return CHANGES[what](content, value)
    result = bytearray(content)
    if what in HEADER:
        place, layout = HEADER[what]
    elif what in TAGS:
        place, layout = _entry(content, what), "Q"
    elif what in HASHES:
        table = struct.unpack_from("<Q", content, _entry(content, "GNU_HASH"))[0]  # a program's first segment is at 0
        filters = struct.unpack_from("<I", content, table + 8)[0]
        place, layout = table + (4 if what == "first" else 16 + 8 * filters), "I"
    elif what == "GOT":
        address, layout = struct.unpack_from("<Q", content, _entry(content, "PLTGOT"))[0], "Q"
        rows = (struct.unpack_from("<QQQQ", content, start + 8) for start in _segments(content, "LOAD"))
        place = next(offset + address - start for offset, start, _, size in rows if start <= address < start + size)
    else:
        kind, _, name = what.partition(" ")
        offset, layout = SEGMENT[name]
        place = next(_segments(content, kind)) + offset
    struct.pack_into(f"<{layout}", result, place, value)
    return bytes(result)


def _without_sections_of_code(content: bytes, _: int) -> bytes:
    """Return a file whose sections name other data as code."""
    result = bytearray(content)
    start, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    for row in range(start, start + 64 * count, 64):
        flags = struct.unpack_from("<Q", content, row + 8)[0]
        struct.pack_into("<Q", result, row + 8, {2: 6, 6: 0}.get(flags, flags))
    return bytes(result)


def _padded(content: bytes, words: int) -> bytes:
    """Return a file with words that decode to nothing at the end of DT_RELR, which is the last of its first segment."""
    place, size = _entry(content, "RELR"), _entry(content, "RELRSZ")
    result = bytearray(content)
    end = sum(struct.unpack_from("<Q", content, one)[0] for one in (place, size))
    assert not any(content[end : end + 8 * words])
    struct.pack_into(f"<{words}Q", result, end, *[1] * words)
    struct.pack_into("<Q", result, size, struct.unpack_from("<Q", content, size)[0] + 8 * words)
    return bytes(result)


def _with_stale_sections(content: bytes, _: int) -> bytes:
    """Return a file whose sections have other places than its tables."""
    dynamic, table = _section(content, ".dynamic"), _section(content, ".rela.dyn")
    return _with_section(_with_section(content, ".dynamic", dynamic[3] + 8), ".rela.dyn", table[3] - 8)


def _with_joined_sections(content: bytes, _: int) -> bytes:
    """Return a file whose relocations of functions are in the section of the others, as by a linker's script."""
    first, second = _section(content, ".rela.dyn"), _section(content, ".rela.plt")
    joined = _with_section(content, ".rela.dyn", first[3], size=first[5] + second[5])
    return _with_section(joined, ".rela.plt", second[3], size=0)


def _with_nested_section(content: bytes, _: int) -> bytes:
    """Return a file with a section of one byte within that of its code."""
    return _with_section(content, ".comment", _section(content, ".text")[3], size=1, flags=2)


def _with_empty_section(content: bytes, address: int) -> bytes:
    """Return a file with an empty section of variables of threads."""
    return _with_section(content, ".comment", address, size=0, flags=0x403)


CHANGES: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "sections": _without_sections_of_code,
    "ones": _padded,
    "stale": _with_stale_sections,
    "joined": _with_joined_sections,
    "nested": _with_nested_section,
    "empty": _with_empty_section,
}


def _with_section(content: bytes, name: str, address: int, *, size: int | None = None, flags: int = 2) -> bytes:
    """Return a file with another address of a section, and another size if one is given."""
    row, old = _section(content, name)[0], _section(content, name)
    result = bytearray(content)
    struct.pack_into("<QQ", result, row + 8, flags, address)
    struct.pack_into("<Q", result, row + 32, old[5] if size is None else size)
    return bytes(result)


def _section(content: bytes, name: str) -> tuple[int, ...]:
    """Return the place of a section's row, its type, flags, address, start and size."""
    start, (count, names) = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<HH", content, 60)
    texts = struct.unpack_from("<Q", content, start + 64 * names + 24)[0]
    for row in range(start, start + 64 * count, 64):
        text, *values = struct.unpack_from("<IIQQQQ", content, row)
        if content[texts + text :].startswith(name.encode() + b"\0"):
            return row, *values
    raise AssertionError(f"no section {name}")


def _entry(content: bytes, name: str) -> int:
    """Return the place of the value of an entry of the dynamic section."""
    place: int = struct.unpack_from("<Q", content, next(_segments(content, "DYNAMIC")) + 8)[0]
    while struct.unpack_from("<Q", content, place)[0] != TAGS[name]:
        place += 16
    return place + 8


def _segments(content: bytes, kind: str) -> Iterator[int]:
    """Yield the place of the row of each segment of a kind."""
    start, count = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<H", content, 56)[0]
    for number in range(count):
        if struct.unpack_from("<I", content, start + 56 * number)[0] == KINDS[kind]:
            yield start + 56 * number


def write(built: Path, folder: Path) -> dict[str, bool]:
    """Write the damaged files of the table; return by name whether each is refused."""
    expected = {}
    for number, (name, what, value, refused) in enumerate(CASES):
        path = folder / (f"{number}.so" if name in LIBRARIES else str(number))
        path.write_bytes(damaged((built / name).read_bytes(), what, value))
        path.chmod(0o755)
        expected[path.name] = refused
    return expected


def differences(actual: Mapping[str, bool], expected: Mapping[str, bool]) -> list[str]:
    """Return the cases that come to something else."""
    return [str(CASES[int(name.removesuffix(".so"))]) for name in expected if actual[name] != expected[name]]


def test_machine_s_own_loader_and_kernel_agree_with_the_table(built: Path, tmp_path: Path) -> None:
    expected = write(built, tmp_path)
    actual = {}
    for name in expected:
        command = [tmp_path / name] if not name.endswith(".so") else [built / "opener", tmp_path / name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60, check=False)
            actual[name] = done.returncode != 0
        except OSError:
            actual[name] = True
    assert differences(actual, expected) == []


def test_gate_agrees_with_the_table(built: Path, tmp_path: Path) -> None:
    expected = write(built, tmp_path)
    libc = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    real = ("/lib64/ld-linux-x86-64.so.2", str(Path(libc.strip()).resolve()))
    files: Files = {path.lstrip("/"): Path(path).read_bytes() for path in real}
    read = image({**files, **{f"opt/{name}": (tmp_path / name).read_bytes() for name in expected}}, base={})
    known = {fault.file for fault in loading.resolve(read, X86_64).faults}
    assert not known & {f"/{path}" for path in files}
    actual = {}
    for name in expected:
        config = {"Entrypoint": [] if name.endswith(".so") else [f"/opt/{name}"]}
        unstarted = started_programs.faults(replace(read, config=config), X86_64, "linux/amd64")
        actual[name] = f"/opt/{name}" in known or any(fault.kind == "start" for fault in unstarted)
    assert differences(actual, expected) == []


def test_header_that_glibc_alone_refuses_is_no_fault_of_musl() -> None:
    """musl's loader looks at the type of a file alone (bminor/musl 86373b49, ldso/dynlink.c:704)."""
    of_musl = elf("liba.so", ["libc.musl-x86_64.so.1"], system=7)
    loader = {"lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1")}
    assert loading.resolve(image({**loader, "usr/lib/liba.so": of_musl}, base={}), X86_64).faults == []
    assert faults({"lib64/liba.so": elf("liba.so", system=7)}) == [
        "/lib64/liba.so: cannot be loaded: glibc refuses it: its system is 7, in byte 7 of its header"
    ]


@every("size", range(4))
def test_library_of_less_than_a_magic_number_is_a_fault(size: int) -> None:
    """The loader says that the file is too short; a driver's empty file is a place to mount the host's library on."""
    short = b"\x7fELF"[:size]
    files: Files = {"usr/lib/liba.so.1": short, "usr/lib/libcuda.so.1": short, "opt/tests/libb.so": short}
    mounted = (
        "usr/lib/aarch64-linux-gnu/tegra/libnvos.so",
        "usr/lib/libnvidia-egl-gbm.so.1.1.2",
        "usr/lib/libvdpau_nvidia.so.570",
        "usr/lib/xorg/modules/drivers/nvidia_drv.so",
        "usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.570.1",
    )
    faulty = ["usr/lib/liba.so.1", *(mounted if size else ())]
    reason = f"it has {size} bytes, which is no library; install the package that has it again"
    lines = [f"/{path}: cannot be loaded: {reason}" for path in sorted(faulty) if "vdpau" not in path]
    assert faults({**files, **dict.fromkeys(mounted, short)}) == lines


def test_segments_and_sections_are_compared_once() -> None:
    """65,535 of each, which the header can state, would take a day if each were compared with each."""
    count, start = 65_535, 64 + 65_535 * 56
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, start, 0, 64, 56, count, 64, count, 0)
    segments = b"".join(struct.pack("<IIQQQQQQ", 1, 4, 0, place << 12, 0, 0, 1, 0) for place in range(count))
    names = struct.pack("<IIQQQQ24x", 0, 3, 0, 0, start + 64 * count, 11)
    sections = names + struct.pack("<IIQQQQ24x", 0, 1, 2, 7 << 12, 0, 1) * (count - 1)
    file = ElfHeader(BytesIO(header + segments + sections + b".shstrtab\0\0"))
    assert [file.is_unnamed(place << 12) for place in (6, 7, 8, count)] == [True, False, True, False]


@pytest.mark.parametrize(("soname", "refused"), [("libQt5Core.so.5", False), ("", True)])
def test_loader_of_no_name_is_a_fault_of_programs_alone(soname: str, *, refused: bool) -> None:
    """As in libQt5Core of opencv-contrib-python 5.1.0.95, which `ctypes` opens: no loader reads it of a library."""
    content = bytearray(elf(soname, interpreter="/lib64/ld-linux-x86-64.so.2"))
    start, count = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<H", content, 56)[0]
    [segment] = [at for at in range(start, start + 56 * count, 56) if struct.unpack_from("<I", content, at)[0] == 3]
    struct.pack_into("<QQ", content, segment + 32, 1, 1)
    assert bool(elf_file.read(BytesIO(content), len(content)).problem) == refused
