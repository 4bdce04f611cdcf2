"""A Dockerfile's declared arguments, their defaults and comments, and the addresses that mirrors replace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from containers.errors import SlipwayError

_ARGUMENT = re.compile(r"^ARG[ \t]+(?P<name>[A-Za-z_]\w*)(?:=(?P<default>.*)|[ \t]*)$", re.MULTILINE)
_QUOTED = re.compile(r"""(["'])(.*)\1""")
_COMMENTED = re.compile(r"""("[^"]*"|'[^']*'|[^\s"']*)[ \t]+#.*""")
"""A value with words after it that are meant as a comment; BuildKit reads them as further arguments."""


def arguments(path: Path) -> dict[str, str | None]:
    """Return a Dockerfile's arguments and the default of each, None if no stage sets one.

    Raises SlipwayError: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise SlipwayError(f"there is no Dockerfile {path}") from None
    defaults: dict[str, str | None] = {}
    for match in _ARGUMENT.finditer(text):
        name, default = match["name"], match["default"]
        defaults[name] = _unquoted(default.rstrip(" \t")) if default is not None else defaults.get(name)
    return defaults


def _unquoted(text: str) -> str:
    commented = _COMMENTED.fullmatch(text)
    value = commented[1] if commented else text
    quoted = _QUOTED.fullmatch(value)
    return quoted[2] if quoted else value


@dataclass(frozen=True)
class ArgumentComment:
    """The comment above an argument: the source of the argument's value, "" for none, and its meaning."""

    set_by: str
    meaning: str


def argument_comments(path: Path) -> dict[str, ArgumentComment]:
    """Return a Dockerfile's comments of the form ``# NAME (what sets it) Meaning.``, by the argument in the next line.

    BuildKit reads a comment that starts with the argument's name as its description, and
    ``docker buildx build --call outline`` prints it (Docker's manual, ``--call``).
    """
    comments: dict[str, ArgumentComment] = {}
    above: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := _ARGUMENT.match(line):
            for comment in above:
                if parts := re.fullmatch(rf"# {match['name']}(?: \((?P<by>[^)]+)\))?(?: (?P<meaning>.+))?", comment):
                    comments.setdefault(match["name"], ArgumentComment(parts["by"] or "", parts["meaning"] or ""))
        above = [*above, line] if line.startswith("#") else []
    return comments


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
