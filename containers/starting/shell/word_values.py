"""The values of words of a shell."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Final

from containers.starting.shell.script_state import Shell, State
from containers.starting.shell.shell_text import MOST_CHARACTERS

_VARIABLE: Final = r"""\$(?:\w++|[@*#?$!-]|\([^()"]*\)|\{[^{}"]*\})"""
_PIECE: Final = re.compile(
    rf"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\$`]|\\.|{_VARIABLE}|\$(?=[ "]|$))*)"|\\(?P<escaped>.)"""
    rf"""|(?P<variable>{_VARIABLE})|(?P<plain>[^'"\\$`]+)""",
    re.DOTALL,
)
_WITHIN: Final = re.compile(rf"""(?P<escaped>\\[\\$`"\n])|(?P<variable>{_VARIABLE})|(?P<plain>[^\\$]+|.)""", re.DOTALL)
"""Parts of a word, and of what is between quotes."""
_EXPANDED: Final = re.compile(r"[*?\[\]{}(]|^~")
_SPECIAL: Final = re.compile(r"[*?\[\\]")
"""Characters of a word that a shell makes files or an array of, and of an unquoted value that is a pattern."""
_ALL: Final = {"$@", "${@}", '"$@"', '"${@}"', "$*", "${*}"}
_FROM: Final = re.compile(r'"?\$\{@:([1-9]\d?)\}"?', re.ASCII)
_PARAMETER: Final = re.compile(
    r"\$(?:\{(?P<braced>\w+)(?P<change>[#%:][^{}]*)?\}|(?P<bare>[0-9]|[A-Za-z_]\w*))", re.DOTALL
)
_OF_BASH: Final = {"$UID", "$EUID", "${UID}", "${EUID}"}
"""The user's number in bash; other shells have no such variables."""
_ITSELF: Final = {"$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}"}
ONE_WORD: Final = re.compile(r"[\w./@%+:,=-]+")
QUOTED: Final = re.compile(r"""(?:[^"'$]|"[^"]*"|'[^']*')*""")
"""A word whose variables are all between quotes: its value stays one word."""
NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
"""A number to all shells; for bash's `[[`, 010 is 8."""
_ARRAY: Final = re.compile(r'"\$\{(\w+)\[@\]\}"')
"""All words of an array."""
_SEVERAL: Final = re.compile(r"\$\{?@|\[@\]")
"""What makes several words of one, as in `"exec $@"`."""
_ELEMENT: Final = re.compile(r"\$\{(#?)(\w+)\[([0-9]{1,3}|[@*])\]\}", re.ASCII)
"""An element of an array, or how many it has."""


class Values:
    """The values of a script's words, by what is known on a way.

    ``calls`` are the functions that run, the innermost last.
    """

    def __init__(self, shell: Shell, calls: Sequence[str]) -> None:
        self._shell, self._calls = shell, calls

    def values(self, words: Sequence[str], state: State) -> tuple[str | None, ...]:
        """Return the values of words; where one may be none or several unknown ones, the last value is None."""
        values: list[str | None] = []
        for word in words:
            if (known := self._list(word, state)) is not None:
                values += known
                if None in known[-1:]:
                    break
                continue
            value = None if _SEVERAL.search(word) else self.value(word, state)
            if value == "" and "$" in word and '"' not in word:
                continue
            if value is None or not (QUOTED.fullmatch(word) or ONE_WORD.fullmatch(value)):
                return (*values, None)
            values.append(value)
        return tuple(values)

    def value(self, word: str, state: State) -> str | None:
        """Return the value of a word as between quotes; None if it is unknown."""
        value, place = "", 0
        while place < len(word):
            match = _PIECE.match(word, place)
            if match is None:
                return None
            place = match.end()
            if match["plain"] is not None and _EXPANDED.search(match["plain"]):
                return None
            piece = self._piece(match, state)
            if piece is None:
                return None
            value += piece
            if len(value) > MOST_CHARACTERS:
                return None
        return value

    def matches(self, subject: str | None, pattern: str, state: State) -> bool | None:
        """Return whether a word matches a pattern; None if that is not known."""
        if subject is None:
            return True if pattern == "*" else None
        shell = ""
        place = 0
        while place < len(pattern):
            match = _PIECE.match(pattern, place)
            if match is None:
                return None
            place = match.end()
            if match["plain"] is not None:
                shell += match["plain"].replace("[^", "[!")
            elif (piece := self._piece(match, state)) is None or (match["variable"] and _SPECIAL.search(piece)):
                return None
            else:
                shell += re.sub(r"[*?\[]", r"[\g<0>]", piece)
        if "[[:" in shell or ("[^" in pattern and not self._shell.is_bash):  # dash has no `[^`
            return None
        return fnmatch.fnmatchcase(subject, shell)

    def _list(self, word: str, state: State) -> tuple[str | None, ...] | None:
        """Return the words of all arguments, of those from one on, or of an array; None for another word."""
        if word in _ALL:
            return state.arguments
        if start := _FROM.fullmatch(word):
            return state.arguments[int(start[1]) - 1 :]
        array = _ARRAY.fullmatch(word)
        return state.arrays.get(array[1], (None,)) if array else None

    def _piece(self, match: re.Match[str], state: State) -> str | None:
        if match["variable"] is not None:
            return self._variable(match["variable"], state)
        if match["double"] is None:
            return match["single"] or (match["escaped"] or "").strip("\n") or match["plain"] or ""
        value = ""
        for part in _WITHIN.finditer(match["double"]):
            one = (
                self._variable(part["variable"], state)
                if part["variable"]
                else (part["plain"] or part["escaped"][1:].strip("\n"))
            )
            if one is None:
                return None
            value += one
        return value

    def _variable(self, text: str, state: State) -> str | None:
        """Return the value of a variable, or of what is made of it."""
        if text == "$(id -u)" or (text in _OF_BASH and self._shell.is_bash):
            return str(self._shell.uid)
        if text in _ITSELF:
            return self._shell.name if self._shell.is_bash or "BASH" not in text else None
        if text in {"$#", "${#}"}:
            return _count(state.arguments)
        if text in {"$*", "${*}", "$@", "${@}"}:
            return _joined(state.arguments)
        if function := re.fullmatch(r"\$\{FUNCNAME\[([0-9])\]\}", text):
            return [*reversed(self._calls), "main"][int(function[1])] if int(function[1]) <= len(self._calls) else ""
        if (element := _ELEMENT.fullmatch(text)) and element[2] in state.arrays:
            words = state.arrays[element[2]]
            if element[3] in {"@", "*"} or element[1]:
                return _count(words) if element[1] else _joined(words)
            return _at(words, int(element[3]))
        return self._parameter(text, state)

    def _parameter(self, text: str, state: State) -> str | None:
        """Return the value of a variable or an argument, or of what `${NAME:-other}` and the like make of it."""
        match = _PARAMETER.fullmatch(text)
        if match is None:
            return None
        name, change = match["braced"] or match["bare"], match["change"] or ""
        if name == "PWD" and state.folder.startswith("/") and not (state.loose or state.ran):
            known: str | None = state.folder
        elif NUMBER.fullmatch(name):
            known = _at((self._shell.name, *state.arguments), int(name))
        else:
            known = state.variables.get(name)
        if known is not None and (other := re.fullmatch(":([-=+])(.*)", change, re.DOTALL)):
            return self.value(other[2], state) if bool(known) == (other[1] == "+") else known
        return known if known is None or not change else _changed(known, change)


def _count(words: Sequence[str | None]) -> str | None:
    return None if None in words else str(len(words))


def _joined(words: Sequence[str | None]) -> str | None:
    return None if None in words else " ".join(map(str, words))


def _at(words: Sequence[str | None], place: int) -> str | None:
    """Return a word by its place; empty if there are fewer, None if it is unknown."""
    return words[place] if place < len(words) else None if None in words else ""


def _changed(value: str, change: str) -> str | None:
    """Return a value as `${NAME#pattern}` and the like change it; None for what is not read here."""
    if change in {"##*/", "%/*"} and "/" in value:
        return value.rpartition("/")[2 if change == "##*/" else 0]
    if cut := re.fullmatch(r"([#%])\1?([\w./:-]*)(\*?)", change):
        text = cut[2]
        if cut[3] or not text:
            return None
        is_cut = value.startswith(text) if cut[1] == "#" else value.endswith(text)
        if not is_cut:
            return value
        return value[len(text) :] if cut[1] == "#" else value[: -len(text)]
    if part := re.fullmatch(r":([0-9]{1,4})(?::([0-9]{1,4}))?", change):
        return value[int(part[1]) :][: int(part[2]) if part[2] else None]
    return (value or None) if change.startswith(":?") else None
