"""Fails where this Python would compile a module that it can import: there is no bytecode, or it is not of the source.

A source that is not for this Python has none. Python 3.6 has no bytecode that is the same in each build.
Python 3.7 must do.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path


def fault(source: Path) -> str:
    """Return what is wrong with the bytecode of a source, or nothing."""
    text = source.read_bytes()
    try:
        content = Path(cache_from_source(str(source))).read_bytes()
    except OSError:
        return "has no bytecode" if compiles(text) else ""
    if content[:4] != MAGIC_NUMBER:
        return "has bytecode of another Python"
    if not any(content[4:8]):  # that of a parent, which has its source's time and size
        numbers = int(source.stat().st_mtime), len(text)
        fresh = content[8:16] == b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)
        return "" if fresh else "has bytecode of another source"
    if content[8:16] != source_hash(text):
        return "has bytecode of another source"
    same = marshal.loads(content[16:]).co_filename == str(source)  # noqa: S302 - what each start loads
    return "" if same else "has bytecode of another path"


def compiles(text: bytes) -> bool:
    """Return whether a source is for this Python."""
    try:
        compile(text, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def main() -> None:
    """Name the first faults, and end with an error if there is one."""
    faults = []
    for folder in sys.path[1:]:  # the first is this script's
        for here, _, files in os.walk(folder):
            for source in (Path(here, name) for name in files if name.endswith(".py")):
                why = source.is_file() and os.access(source, os.R_OK) and fault(source)
                if why:
                    faults.append(f"{source} {why}")
    if faults:
        first = "; ".join(sorted(faults)[:3])
        sys.exit(f"{sys.executable}: {len(faults)} modules would be compiled at each start: {first}")


if __name__ == "__main__" and sys.version_info >= (3, 7):
    main()
