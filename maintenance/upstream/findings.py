"""The parts of a contract that hold, and the others."""

from __future__ import annotations

import ast
import io
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from containers.image.binaries import elf_file
from maintenance.upstream.contract import Contract, Row
from maintenance.upstream.upstream_files import UpstreamFiles
from stacks.config.values import is_commit

_NAME = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class Finding:
    """A row, the line at which it holds (None: it is about no line), and what is missing ("": it holds)."""

    row: Row
    line: int | None
    missing: str


@dataclass(frozen=True)
class Result:
    """The findings for one tag of a component, or why there are none.

    Attributes:
        component: the contract's name.
        where: the repository, folder or archive.
        tag: the tag or commit; empty where the files are of none.
        findings: one for each row.
        error: why the rows could not be held; empty where they were.
        skipped: whether there was nothing to read them from, which is no error.
    """

    component: str
    where: str
    tag: str
    findings: Sequence[Finding] = ()
    error: str = ""
    skipped: bool = False

    @property
    def broken(self) -> list[Finding]:
        """The findings that do not hold."""
        return [finding for finding in self.findings if finding.missing]

    def lines(self, contract: Contract) -> Iterator[str]:
        """Yield a line if all rows hold, or else one for each that does not."""
        place = f"{self.where} {self.tag}".rstrip()
        if self.error:
            yield f"{self.component}: {self.error}"
        elif not self.broken:
            yield f"{self.component}: {place}: all rows hold ({len(self.findings)})"
        for finding in self.broken:
            row = finding.row
            read = row.read or contract.read
            read = f"{row.path}{f':{row.line}' if row.line else ''} at {read[:7] if is_commit(read) else read}"
            yield f"{self.component}: {place}: {finding.missing} (last seen: {read}); {row.stands} {row.relies}"

    def as_json(self, contract: Contract) -> dict[str, Any]:
        """Return all of it for a program."""
        return {
            "component": self.component,
            "where": self.where,
            "tag": self.tag,
            "error": self.error,
            "skipped": self.skipped,
            "rows": [
                {
                    "file": finding.row.path,
                    "line": finding.line,
                    "read": {"tag": finding.row.read or contract.read, "line": finding.row.line},
                    "stands": finding.row.stands,
                    "relies": finding.row.relies,
                    "holds": not finding.missing,
                    "missing": finding.missing,
                }
                for finding in self.findings
            ],
        }


def findings(rows: Iterable[Row], files: UpstreamFiles) -> list[Finding]:
    """Hold rows against an upstream's files."""
    return [_finding(row, files) for row in rows]


def _finding(row: Row, files: UpstreamFiles) -> Finding:
    places = files.matching(row.path)
    if not places:
        return Finding(row, None, _gone(row.path, files))
    looks_inside = row.pattern or row.absent or row.variable or row.symbol or row.requires is not None
    results = [_in_file(row, path, files.content(path)) for path in places] if looks_inside else []
    if row.absent:
        results.sort(key=lambda finding: not finding.missing)
    else:
        results.sort(key=lambda finding: bool(finding.missing))
    return results[0] if results else Finding(row, None, "")


def _gone(path: str, files: UpstreamFiles) -> str:
    name = PurePosixPath(path).name
    namesakes = sorted(file for file in files.paths if PurePosixPath(file).name == name and "*" not in name)
    moved = f"; it may have moved to {', '.join(namesakes[:3])}" if 0 < len(namesakes) <= 3 else ""
    return f"{path} is not there{moved}"


def _in_file(row: Row, path: str, content: bytes) -> Finding:
    if row.symbol:
        return Finding(row, None, _symbol(row.symbol, path, content))
    text = content.decode(errors="replace")
    if row.requires is not None:
        more = sorted(_requirements(path, text) - {_plain(name) for name in row.requires})
        return Finding(row, None, f"{path} requires {', '.join(more)} to build" if more else "")
    if row.absent:
        match = re.search(row.absent, text, re.MULTILINE)
        return Finding(row, None, f"{path}:{_line(text, match)} has '{match[0].strip()}' now" if match else "")
    # A comment may name what is no longer read.
    expression = row.pattern or rf"^(?!\s*(?:#|//|dnl\b)).*(?<![A-Za-z0-9_]){re.escape(row.variable)}(?![A-Za-z0-9_])"
    match = re.search(expression, text, re.MULTILINE)
    if match:
        return Finding(row, _line(text, match), "")
    return Finding(
        row, None, f"{path} does not read {row.variable}" if row.variable else f"{path} has no '{row.pattern}'"
    )


def _line(text: str, match: re.Match[str]) -> int:
    start = match.start() + len(match[0]) - len(match[0].lstrip("\n"))
    return text.count("\n", 0, start) + 1


def _symbol(symbol: str, path: str, content: bytes) -> str:
    if not content.startswith(b"\x7fELF"):
        return f"{path} is no library"
    binary = elf_file.read(io.BytesIO(content), len(content))
    if binary.problem:
        return f"{path} cannot be read as a library: {binary.problem}"
    return "" if elf_file.symbol_hash(symbol.encode()) in binary.defined else f"{path} does not export {symbol}"


def _plain(requirement: str) -> str:
    match = _NAME.match(requirement)
    return canonicalize_name(match[1]) if match else ""


def _requirements(path: str, text: str) -> set[str]:
    """Return the names of a file's requirements to build, as far as it states them as data."""
    if path.endswith(".toml"):
        try:
            system = tomllib.loads(text).get("build-system", {})
        except tomllib.TOMLDecodeError:
            return {"what cannot be read: it is no TOML"}
        lines = [line for line in system.get("requires", []) if isinstance(line, str)]
    elif path.endswith(".py"):
        lines = list(_setup_requires(text))
    else:
        lines = [line.partition("#")[0] for line in text.splitlines() if not line.lstrip().startswith(("#", "-"))]
    return {_plain(line) for line in lines} - {""}


def _setup_requires(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "setup_requires":
            yield from (
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
