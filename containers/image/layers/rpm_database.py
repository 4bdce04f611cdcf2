"""The databases with rpm's records of installed packages: a header for each.

rpm from 4.16 on has an SQLite file, before a Berkeley DB hash file (Rocky Linux 8, UBI 8), and SUSE's a format of its
own, which is not read. Source: rpm 4.18, docs/manual/format.md and tags.md, include/rpm/rpmtag.h.
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from containers import budget
from containers.image.layers import berkeley_db

SQLITE: Final = re.compile(r"(?:var/lib|usr/lib/sysimage)/rpm/rpmdb\.sqlite")
BERKELEY_DB: Final = re.compile(r"var/lib/rpm/Packages")
NOT_READ: Final = re.compile(r"(?:var/lib|usr/lib/sysimage)/rpm/Packages\.db")
"""Paths of the databases, of which the last has rpm's own format, `ndb`."""

_MOST_STEPS: Final = 20_000
"""Thousands of steps of SQLite for one database; a real one takes tens."""
_NUMBERS: Final = {1: "B", 2: "B", 3: "H", 4: "I", 5: "Q"}
"""Formats of numbers by type."""
_STRING, _BINARY, _STRINGS, _I18N = 6, 7, 8, 9

Values = Mapping[int, list[Any]]
"""The values of a header by tag."""


def headers(content: bytes, *, sqlite: bool) -> Iterator[bytes]:
    """Yield the header of each package of a database. Raises ValueError: the database is malformed."""
    return _of_sqlite(content) if sqlite else berkeley_db.values(content)


def _of_sqlite(content: bytes) -> Iterator[bytes]:
    # Bytes 18 and 19 select a write-ahead log (SQLite file format, 1.3), which a copy in memory cannot have.
    image = content[:18] + b"\x01\x01" + content[20:]
    steps, left = iter(range(_MOST_STEPS)), len(content)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            # A file can have a view of endless rows in place of the table, or values that are computed.
            connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(len(content), 1 << 20))
            connection.deserialize(image)
            for (blob,) in connection.execute("SELECT blob FROM Packages"):
                if not isinstance(blob, bytes):
                    raise sqlite3.DataError("a header is no blob")
                left -= len(blob)
                if left < 0:  # a view, whose rows are computed at few steps for any number of bytes
                    raise sqlite3.DataError(f"headers of more than {len(content)} bytes, which the file has")
                yield blob
        except sqlite3.Error as error:
            raise ValueError(f"malformed rpm database: {error!r}") from None


def values(blob: bytes, tags: Collection[int]) -> Values:
    """Return the values of a header's tags, each a list: two counts, entries of 16 bytes, and their data.

    Raises:
        ValueError, struct.error: the header is malformed.
    """
    entries, size = struct.unpack_from(">II", blob)
    start = 8 + 16 * entries
    data = blob[start : start + size]
    header: dict[int, list[Any]] = {}
    for number in range(entries):
        budget.check()
        tag, kind, offset, count = struct.unpack_from(">IIII", blob, 8 + 16 * number)
        if tag in tags and tag not in header:
            header[tag] = _value(data, kind, offset, count)
    return header


def _value(data: bytes, kind: int, offset: int, count: int) -> list[Any]:
    if kind in _NUMBERS:
        return list(struct.unpack_from(f">{count}{_NUMBERS[kind]}", data, offset))
    if kind in {_STRING, _I18N}:
        return [data[offset : data.index(b"\0", offset)].decode(errors="replace")]
    if kind == _STRINGS:
        texts = data[offset:].split(b"\0", count)[:count]
        if len(texts) < count:
            raise ValueError(f"{len(texts)} strings, expected {count}")
        return [text.decode(errors="replace") for text in texts]
    return [data[offset : offset + count]] if kind == _BINARY else []
