"""Machine code and PTX for NVIDIA's GPUs in fat binaries, without CUDA's tools.

NVIDIA does not document the format. Source: FORMAT_SPECIFICATION.md of GrigoryEvko/nvopen-tools (3b50e20, fatbin/),
compared with cuobjdump 13.5 for torch 2.15.0 and NCCL 2.32.3 of the Python index, and for others in
tests/images/test_gpu_code.py. Each header names its architecture, so that compressed code need not be decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from containers import budget

SECTION: Final = b".nv_fatbin"
"""The section of an ELF file with fat binaries. `__nv_relfatbin` has what nvlink has read, and no driver reads."""
_MAGIC: Final = 0xBA55ED50
_CONTAINER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIII8xQ")
"""Kind, version, bytes of the header, of the padded payload, of the payload, unknown, version, architecture, flags."""
_PTX, _CUBIN, _CUBIN_TOO = 1, 2, 16
_VARIANTS: Final = {1 << 20: "a", 1 << 21: "f"}
"""Flags of code for one architecture or one family only, as fatbinary 13.5 writes them for sm_100a and sm_100f."""


class GpuCode(NamedTuple):
    """Code for one architecture: ``sm`` for machine code or ``ptx``; ``arch`` is 90 for compute capability 9.0.

    ``variant`` is ``a`` for code that runs on this architecture only, ``f`` for its family.
    """

    kind: str
    arch: int
    variant: str = ""

    def __str__(self) -> str:
        """Return the name that NVIDIA's compilers have for it."""
        return f"{'sm' if self.kind == 'sm' else 'compute'}_{self.arch}{self.variant}"


def read(file: IO[bytes], start: int, end: int) -> Iterator[GpuCode]:
    """Yield the code of the fat binaries in a part of a file; malformed ones are skipped."""
    place = start
    while place + _CONTAINER.size <= end:
        budget.check()
        file.seek(place)
        magic, _, header, length = _CONTAINER.unpack(file.read(_CONTAINER.size))
        if magic != _MAGIC or header < _CONTAINER.size:
            place += 8  # containers are aligned, with zeros between them
            continue
        entry, place = place + header, min(place + header + length, end)
        while entry + _ENTRY.size <= place:
            budget.check()
            file.seek(entry)
            kind, _, size, payload, _, _, _, arch, flags = _ENTRY.unpack(file.read(_ENTRY.size))
            if not size:
                break
            if kind in {_CUBIN, _CUBIN_TOO, _PTX}:
                variant = next((name for flag, name in _VARIANTS.items() if flags & flag), "")
                yield GpuCode("ptx" if kind == _PTX else "sm", arch, variant)
            entry += size + payload


def of_cubin(flags: int, abi: int) -> GpuCode:
    """Return the code of a file of its own, by its ELF header (llvm/include/llvm/BinaryFormat/ELF.h, `EF_CUDA_*`)."""
    return GpuCode("sm", flags >> 8 & 0xFF if abi >= 8 else flags & 0xFF)
