"""Which specs a commit's code makes as today's does, told from its text: no code of another commit is run."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
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
ROWS: Final = f"{TABLES}/"
"""What rows of tables of one's own are named among flavors of one's own."""
_PURE: Final = frozenset(
    {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "re", "slipway", "string"}
    | {"typing"}
)
"""The modules behind which no file of a repository is. Pydantic makes paths and imports of a stack's values."""
_READING: Final = frozenset({"compile", "eval", "exec", "globals", "open", "vars"})
"""Python's own names that lead to files and modules without an import, besides those with two underscores."""
_SHA256_DIGITS: Final = 64


def differing(commit: str, root: Path) -> frozenset[str] | None:
    """Return the flavors of one's own that a commit has otherwise, or not; None if more of what decides differs.

    :data:`ROWS` is among them if the commit has other rows of one's own. Comments, docstrings and blanks of Python
    count for nothing. Any file in the folder of flavors has a name. A tree without deciding files is built by the
    running code, unless that is of a release. ``root`` is the repository.

    Raises SlipwayError: git cannot read the commit.
    """
    listing = os.fsdecode(git.read(root, "ls-tree", "-r", "-z", commit, "stacks", FLAVORS, TABLES, PIN))
    entries = (entry.split("\t") for entry in listing.split("\0") if entry)
    names = {path: information.split()[2] for information, path in entries}
    then = {path: name for path, name in names.items() if DECIDING.fullmatch(path)}
    if not then:
        return frozenset() if ROOT == CODE else None
    now = _running("sha256" if any(len(name) == _SHA256_DIGITS for name in then.values()) else "sha1")
    of_one = set(then.keys() ^ now.keys())
    if any(not _part(path) for path in of_one):
        return None
    # Small files first: the first difference ends the comparison.
    changed = {path for path in then.keys() & now.keys() if then[path] != now[path]}
    for path in sorted(changed, key=lambda path: (ROOT / path).stat().st_size):
        ours, theirs = (ROOT / path).read_bytes(), git.read(root, "cat-file", "blob", then[path])
        if _meaning(path, ours) == _meaning(path, theirs):
            changed.remove(path)
        elif not _part(path):
            return None
    return frozenset(map(_part, changed | of_one))


def reached(flavor: str) -> frozenset[str] | None:
    """Return the flavors of one's own, as :func:`differing` names them, that one is made of. One of Slipway's has none.

    They are its imports, and theirs. None means any file in the folder of flavors, also one that is there no more: an
    import could read it, or the flavor's own files are not seen, as those behind a link.
    """
    own: dict[str, list[str]] = {}
    for path in filter(_flavor, _running("sha1")):
        own.setdefault(_flavor(path), []).append(path)
    if flavor not in own:
        ours = CODE / "stacks" / "flavors" / flavor
        return frozenset() if ours.is_dir() or ours.with_suffix(".py").is_file() else None
    found, todo = set[str](), [flavor]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            for path in own[name]:
                imported = _imported(path, own)
                if imported is None:
                    return None
                todo += imported
    return frozenset(found)


def _part(path: str) -> str:
    """Return what a file of one's own is of: a flavor, or :data:`ROWS`; empty of another file."""
    return ROWS if path.startswith(ROWS) else _flavor(path)


def _flavor(path: str) -> str:
    """Return the name of the flavor of one's own that a file is of; empty of another file."""
    return path.split("/")[1].removesuffix(".py") if path.startswith(f"{FLAVORS}/") else ""


def _imported(path: str, own: Collection[str]) -> set[str] | None:
    """Return the flavors of one's own that a file of one imports; None if it could read what its text does not name."""
    try:
        nodes = [*ast.walk(ast.parse((ROOT / path).read_bytes()))] if path.endswith(".py") else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)} - {"compile"}  # re's
    if not nodes or any(name in _READING or name.startswith("__") for name in used):
        return None
    package = ("stacks", "flavors", *path.split("/")[1:-1])
    names = {name for node in nodes for name in _names(node, package)}
    flavors = {name.split(".")[2] for name in names if name.startswith("stacks.flavors.")}
    others = {name.split(".")[0] for name in names if not name.startswith("stacks.flavors.")}
    return flavors if flavors <= {*own} and others <= _PURE else None


def _names(node: ast.AST, package: Sequence[str]) -> Iterator[str]:
    """Yield the full names that a node imports; ``package`` is that of its module."""
    if isinstance(node, ast.Import):  # without a name for it, what is bound is the package above all
        yield from (alias.name if alias.asname else alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = [*(package[: len(package) + 1 - node.level] if node.level else ()), *filter(None, [node.module])]
        yield from (".".join([*base, alias.name]) for alias in node.names)


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
