"""ELF files for tests, with the tables that loaders read and no code; `fatbin` writes GPU code."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from containers.image.elf.dynamic import sysv_hash

LOADER = "/lib64/ld-linux-x86-64.so.2"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def elf(
    soname: str = "",
    needed: Sequence[str] = (),
    *,
    rpath: str = "",
    runpath: str = "",
    interpreter: str = "",
    defined: Sequence[str] = (),
    undefined: Sequence[str] = (),
    weak: Sequence[str] = (),
    needs: Mapping[str, Sequence[str]] | None = None,
    provides: Sequence[str] = (),
    machine: int = 62,
    gpu: bytes = b"",
    rodata: bytes = b"",
    data: bytes = b"",
    stack: int | None = 6,
    shifted: int = 0,
    alignment: int = 4096,
    threads: int = 0,
    system: int = 0,
) -> bytes:
    """Return a library, or with `interpreter` a program; `needs` are versions by library, `data` follows the tables.

    `stack` are the rights that it asks for its stack, None for a file that says nothing. Its last segment, of one byte, is
    `shifted` by bytes in memory against the file; `alignment` is that of both. `threads` are the bytes that it must have of
    each thread from the start, `system` the number of a system that it names.
    """
    strings = bytearray(b"\0")

    def name(text: str) -> int:
        strings.extend(_encoded(text) + b"\0")
        return len(strings) - len(_encoded(text)) - 1

    tags = [(1, name(library)) for library in needed]
    tags += [(tag, name(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text]
    tags += [(30, 0x10)] * bool(threads)
    symbols = bytearray(24)
    for group, section, binding in ((defined, 1, 1), (undefined, 0, 1), (weak, 0, 2)):
        for symbol in group:
            symbols += struct.pack("<IBBHQQ", name(symbol), binding << 4 | 2, 0, section, 0, 0)
    versions, defined_versions = _needed(needs or {}, name), _provided(provides, name)
    segments = 2 + 2 * bool(interpreter) + (stack is not None) + bool(shifted) + bool(threads)
    place = _HEADER.size + segments * _SEGMENT.size
    parts: list[bytes] = []

    def put(content: bytes) -> int:
        nonlocal place
        start = place
        padded = content + bytes(-len(content) % 8)
        parts.append(padded)
        place += len(padded)
        return start

    interpreted = put(interpreter.encode() + b"\0") if interpreter else 0
    tags += [(6, put(bytes(symbols))), (4, put(struct.pack("<II", 0, len(symbols) // 24)))]
    if versions or defined_versions:
        tags += [(0x6FFFFFF0, put(bytes(len(symbols) // 12)))]
    if versions:
        tags += [(0x6FFFFFFE, put(versions)), (0x6FFFFFFF, len(needs or {}))]
    if defined_versions:
        tags += [(0x6FFFFFFC, put(defined_versions)), (0x6FFFFFFD, len(provides))]
    tags += [(5, put(bytes(strings))), (10, len(strings))]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    start = put(dynamic)
    put(data)
    entry = put(b"\xcc" * 8) if interpreter else 0
    contents = {b".nv_fatbin": gpu, b".rodata": rodata}
    starts = {part: (put(content), len(content)) for part, content in contents.items() if content}
    end = place
    names = b"\0" + b"".join(part + b"\0" for part in (*starts, b".shstrtab"))
    sections = b""
    if starts:
        listed = put(names)
        sections = bytes(64)
        for section_name, (first, length) in starts.items():
            sections += _SECTION.pack(names.index(section_name), 1, 2, first, first, length, 0, 0, 8, 0)
        sections += _SECTION.pack(names.index(b".shstrtab"), 3, 0, 0, listed, len(names), 0, 0, 1, 0)
    header = _HEADER.pack(
        *(
            b"\x7fELF\2\1\1" + bytes([system]) + bytes(8),
            3,
            machine,
            1,
            entry,
            64,
            place if sections else 0,
            0,
            64,
            56,
            segments,
            64,
        ),
        *(len(sections) // 64, len(starts) + 1 if starts else 0),
    )
    rows = [(6, 4, 64, 64, segments * _SEGMENT.size, 8)] * bool(interpreter)
    rows += [(1, 5, 0, 0, end, alignment), (2, 4, start, start, len(dynamic), 8)]
    rows += [(3, 4, interpreted, interpreted, len(interpreter) + 1, 1)] if interpreter else []
    rows += [(1, 4, end - 1, end - 1 + shifted, 1, alignment)] if shifted else []
    rows += [(0x6474E551, stack or 0, 0, 0, 0, 16)] * (stack is not None) + [(7, 4, 0, 0, 0, 8)] * bool(threads)
    table = b"".join(
        _SEGMENT.pack(kind, flags, offset, address, address, size, threads if kind == 7 else size, align)
        for kind, flags, offset, address, size, align in rows
    )
    return header + table + b"".join(parts) + sections


def _needed(needs: Mapping[str, Sequence[str]], name: Callable[[str], int]) -> bytes:
    rows = bytearray()
    for number, (library, wanted) in enumerate(sorted(needs.items()), 1):
        rows += struct.pack(
            "<HHIII", 1, len(wanted), name(library), 16, 16 + 16 * len(wanted) if number < len(needs) else 0
        )
        for each, version in enumerate(wanted, 1):
            step = 16 if each < len(wanted) else 0
            rows += struct.pack("<IHHII", sysv_hash(_encoded(version)), 0, 2, name(version), step)
    return bytes(rows)


def _provided(provides: Sequence[str], name: Callable[[str], int]) -> bytes:
    rows = bytearray()
    for number, version in enumerate(provides, 1):
        step = 28 if number < len(provides) else 0
        rows += struct.pack("<HHHHIII", 1, 0, number, 1, sysv_hash(_encoded(version)), 20, step)
        rows += struct.pack("<II", name(version), 0)
    return bytes(rows)


def static_32(machine: int) -> bytes:
    """Return a program of 32 bits without a loader: 3 is i386, 40 Arm."""
    header = struct.pack("<HHIIIIIHHHHHH", 2, machine, 1, 0, 52, 0, 0, 52, 32, 1, 40, 0, 0)
    return b"\x7fELF\1\1\1" + bytes(9) + header + struct.pack("<IIIIIIII", 1, 0, 1 << 16, 0, 84, 84, 5, 4096)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def loader() -> bytes:
    """Return glibc's loader, as far as its soname and its folders go."""
    return elf("ld-linux-x86-64.so.2", data=b"\0/lib64/\0/usr/lib64/\0")


def fatbin(*codes: tuple[int, int, int], payload: int = 24) -> bytes:
    """Return a fat binary; each code is its kind, 1 for PTX and 2 for machine code, its architecture and its flags."""
    entries = b""
    for kind, arch, flags in codes:
        entries += struct.pack("<HHIQIIII8xQ16x", kind, 0x101, 64, payload, payload, 0, 0, arch, flags) + bytes(payload)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
