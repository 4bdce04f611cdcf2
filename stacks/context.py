"""Which files of the build context belong to an image."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_Pattern = tuple[bool, str]
"""Whether a line takes files back in (``!``), and its pattern, without the ``!`` and slashes around it."""


def files(root: Path, dockerfile: str) -> dict[str, str]:
    """Return the SHA-256 of each file of a Dockerfile's context, in hexadecimal, by its path relative to ``root``.

    ``<dockerfile>.dockerignore`` says what belongs to it, by Docker's rules: the last pattern that fits a path or a
    folder above it counts. The Dockerfile always belongs to it.
    """
    patterns = _patterns(root / f"{dockerfile}.dockerignore")
    tests = [(taken_in, _test(pattern)) for taken_in, pattern in patterns]
    result = {}
    for path in _paths(root, dockerfile, patterns):
        taken = next((taken_in for taken_in, fits in reversed(tests) if fits(path)), True)
        if taken or path == dockerfile:
            result[path] = hashlib.sha256((root / path).read_bytes()).hexdigest()
    return result


def _patterns(ignore: Path) -> list[_Pattern]:
    if not ignore.is_file():
        return []
    lines = (line.strip() for line in ignore.read_text(encoding="utf-8").splitlines())
    return [(line.startswith("!"), line.lstrip("!").strip("/")) for line in lines if line and not line.startswith("#")]


def _test(pattern: str) -> Callable[[str], bool]:
    if not set(pattern) & set("*?["):
        below = f"{pattern}/"
        return lambda path: path == pattern or path.startswith(below)
    text = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    fits = re.compile(rf"{text}(/.*)?").fullmatch
    return lambda path: fits(path) is not None


def _paths(root: Path, dockerfile: str, patterns: Sequence[_Pattern]) -> Iterator[str]:
    """Yield the files that may belong, sorted, folder by folder: only where something is taken back in after a ``*``.

    A stack of many images has one context, and looking through all of it for each image would take their product.
    """
    tops = {path.partition("/")[0] for path in [dockerfile, *(pattern for taken_in, pattern in patterns if taken_in)]}
    if patterns[:1] != [(False, "*")] or any(set(top) & set("*?[") for top in tops):
        tops = {entry.name for entry in os.scandir(root)}
    for top in sorted(tops):
        if (root / top).is_file():
            yield top
        for folder, below, names in os.walk(root / top):
            below.sort()
            prefix = os.path.relpath(folder, root).replace(os.sep, "/")
            yield from (f"{prefix}/{name}" for name in sorted(names))
