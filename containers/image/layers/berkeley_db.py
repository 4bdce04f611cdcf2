"""A reader of Berkeley DB hash files, in which rpm before 4.16 stores its packages.

Source: `hash.h` and `db_page.h` of Berkeley DB 5.3 (src/dbinc). A file consists of pages of one size; the first has
the metadata. Hash pages have pairs of a key and a value; a large value has a chain of overflow pages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from containers import budget

_MAGIC: Final = 0x061561
_HASH_PAGES: Final = {2, 13}
"""Types of hash pages: unsorted, up to 4.5, and sorted."""
_HEADER: Final = 26
"""Bytes of a page's header: log sequence number (8), page, previous, next, pairs, offset, level, type."""
_INLINE, _OVERFLOW = 1, 3
"""Whether a value is on the hash page, or on overflow pages."""


def values(content: bytes) -> Iterator[bytes]:
    """Yield the values of a hash file, in no order, without those of fewer than eight bytes, which are counters.

    Raises ValueError: it is not a hash file, incomplete, or of the other byte order. IndexError, struct.error: an
    offset is beyond its end.
    """
    magic, _, size = struct.unpack_from("<III", content, 12)
    if magic != _MAGIC or size not in {1 << power for power in range(9, 17)}:
        raise ValueError("not a Berkeley DB hash file")
    (last,) = struct.unpack_from("<I", content, 32)
    if len(content) != (last + 1) * size:
        raise ValueError(f"{len(content)} bytes, expected {last + 1} pages of {size}")
    overflow: set[int] = set()
    for start in range(size, len(content), size):
        pairs, _, _, kind = struct.unpack_from("<HHBB", content, start + 20)
        if kind not in _HASH_PAGES:
            continue
        # Items fill a page from its end: each ends where the previous one begins.
        items = struct.unpack_from(f"<{pairs}H", content, start + _HEADER)
        for key, value in zip(items[::2], items[1::2], strict=True):
            place = content[start + value]
            if place == _OVERFLOW:
                page, length = struct.unpack_from("<II", content, start + value + 4)
                yield _chain(content, size, page, length, overflow)
            elif place == _INLINE and key - value > 8:
                yield content[start + value + 1 : start + key]


def _chain(content: bytes, size: int, page: int, length: int, read: set[int]) -> bytes:
    """Return a value of ``length`` bytes from the chain of overflow pages that begins at ``page``.

    ``read`` has the pages of other values: a page is of one value, or a few bytes would stand for endless chains.
    """
    value = bytearray()
    while len(value) < min(length, len(content)):
        budget.check()
        if page in read:
            raise ValueError(f"page {page} is of two values, or of a chain without an end")
        read.add(page)
        next_page, _, used = struct.unpack_from("<IHH", content, page * size + 16)
        start = page * size + _HEADER
        value += content[start : start + used]
        if not page or not used:
            break
        page = next_page
    if len(value) != length:
        raise ValueError(f"a value has {len(value)} bytes, expected {length}")
    return bytes(value)
