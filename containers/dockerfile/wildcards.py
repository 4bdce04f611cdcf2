"""Patterns with wildcards, as regular expressions; the time of a comparison is bounded by the length of the text.

Python's ``re`` tries each way in which several wildcards can share a text: for the pattern ``*a*a*a*a*b`` and a name of
two hundred letters these are more than any build has seconds. Go's ``regexp`` follows all ways at once. So does this
module where a pattern has more than two wildcards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

_MOST_TRIED: Final = 2
"""Wildcards of a pattern that ``re`` compares: the fewer ways there are, the less it matters."""
_FOLDERS, _ANY = "(.*/)?", ".*"
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_PIECE: Final = re.compile(
    rf"{re.escape(_FOLDERS)}|(?P<any>{re.escape(_ANY)})|(?P<repeated>{_CLASS})\*|{_CLASS}|\\[^0-9A-Za-z]|\\[dDsSwW]|\.|[^\\\[(.*?^$+{{}}|)]",
    re.DOTALL,
)
"""A wildcard, or what stands for one character."""
_ESCAPE_OR_CLASS: Final = re.compile(rf"\\.|{_CLASS}", re.DOTALL)
_SET: Final = re.compile(r"(?<=.)(?<!\\)(\[|&(?=&)|~(?=~)|\|(?=\|))")
"""What may one day be a set in a class of ``re``, which warns of it, and is a character in one of Go's."""


class _Piece(NamedTuple):
    """A part of an expression: what it takes of one character, and whether it takes any number of such characters.

    ``folders`` says that it takes nothing, or all up to a slash.
    """

    one: re.Pattern[str]
    repeated: bool
    folders: bool


def comparing(expression: str, flags: re.RegexFlag) -> Callable[[str], bool]:
    """Return the function that tells whether a regular expression fits a whole text.

    It is of characters, classes, ``.*``, ``(.*/)?`` and classes with ``*``; ``flags`` are those of ``re``.

    Raises re.error: the expression is malformed, or has many wildcards beside what is none of these.
    """
    expression = _ESCAPE_OR_CLASS.sub(lambda written: _SET.sub(r"\\\g<1>", written[0]), expression)
    whole = re.compile(expression, flags)
    if expression.count("*") <= _MOST_TRIED:
        return lambda text: whole.fullmatch(text) is not None
    pieces = list(_pieces(expression, flags))
    if None in pieces:
        raise re.error("many wildcards beside an anchor or a group")
    return _Automaton([piece for piece in pieces if piece]).fits


def _pieces(expression: str, flags: re.RegexFlag) -> Iterator[_Piece | None]:
    """Yield the parts of an expression, and None instead of what is no such part."""
    position = 0
    while position < len(expression):
        match = _PIECE.match(expression, position)
        if not match:
            yield None
            return
        text, repeated = match[0], match["repeated"]
        one = "." if text in {_FOLDERS, _ANY} else repeated or text
        yield _Piece(re.compile(one, flags), match["any"] is not None or repeated is not None, text == _FOLDERS)
        position = match.end()


class _Automaton:
    """All places of a pattern at which a text may be, as bits: bit N is before piece N, the last one at the end."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = pieces
        self._end = 1 << len(pieces)
        self._folders = sum(1 << place for place, piece in enumerate(pieces) if piece.folders)
        self._skipped = sum(1 << place for place, piece in enumerate(pieces) if piece.repeated or piece.folders)
        self._steps: dict[str, tuple[int, int, int]] = {}

    def fits(self, text: str) -> bool:
        """Return whether the pattern fits a whole text."""
        places = self._with_skipped(1)
        inside = places & self._folders  # the pieces that may be in the middle of folders
        for character in text:
            passing, staying, within = self._step(character)
            places = (places & passing) << 1 | places & staying
            inside &= within
            if character == "/":
                places |= inside << 1
            places = self._with_skipped(places)
            inside |= places & self._folders
            if not places and not inside:
                return False
        return bool(places & self._end)

    def _step(self, character: str) -> tuple[int, int, int]:
        """Return the pieces for a character to pass, those that keep it, and those of folders."""
        if character not in self._steps:
            masks = [0, 0, 0]
            for place, piece in enumerate(self._pieces):
                if piece.one.fullmatch(character):
                    masks[2 if piece.folders else 1 if piece.repeated else 0] |= 1 << place
            self._steps[character] = masks[0], masks[1], masks[2]
        return self._steps[character]

    def _with_skipped(self, places: int) -> int:
        """Return places with those behind pieces that need take nothing: a sum carries a bit to the end of a row."""
        return places | ((places & self._skipped) + self._skipped) ^ self._skipped
