"""What a Dockerfile takes: its arguments and their defaults."""

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
"""What stands behind a Dockerfile's name where its comments are meant."""

# A comment, but none of the directives, which stand before all else (Dockerfile reference, parser directives).
_COMMENT = re.compile(rb"\s*#(?!\s*(?:syntax|escape|check)\s*=)", re.IGNORECASE)
_ARGUMENT = re.compile(
    r"""^ARG[ \t]+(?P<name>[A-Za-z_]\w*)(?:=(?P<quote>["']?)(?P<default>.*?)(?P=quote))?[ \t]*$""", re.MULTILINE
)


def arguments(path: Path) -> dict[str, str | None]:
    """Return a Dockerfile's arguments and the default of each; None where no stage gives it one.

    Raises:
        SlipwayError: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SlipwayError(f"there is no Dockerfile {path}") from None
    found: dict[str, str | None] = {}
    for match in _ARGUMENT.finditer(text):
        found[match["name"]] = match["default"] if match["default"] is not None else found.get(match["name"])
    return found


@dataclass(frozen=True)
class Described:
    """What the comment above an argument says of it: what sets it, "" for nobody, and what it means."""

    set_by: str
    meaning: str


def described(path: Path) -> dict[str, Described]:
    """Return what a Dockerfile says of its arguments, in a line above one of each: ``# NAME (what sets it) Meaning.``.

    A comment that starts with an argument's name is BuildKit's own form of a description, which
    ``docker buildx build --call outline`` shows (Docker's manual, ``--call``).
    """
    found: dict[str, Described] = {}
    above: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _ARGUMENT.match(line):
            for comment in above:
                if said := re.fullmatch(rf"# {match['name']}(?: \((?P<by>[^)]+)\))?(?: (?P<meaning>.+))?", comment):
                    found.setdefault(match["name"], Described(said["by"] or "", said["meaning"] or ""))
        above = [*above, line] if line.startswith("#") else []
    return found


def told_apart(files: Mapping[str, str], name: str, path: Path) -> dict[str, str]:
    """Return a context's files with the Dockerfile, which lies at ``path``, as two: what it does, and its comments.

    All of it is hashed by the provider, and edited comments build anew: so a preview can say that it is they. The two
    leave out nothing: ends of lines and the file's mode are told with what it does, and with a comment where it stands.
    """
    comments: list[tuple[bytes, int, bytes]] = []
    above: list[bytes] = []
    rest: list[bytes] = []
    alike: Counter[bytes] = Counter()
    for line in path.read_bytes().splitlines(keepends=True):
        if _COMMENT.match(line):
            above.append(line)
            continue
        # Where it stands is told by how the next line begins, which another value or another line elsewhere leaves.
        begins = b" ".join(re.findall(rb"\w+", line)[:2])
        comments += [(begins, alike[begins], comment) for comment in above]
        alike[begins] += 1
        above.clear()
        rest.append(line)
    comments += [(b"", -1, comment) for comment in above]
    does = context.digest(b"".join(rest), executable=bool(path.stat().st_mode & stat.S_IXUSR))
    apart = {name: does} | (
        {f"{name} {COMMENTS}": hashlib.sha256(repr(comments).encode()).hexdigest()} if comments else {}
    )
    return {key: value for key, value in files.items() if key != name} | apart


def mirrored(values: Mapping[str, str | None], mirrors: Mapping[str, str]) -> dict[str, str]:
    """Return those arguments whose value is a public address that a mirror replaces, with what stands in its place.

    ``mirrors`` maps a public address to the one that replaces it, and what stands below it; the longest match wins.
    """
    result = {}
    for name, value in values.items():
        fitting = [base for base in mirrors if value and (value == base or value.startswith(f"{base}/"))]
        if value and fitting:
            base = max(fitting, key=len)
            result[name] = mirrors[base] + value[len(base) :]
    return result
