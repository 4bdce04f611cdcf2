"""Databases of rpm, as far as packages and files go."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing

SHA256 = 8


def header(
    name: str,
    version: str,
    release: str,
    arch: str | None = None,
    epoch: int | None = None,
    files: Mapping[str, tuple[str, int]] | None = None,
    states: Sequence[int] = (),
) -> bytes:
    """Return a header as rpm's database has it (rpm, header format); `files` are digest and size by path."""
    entries, data = [], b""

    def add(tag: int, kind: int, count: int, content: bytes) -> None:
        nonlocal data
        entries.append(struct.pack(">IIII", tag, kind, len(data), count))
        data += content

    def numbers(tag: int, values: Sequence[int]) -> None:
        add(tag, 4, len(values), struct.pack(f">{len(values)}I", *values))

    def texts(tag: int, values: Sequence[str]) -> None:
        add(tag, 8, len(values), b"".join(value.encode() + b"\0" for value in values))

    if epoch is not None:
        numbers(1003, [epoch])
    for tag, text in [(1000, name), (1001, version), (1002, release), *([(1022, arch)] if arch else [])]:
        add(tag, 6, 1, text.encode() + b"\0")
    if files:
        folders = sorted({path.rpartition("/")[0] + "/" for path in files})
        numbers(1116, [folders.index(path.rpartition("/")[0] + "/") for path in files])
        texts(1117, [path.rpartition("/")[2] for path in files])
        texts(1118, folders)
        texts(1035, [digest for digest, _ in files.values()])
        numbers(1028, [size for _, size in files.values()])
        numbers(5011, [SHA256])
        if states:
            add(1029, 1, len(states), bytes(states))
    return struct.pack(">II", len(entries), len(data)) + b"".join(entries) + data


def rpmdb(*headers: bytes) -> bytes:
    """Return an SQLite database of packages."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
        connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(each,) for each in headers])
        connection.commit()
        content = connection.serialize()
    return content[:18] + b"\x02\x02" + content[20:]  # with a log beside it, as rpm has it


def endless() -> bytes:
    """Return a database whose table is a view without end."""
    with closing(sqlite3.connect(":memory:")) as connection:
        rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x'00' AS blob FROM n WHERE x < 0"
        connection.execute(f"CREATE VIEW Packages AS {rows}")
        connection.commit()
        return connection.serialize()
