"""A Dockerfile's arguments, their defaults and comments, and the addresses that mirrors replace."""

from __future__ import annotations

import hashlib
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stacks.errors import SlipwayError
from stacks.identity import context

COMMENTS = "(comments only)"
"""Follows a Dockerfile's name in the entry of its comments."""

# A comment that is no parser directive (Dockerfile reference, parser directives).
_COMMENT = re.compile(rb"\s*#(?!\s*(?:syntax|escape|check)\s*=)", re.IGNORECASE)
_ARGUMENT = re.compile(
    r"""^ARG[ \t]+(?P<name>[A-Za-z_]\w*)(?:=(?P<quote>["']?)(?P<default>.*?)(?P=quote))?[ \t]*$""", re.MULTILINE
)


def arguments(path: Path) -> dict[str, str | None]:
    """Return a Dockerfile's arguments and the default of each, None if no stage sets one.

    Raises:
        SlipwayError: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SlipwayError(f"there is no Dockerfile {path}") from None
    defaults: dict[str, str | None] = {}
    for match in _ARGUMENT.finditer(text):
        name, default = match["name"], match["default"]
        defaults[name] = default if default is not None else defaults.get(name)
    return defaults


@dataclass(frozen=True)
class ArgumentComment:
    """The comment above an argument: what sets the argument, "" for nothing, and what it means."""

    set_by: str
    meaning: str


def argument_comments(path: Path) -> dict[str, ArgumentComment]:
    """Return a Dockerfile's comments of the form ``# NAME (what sets it) Meaning.``, by the argument in the next line.

    BuildKit reads a comment that starts with the argument's name as its description, and
    ``docker buildx build --call outline`` prints it (Docker's manual, ``--call``).
    """
    comments: dict[str, ArgumentComment] = {}
    above: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _ARGUMENT.match(line):
            for comment in above:
                if parts := re.fullmatch(rf"# {match['name']}(?: \((?P<by>[^)]+)\))?(?: (?P<meaning>.+))?", comment):
                    comments.setdefault(match["name"], ArgumentComment(parts["by"] or "", parts["meaning"] or ""))
        above = [*above, line] if line.startswith("#") else []
    return comments


def separate_comments(files: Mapping[str, str], name: str, path: Path) -> dict[str, str]:
    """Return a context's files with two entries for the Dockerfile at ``path``: its instructions, and its comments.

    The provider hashes the whole file, so that an edited comment builds the image again; with an entry of its own, a
    preview names the comments as the reason. Each change of the file changes one of the entries: line ends and the
    file's mode belong to the instructions, and a comment's place to the comments.
    """
    comments: list[tuple[bytes, int, bytes]] = []
    above: list[bytes] = []
    instructions: list[bytes] = []
    occurrences: Counter[bytes] = Counter()
    for line in path.read_bytes().splitlines(keepends=True):
        if _COMMENT.match(line):
            above.append(line)
            continue
        # A comment's place is how the next line begins: edits of that line's value, or elsewhere, do not move it.
        beginning = b" ".join(re.findall(rb"\w+", line)[:2])
        comments += [(beginning, occurrences[beginning], comment) for comment in above]
        occurrences[beginning] += 1
        above.clear()
        instructions.append(line)
    comments += [(b"", -1, comment) for comment in above]
    entries = {name: context.digest(b"".join(instructions), executable=bool(path.stat().st_mode & stat.S_IXUSR))}
    if comments:
        entries[f"{name} {COMMENTS}"] = hashlib.sha256(repr(comments).encode()).hexdigest()
    return {key: value for key, value in files.items() if key != name} | entries


def mirrored(values: Mapping[str, str | None], mirrors: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments whose value is a public address with a mirror; their value here is the mirror's address.

    ``mirrors`` maps public addresses to their mirrors; an entry holds for the addresses below it, and the longest wins.
    """
    result = {}
    for name, value in values.items():
        bases = [base for base in mirrors if value and (value == base or value.startswith(f"{base}/"))]
        if value and bases:
            base = max(bases, key=len)
            result[name] = mirrors[base] + value[len(base) :]
    return result
