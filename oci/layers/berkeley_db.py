"""The values of a hash of Berkeley DB, as rpm before 4.16 keeps its packages, read from the file's bytes.

Source: `hash.h` and `db_page.h` of Berkeley DB 5.3 (src/dbinc). A file is pages of one size; the first describes it.
Those of the table have pairs of a key and a value; a value that is large stands on a chain of pages of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_MAGIC: Final = 0x061561
_TABLE: Final = {2, 13}
"""Types of pages that have pairs: unsorted, as up to 4.5, and sorted."""
_HEADER: Final = 26
"""Bytes before a page's content: 8 for the log, its number, the one before, the next, pairs, offset, level, type."""
_HERE, _ELSEWHERE = 1, 3
"""Where a value is: in the table itself, or on pages of its own."""


def values(content: bytes) -> Iterator[bytes]:
    """Yield the values of a file's hash, in no order; those of less than eight bytes, which are counters, are left out.

    Raises:
        ValueError: it is no such file, or not all of it, or of a machine with the other byte order.
        IndexError, struct.error: it ends too early, or names what is beyond its end.
    """
    magic, _, size = struct.unpack_from("<III", content, 12)
    if magic != _MAGIC or size not in {1 << power for power in range(9, 17)}:
        raise ValueError("not a hash of Berkeley DB")
    (last,) = struct.unpack_from("<I", content, 32)
    if len(content) != (last + 1) * size:
        raise ValueError(f"{len(content)} bytes, where {last + 1} pages of {size} are expected")
    for start in range(size, len(content), size):
        pairs, _, _, kind = struct.unpack_from("<HHBB", content, start + 20)
        if kind not in _TABLE:
            continue
        # Items fill a page from its end, so that each ends where the one before it begins.
        items = struct.unpack_from(f"<{pairs}H", content, start + _HEADER)
        for key, value in zip(items[::2], items[1::2], strict=True):
            where = content[start + value]
            if where == _ELSEWHERE:
                page, length = struct.unpack_from("<II", content, start + value + 4)
                yield _chain(content, size, page, length)
            elif where == _HERE and key - value > 8:
                yield content[start + value + 1 : start + key]


def _chain(content: bytes, size: int, page: int, length: int) -> bytes:
    """Return a value of so many bytes that begins on a page; each page says which one is next, and what it has."""
    found = bytearray()
    while len(found) < min(length, len(content)):
        after, _, used = struct.unpack_from("<IHH", content, page * size + 16)
        start = page * size + _HEADER
        found += content[start : start + used]
        if not page or not used:
            break
        page = after
    if len(found) != length:
        raise ValueError(f"a value of {length} bytes has {len(found)}")
    return bytes(found)
