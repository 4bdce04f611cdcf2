"""Terraform's files as values, in HCL's own syntax or JSON. What only Terraform can know is an :class:`Expression`.

The syntax is that of hashicorp/hcl, hclsyntax/spec.md. The reader is Slipway's own: python-hcl2 8.1.4 installs a
package `cli`, as Slipway does. From 7.3.1 on it needs `regex`, a compiled package.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_SPACE: Final = {False: re.compile(r"(?:[ \t\r]+|(?:#|//)[^\n]*)+"), True: re.compile(r"(?:\s+|(?:#|//)[^\n]*)+")}
"""Blanks and comments, by whether a new line is one."""

_NAME: Final = re.compile(r"[^\W\d][\w-]*|\d+")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_HEREDOC: Final = re.compile(r"<<-?([^\W\d][\w-]*)[ \t\r]*\n")
_FOR: Final = re.compile(r"[\[{]\s*for\s+\w")
_PLAIN: Final = re.compile(r'[^"\\$%\n]+|\$\$\{|%%\{|[$%](?!\{)')
_ESCAPE: Final = re.compile(r'\\(?:[nrt"\\]|u[0-9a-fA-F]{4})')
_REFERENCE: Final = re.compile(r'[^\W\d][\w-]*(?:\.[\w*-]+|\["?[\w*.-]*"?\])*')
_WORDS: Final = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Expression:
    """What is no literal: a reference, a call, a template, an operation."""

    text: str

    def __str__(self) -> str:
        """Return the reference that it is. Anything else is not shown: it may have a credential."""
        inner = self.text.removeprefix('"').removesuffix('"').removeprefix("${").removesuffix("}").strip()
        return inner if _REFERENCE.fullmatch(inner) else "an expression"


def read_json(text: str) -> Any:
    """Return the values of a file ``*.tf.json`` or ``*.tfvars.json``. Raises ValueError where it is no JSON."""
    return _templates(json.loads(text))


def _templates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _templates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(_templates, value)]
    return Expression(value) if isinstance(value, str) and re.search(r"[$%]\{", value) else value


def read_hcl(text: str) -> dict[str, Any]:
    """Return the attributes of a file, and its blocks as lists, each below its labels.

    Raises ValueError: the text is not of HCL's syntax; it names the line.
    """
    reader = _Reader(text)
    try:
        return reader.items("")
    except ValueError as error:
        raise ValueError(f"line {text.count(chr(10), 0, reader.at) + 1}: {error}") from None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""

    def skip(self, *, lines: bool) -> None:
        while self.match(_SPACE[lines]) or self.text.startswith("/*", self.at):
            if self.text.startswith("/*", self.at):
                end = self.text.find("*/", self.at + 2)
                if end < 0:
                    raise ValueError("/* has no end")
                self.at = end + 2

    def items(self, end: str) -> dict[str, Any]:
        """Return the attributes and blocks of a body, or the items of an object."""
        values: dict[str, Any] = {}
        while True:
            self.skip(lines=True)
            if self.next == end:
                self.at += len(end)
                return values
            words: list[str] = []
            while self.next == '"' or _NAME.match(self.text, self.at):
                words.append(str(self.string() if self.next == '"' else self.match(_NAME)))
                self.skip(lines=False)
            if not words and self.next == "(":
                words.append(str(self.value("=:")))
            if len(words) == 1 and self.next in {"=", ":"}:
                self.at += 1
                values[words[0]] = self.value("\n,}")
                self.at += self.next == ","
            elif words and self.next == "{":
                self.at += 1
                block = self.items("}")
                for label in reversed(words[1:]):
                    block = {label: block}
                values.setdefault(words[0], []).append(block)
            else:
                raise ValueError('expected NAME = VALUE, or a block such as module "runners" {')

    def value(self, ends: str) -> Any:
        """Return a literal up to one of ``ends``, or the Expression that stands there."""
        lines = "\n" not in ends
        self.skip(lines=lines)
        start = self.at
        value = self.literal()
        self.skip(lines=lines)
        if self.at > start and (not self.next or self.next in ends):
            return value
        end = self.over(ends)
        if self.at == start:
            raise ValueError("expected a value")
        return Expression(self.text[start:end])

    def literal(self) -> Any:
        """Return a literal; without one, nothing is read."""
        if self.next == '"':
            return self.string()
        if self.next in {"[", "{"} and not _FOR.match(self.text, self.at):
            self.at += 1
            return self.list() if self.text[self.at - 1] == "[" else self.items("}")
        if heredoc := _HEREDOC.match(self.text, self.at):
            return self.heredoc(heredoc)
        if number := self.match(_NUMBER):
            return int(number) if number.lstrip("-").isdecimal() else float(number)
        word = _NAME.match(self.text, self.at)
        if word and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        return None

    def list(self) -> list[Any]:
        values: list[Any] = []
        self.skip(lines=True)
        while self.next != "]":
            values.append(self.value(",]"))
            self.at += self.next == ","
            self.skip(lines=True)
        self.at += 1
        return values

    def heredoc(self, opening: re.Match[str]) -> Any:
        end = re.compile(rf"^[ \t]*{opening[1]}[ \t\r]*$", re.MULTILINE).search(self.text, opening.end())
        if end is None:
            raise ValueError(f"<<{opening[1]} has no end")
        self.at = end.end()
        return _templates(self.text[opening.end() : end.start()])

    def string(self) -> Any:
        start, parts, template = self.at, [""], False
        self.at += 1
        while self.next != '"':
            if plain := self.match(_PLAIN):
                parts.append(plain[1:] if plain in {"$${", "%%{"} else plain)
            elif escape := self.match(_ESCAPE):
                parts.append(json.loads(f'"{escape}"'))
            elif self.next in {"$", "%"}:
                self.at += 2
                self.over("}")
                self.at += 1
                template = True
            else:
                raise ValueError("a text has no end, or an unknown escape")
        self.at += 1
        return Expression(self.text[start : self.at]) if template else "".join(parts)

    def over(self, ends: str) -> int:
        """Pass an expression, up to one of ``ends`` outside of its brackets. Return its own end, before a comment."""
        depth = 0
        while True:
            end = self.at
            self.skip(lines="\n" not in ends)
            if depth == 0 and (not self.next or self.next in ends):
                return end
            if self.next == '"':
                self.string()
            elif heredoc := _HEREDOC.match(self.text, self.at):
                self.heredoc(heredoc)
            elif not self.next or (depth == 0 and self.next in ")]}"):
                raise ValueError("a bracket is not closed, or not opened")
            else:
                depth += (self.next in "([{") - (self.next in ")]}")
                self.at += 1
