"""Which files of a build context are ignored, by the rules of Docker's own ignore files.

The rules are those of `moby/patternmatcher`, which Docker and BuildKit use, with its corner cases: a pattern is cleaned
text that is compared as a whole, a prefix, a suffix or a regular expression, and a directory's matches hold for its
contents.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from containers.dockerfile.wildcards import comparing
from containers.path_prefixes import prefixes

_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Go's unicode.IsSpace, which is not quite Python's str.strip()."""
_GLOB = frozenset("*[]?^\\")
_ESCAPED = frozenset(".+()|{}$")
"""Special in a regular expression and plain text in an ignore pattern."""
_LONGEST_LINE = 64 * 1024

Matched = tuple[bool, ...]
"""For each pattern, whether a directory matched it; empty for the root."""


class PatternError(ValueError):
    """An ignore pattern that cannot be read; the text says which and why."""


@dataclass(frozen=True)
class Pattern:
    """One line of an ignore file.

    Attributes:
        text: the cleaned pattern, without the `!`.
        exception: whether it includes ignored files again (`!`).
        match: says whether a path, relative and slash-separated, fits the pattern itself.
    """

    text: str
    exception: bool
    match: Callable[[str], bool]

    @property
    def stem(self) -> str:
        """The pattern without a trailing `/**` or `/*`."""
        return self.text.removesuffix("/**").removesuffix("/*")


def clean(path: str) -> str:
    """Return the shortest path with the same meaning, as Go's path.Clean does."""
    cleaned = posixpath.normpath(path)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def join(*parts: str) -> str:
    """Join paths as Go's path.Join does: empty ones count for nothing."""
    return clean("/".join(part for part in parts if part))


def parse(content: bytes) -> list[str]:
    """Read an ignore file: one pattern a line, comments and blank lines left out, leading slashes dropped.

    Raises PatternError: for a line longer than Docker reads.
    """
    patterns = []
    for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if len(raw) >= _LONGEST_LINE:
            raise PatternError("a line is longer than 65536 bytes")
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if line.startswith("#"):
            continue
        line = line.strip(_GO_SPACE)
        if not line:
            continue
        exception = line.startswith("!")
        text = line[1:].strip(_GO_SPACE) if exception else line
        if text:
            text = clean(text)
            if len(text) > 1:
                text = text.removeprefix("/")
        patterns.append("!" + text if exception else text)
    return patterns


class Matcher:
    """The patterns of an ignore file, as :func:`parse` returns them, which match paths; later ones win.

    Raises PatternError: a pattern is malformed.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: list[Pattern] = []
        for line in patterns:
            stripped = line.strip(_GO_SPACE)
            if stripped:
                self.patterns.append(_compile(clean(stripped)))
        self.exceptions = [pattern for pattern in self.patterns if pattern.exception]
        self._only_plain_exceptions = not any(_GLOB & set(pattern.stem) for pattern in self.exceptions)

    def match(self, path: str, parent: Matched = ()) -> tuple[bool, Matched]:
        """Return whether a path is ignored, and the ``parent`` of the paths below it.

        The path is relative to the context, slash-separated. ``parent`` is what this returned for the directory that it
        lies in; empty at the root.

        Raises PatternError: a pattern is malformed.
        """
        ignored = False
        results = []
        for index, pattern in enumerate(self.patterns):
            matched = parent[index] if parent else False
            if not matched and pattern.exception == ignored:
                matched = pattern.match(path)
            results.append(matched)
            if matched:
                ignored = not pattern.exception
        return ignored, tuple(results)

    def ignores(self, path: str) -> bool:
        """Say whether a path is ignored, or a directory above it."""
        ignored = False
        matched: Matched = ()
        for prefix in prefixes(path):
            ignored, matched = self.match(prefix, matched)
        return ignored

    def tops(self) -> set[str] | None:
        """Return the only names at the root that can belong to the context; None where any can.

        After a first `*`, only exceptions include something. So the other images' folders are not walked.
        """
        if not self.patterns or self.patterns[0].exception or self.patterns[0].text != "*":
            return None
        if not self._only_plain_exceptions:
            return None
        # An exception can name the context itself or a folder above it; neither is in the context.
        return {next(prefixes(pattern.stem)) for pattern in self.exceptions} - {"", ".", ".."}

    def prunes(self, directory: str) -> bool:
        """Say whether no exception can match below an ignored directory, so that it need not be read."""
        if not self._only_plain_exceptions:
            return False
        prefix = directory + "/"
        return not any((pattern.stem + "/").startswith(prefix) for pattern in self.exceptions)


def _compile(cleaned: str) -> Pattern:
    exception = cleaned.startswith("!")
    text = cleaned[1:] if exception else cleaned
    if not text:
        raise PatternError('illegal exclusion pattern: "!"')
    if _malformed(text):
        raise PatternError(f"syntax error in pattern: {text}")
    return Pattern(text, exception, _matching(text))


def _matching(text: str) -> Callable[[str], bool]:  # noqa: PLR0912 - one branch for each character with a meaning
    """Return the function that compares: as a whole, a prefix, a suffix or a regular expression."""
    kind, expression, position, first = "equal", "", 0, True
    while position < len(text):
        character = text[position]
        position += 1
        if character == "*" and text.startswith("*", position):
            position += 1
            if text.startswith("/", position):
                position += 1
            if position < len(text):
                expression += "(.*/)?"
                kind = "expression"
            elif kind == "equal":
                kind = "prefix"
            else:
                expression += ".*"
                kind = "expression"
            if first:
                kind = "suffix"
        elif character in "*?":
            expression += "[^/]*" if character == "*" else "[^/]"
            kind = "expression"
        elif character in _ESCAPED:
            expression += "\\" + character
        elif character == "\\":
            expression += "\\" + text[position : position + 1]
            kind = "expression"
            position += 1
        else:
            expression += character
            if character in "[]":
                kind = "expression"
        first = False
    if kind == "equal":
        return text.__eq__
    if kind == "prefix":
        return _prefix(text[:-2])
    if kind == "suffix":
        return _suffix(text[2:])
    return _expression(text, expression)


def _expression(text: str, expression: str) -> Callable[[str], bool]:
    @cache
    def compiled() -> Callable[[str], bool]:
        """Compile at the first use: a malformed pattern that is never used is no error."""
        try:
            return comparing(expression, re.ASCII)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(f"syntax error in pattern: {text}") from error

    def fits(path: str) -> bool:
        return compiled()(path)

    return fits


def _prefix(prefix: str) -> Callable[[str], bool]:
    return lambda path: path.startswith(prefix)


def _suffix(suffix: str) -> Callable[[str], bool]:
    if suffix.startswith("/"):
        return lambda path: path.endswith(suffix) or path == suffix[1:]
    return lambda path: path.endswith(suffix)


def _malformed(text: str) -> bool:
    """Say whether Go's filepath.Match would refuse the pattern: an open class, an empty one, a lone backslash."""
    position = 0

    def literal() -> bool:
        """Step over one character of a class; False where there is none."""
        nonlocal position
        if position >= len(text) or text[position] in "-]":
            return False
        if text[position] == "\\":
            position += 1
        position += 1
        return position < len(text)

    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                return True
            position += 1
        elif character == "[":
            if text.startswith("^", position):
                position += 1
            ranges = 0
            while not (ranges and text.startswith("]", position)):
                if not literal():
                    return True
                if text.startswith("-", position):
                    position += 1
                    if not literal():
                        return True
                ranges += 1
            position += 1
    return False
