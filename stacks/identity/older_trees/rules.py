"""Whether a commit's code makes the same specs as today's, told from its text: no code of another commit is run."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from stacks.identity import git
from stacks.places import CODE, FLAVORS, PIN, ROOT, TABLES

DECIDING: Final = re.compile(
    r"stacks/((config|flavors|versions)/.+|(graph|lock|places|platforms|references|spec|tags)\.py)"
    rf"|({FLAVORS}|{TABLES})/.+|{re.escape(PIN)}"
)
"""The files that decide which specs a stack's YAML and lock give: what :mod:`stacks.graph` imports, and tables. In a
repository of one's own, its flavors and rows of tables, and what pins the release that has the others."""
_STACK: Final = re.compile(r"stacks/Pulumi\.[^/]+\.yaml")
_SHA256_DIGITS: Final = 64


def same(commit: str, root: Path) -> bool:
    """Return whether the deciding files of a commit say the same as the code that runs now.

    Comments, docstrings and blanks of Python count for nothing, nor does a flavor of one's own that the commit has not,
    if no stack of the commit selects it. A tree without such files is built by the running code, unless that is of a
    release. ``root`` is the repository.

    Raises:
        SlipwayError: git cannot read the commit.
    """
    listing = os.fsdecode(git.read(root, "ls-tree", "-r", "-z", commit, "stacks", FLAVORS, TABLES, PIN))
    entries = (entry.split("\t") for entry in listing.split("\0") if entry)
    names = {path: information.split()[2] for information, path in entries}
    then = {path: name for path, name in names.items() if DECIDING.fullmatch(path)}
    if not then:
        return ROOT == CODE
    now = _running("sha256" if any(len(name) == _SHA256_DIGITS for name in then.values()) else "sha1")
    later = _flavors(now) - _flavors(then)
    if later and not _selected(later, [name for path, name in names.items() if _STACK.fullmatch(path)], root):
        now = {path: name for path, name in now.items() if not _flavors([path]) & later}
    if then.keys() != now.keys():
        return False
    # Small files first: the first difference ends the comparison.
    changed = sorted((path for path in now if then[path] != now[path]), key=lambda path: (ROOT / path).stat().st_size)
    return all(
        _meaning(path, (ROOT / path).read_bytes()) == _meaning(path, git.read(root, "cat-file", "blob", then[path]))
        for path in changed
    )


def _flavors(paths: Iterable[str]) -> set[str]:
    """Return the names of the flavors of one's own that some files are of."""
    return {path.split("/")[1].removesuffix(".py") for path in paths if path.startswith(f"{FLAVORS}/")}


def _selected(flavors: set[str], stacks: Iterable[str], root: Path) -> bool:
    """Return whether one of some stacks' files, by git's names of them, has the name of a flavor in it."""
    texts = (git.read(root, "cat-file", "blob", name).decode(errors="replace") for name in stacks)
    return any(flavors & {*re.findall(r"\w+", text)} for text in texts)


@cache
def _running(algorithm: str) -> dict[str, str]:
    """Return git's names of the deciding files that run now, by path: gitformat-loose(5)."""
    names: dict[str, str] = {}
    folders = (ROOT / name for name in ("stacks", FLAVORS, TABLES))
    for file in (ROOT / PIN, *(file for folder in folders for file in folder.rglob("*"))):
        path = file.relative_to(ROOT).as_posix()
        if DECIDING.fullmatch(path) and file.suffix != ".pyc" and file.is_file():
            content = file.read_bytes()
            blob = b"blob %d\0%s" % (len(content), content)
            names[path] = hashlib.new(algorithm, blob, usedforsecurity=False).hexdigest()
    return names


def _meaning(path: str, content: bytes) -> str:
    """Return what a file says: Python without comments and docstrings, another file's text."""
    if not path.endswith(".py"):
        return content.decode(errors="surrogateescape").replace("\r\n", "\n")
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content.decode(errors="surrogateescape")
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
