"""Variables and quotes in a Dockerfile's words, as BuildKit's ``frontend/dockerfile/shell/lex.go`` reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The characters that BuildKit takes as spaces: Go's ``unicode.IsSpace``."""
_SPECIAL = "@*#?-$!0"
"""The shell's special parameters, which are names of one character."""


_LONGEST = 128 << 10
"""Characters of values in one word. Linux gives a program no longer variable, and no longer path
(execve(2), MAX_ARG_STRLEN)."""

_MEANING = re.compile(r"[$'\"\\`]")
"""The characters with a meaning in a word. Most words have none, and are not read character by character."""


class ExpansionError(ValueError):
    """A word that BuildKit cannot read, or without a value before the build; the text says why."""


class WordError(ExpansionError):
    """A word that BuildKit refuses whenever it reads it."""


Unknown = Callable[[str, str, str], str | None]
"""What stands for ``${name<operator>word}``, by these three; None if the variables say it."""


def expand(
    word: str,
    variables: Mapping[str, str | None],
    *,
    escape: str,
    complete: bool,
    unknown: Unknown = lambda *_: None,
) -> str:
    """Return a word with its variables replaced and its quotes removed.

    Args:
        word: as the Dockerfile has it.
        variables: values by name; None for one that only the build knows.
        escape: the Dockerfile's escape character.
        complete: whether a variable without an entry is unset; the parent image may set it otherwise.
        unknown: returns what stands for a variable; None to take its value.

    Raises:
        ExpansionError: a value is not known before the build, the values are too long, or the word uses a form other
            than ``$x``, ``${x}``, ``${x:-word}``, ``${x:+word}``, ``${x:?word}`` and these without the colon.
    """
    if not _MEANING.search(word):
        return word
    return _Lexer(word, escape, variables, complete=complete, unknown=unknown).result()


def raw_words(text: str) -> list[str]:
    r"""Return the words between a text's unquoted spaces, as they are written, with ``\`` as the escape character.

    BuildKit looks for here-documents in these. Spaces between ``<<`` and a name do not part them.

    Raises:
        ExpansionError: a quote or a brace is not closed, or ``${`` begins no variable.
    """
    lexer = _Lexer(text, "\\", None, complete=True)
    lexer.result()
    return lexer.words + ([lexer.word] if lexer.word else [])


class _Lexer:
    """Reads a text once. Without ``variables``, it leaves variables, quotes and escape characters as they are."""

    def __init__(
        self,
        text: str,
        escape: str,
        variables: Mapping[str, str | None] | None,
        *,
        complete: bool,
        unknown: Unknown = lambda *_: None,
    ) -> None:
        self.words: list[str] = []
        self.word = ""
        self._whole, self._escape = text, escape
        self._variables, self._complete, self._unknown = variables, complete, unknown
        self._raw = variables is None
        self._position = 0
        self._length = 0

    def result(self) -> str:
        """Return all of the text, read."""
        try:
            return self.text("")
        except RecursionError:
            raise ExpansionError(f"{self._whole}: its variables are nested too deep") from None

    def _peek(self) -> str:
        return self._whole[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        self._position += 1
        return character

    def text(self, end: str, *, escapes: bool = False) -> str:
        """Return the text up to an ending character, or to the end of all for none; ``escapes`` is for what stays."""
        result = ""
        while character := self._peek():
            if character == end:
                self._position += 1
                return result
            if character == "$":
                part = self._variable()
                self._add(part, parted=True)
            elif character in "'\"":
                part = self._single_quoted() if character == "'" else self._double_quoted()
                self._add(part)
            elif character == "<":
                part = self._angles()
                self._add(part)
            elif character == self._escape:
                self._position += 1
                part = (self._escape if self._raw and (escapes or not end) else "") + self._next()
                self._add(part)
            else:
                part = self._next()
                self._add(part, parted=True)
            result += part
        if end:
            raise WordError(f"{self._whole}: the '{end}' is missing")
        return result

    def _add(self, part: str, *, parted: bool = False) -> None:
        if not self._raw:
            return  # nobody asks for the words
        for character in part:
            if not parted or character not in SPACE:
                self.word += character
            elif self.word:
                self.words.append(self.word)
                self.word = ""

    def _single_quoted(self) -> str:
        start = self._position
        end = self._whole.find("'", start + 1)
        if end < 0:
            raise WordError(f"{self._whole}: a quote is not closed")
        self._position = end + 1
        return self._whole[start : end + 1] if self._raw else self._whole[start + 1 : end]

    def _double_quoted(self) -> str:
        quote = self._next() if self._raw else ""
        result = quote
        self._position += not quote
        while character := self._peek():
            if character == '"':
                self._position += 1
                return result + quote
            if character == "$":
                result += self._variable()
                continue
            self._position += 1
            if character == self._escape:
                if self._raw:
                    result += character
                if not self._peek():
                    break
                if self._peek() in ('"', "$", self._escape):
                    character = self._next()
            result += character
        raise WordError(f"{self._whole}: a quote is not closed")

    def _angles(self) -> str:
        result = self._next()
        if self._peek() == "<":
            result += self._next()
            while self._peek() and self._peek() in "\t\r ":
                result += self._next()
        return result

    def _variable(self) -> str:
        self._position += 1
        if self._peek() != "{":
            name = self._name()
            return self._plain(name, f"${name}") if name else "$"
        self._position += 1
        if not self._peek() or self._peek() in "{}:":
            raise WordError(f"{self._whole}: ${{ begins no variable")
        name = self._name()
        operator = self._next()
        if operator == "}":
            return self._plain(name, f"${{{name}}}")
        operator += self._next() if operator == ":" else ""
        if operator == "/":
            operator += self._next() if self._peek() == "/" else ""
            pattern = self._nested("/", escapes=True)
            # BuildKit leaves `${x//a/b}` as `${x/a/b}` where it replaces no variable (lex.go:467)
            return self._operated(name, "/" if self._raw else operator, f"{pattern}/{self._nested('}', escapes=True)}")
        if operator not in ("-", "+", "?", ":-", ":+", ":?", "#", "%"):
            raise WordError(f"{self._whole}: ${{{name}{operator}...}} is a form that BuildKit does not have")
        return self._operated(name, operator, self._nested("}", escapes=operator in "#%"))

    def _nested(self, end: str, *, escapes: bool) -> str:
        self.word = ""  # BuildKit's nested words share the buffer of the outer ones
        words, self.words = self.words, []
        result = self.text(end, escapes=escapes)
        self.words, self.word = words, ""
        return result

    def _name(self) -> str:
        start = self._position
        if self._peek().isdecimal():
            while self._peek().isdecimal():
                self._position += 1
        elif self._peek() and self._peek() in _SPECIAL:
            self._position += 1
        else:
            while self._peek().isalpha() or self._peek().isdecimal() or self._peek() == "_":
                self._position += 1
        return self._whole[start : self._position]

    def _plain(self, name: str, text: str) -> str:
        """Return the replacement of a variable that is written as ``text``."""
        if self._raw:
            return text
        part = self._unknown(name, "", "")
        return (self._value(name) or "") if part is None else part

    def _operated(self, name: str, operator: str, word: str) -> str:
        """Return what stands for ``${name<operator>word}``."""
        if self._raw:
            return f"${{{name}{operator}{word}}}"
        part = self._unknown(name, operator, word)
        if part is not None:
            return part
        if operator[-1] not in "-+?":
            raise ExpansionError(
                f"{self._whole}: ${{{name}{operator}...}} is a form that older engines do not have; write the value out"
            )
        value = self._value(name)
        given = value is not None and (value != "" or operator[0] != ":")
        if operator[-1] == "+":
            return word if given else ""
        if not given and operator[-1] == "?":
            raise WordError(f"{self._whole}: {name}: {word or 'has no value'}")
        return value or "" if given else word

    def _value(self, name: str) -> str | None:
        """Return a variable's value; None if it has none."""
        variables = self._variables or {}
        if name not in variables:
            if not self._complete:
                raise ExpansionError(f"{self._whole}: no ARG or ENV before it sets {name}; only the parent image might")
            return None
        value = variables[name]
        if value is None:
            raise ExpansionError(f"{self._whole}: the value of {name} is known in the build alone")
        self._length += len(value)
        if self._length > _LONGEST:
            raise ExpansionError(f"{self._whole}: values of more than {_LONGEST >> 10} KiB")
        return value
