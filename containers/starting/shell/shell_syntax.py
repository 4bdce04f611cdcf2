"""The syntax of a shell's script, as far as scripts that start a container's command use it.

Source: POSIX.1-2017, Shell Command Language (2.3 Token Recognition, 2.9 Shell Commands, 2.10 Shell Grammar), and bash's
`[[`, `((` and `function`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from containers import budget

_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
_REDIRECTION: Final = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|<&|>>|>&|>\||<|>|&>>?)")
_SEPARATOR: Final = re.compile(r"[;\n]|&(?![&>])")
_FUNCTION: Final = re.compile(
    r"(?:function[ \t]+(?P<name>[^\s;&|()<>\"'$`]+)(?:[ \t]*\(\))?|(?P<plain>[\w.:-]+)[ \t]*\(\))\s*"
)
_PLAIN: Final = re.compile(r"[^ \t\n;&|()<>\"'`\\$]+")
_NAME: Final = re.compile(r"\w+|[@*#?$!-]")
_ESCAPED: Final = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
"""Bash's quotes with escapes."""
_BACKQUOTED: Final = re.compile(r"`((?:[^\\`]|\\.)*)`", re.DOTALL)
_OPERATOR: Final = re.compile(r"&&|\|\||[()<>]")
_EXPRESSION: Final = re.compile(r"(?:\\.|[^\s\\])+")
"""Operators within ``[[``, and what stands after ``=~``, in which parentheses group."""
_CHANGED: Final = re.compile(r"(?<![=!<>])=(?!=)|\+\+|--|(?:<<|>>)=")
"""What sets a variable in an arithmetic expression."""
_TO_NOTHING: Final = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d)|/proc/\S*|\d|-")
"""What a redirection leads to that is no file."""
_CLOSERS: Final = frozenset(["then", "do", "done", "fi", "elif", "else", "esac", "}"])
_DEEPEST: Final = 50
"""Commands within each other, and words within words, that are read."""


class UnreadableScript(Exception):
    """A script has something else than what is read here."""


class Simple(NamedTuple):
    """A command with its words as they are written, variables before it included; ``writes`` are files it writes."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()


class Chain(NamedTuple):
    """Commands between ``&&`` and ``||``, each with what stands before it, and whether its status is turned around."""

    parts: tuple[tuple[str, bool, Node], ...]


class Condition(NamedTuple):
    """``if``: its arms, each a condition and what it decides; the last condition may be empty, for ``else``."""

    arms: tuple[tuple[Block, Block], ...]


class Choice(NamedTuple):
    """``case``: its word, and its arms, each with patterns."""

    word: str
    arms: tuple[tuple[tuple[str, ...], Block], ...]


class Loop(NamedTuple):
    """A loop; ``variable`` is that of ``for``, whose ``words`` are as they are written."""

    head: Block
    body: Block
    variable: str = ""
    words: tuple[str, ...] = ()


class Apart(NamedTuple):
    """What another shell runs; ``kind`` is ``|`` for the parts of a pipe, ``(``, ``&``, ``$(`` or ``${``.

    The last is a command within ``${``, which may not run.
    """

    body: Block
    kind: str


class Group(NamedTuple):
    """Commands between braces."""

    body: Block


class Function(NamedTuple):
    """The definition of a function."""

    name: str
    body: Block


Node = Simple | Chain | Condition | Choice | Loop | Apart | Group | Function
Block = tuple[Node, ...]


def parse(text: str, *, is_bash: bool = True) -> Block:
    """Return the commands of a script. Raises UnreadableScript: it has something else."""
    return _Parser(text, is_bash=is_bash).whole()


def elements(array: str) -> tuple[str, ...]:
    """Return the words of bash's array, whose text in parentheses is given. Raises UnreadableScript."""
    parser = _Parser(array[1:-1])
    return tuple(parser.elements())


class _Parser:
    def __init__(self, text: str, depth: int = 0, *, is_bash: bool = True) -> None:
        self._text, self.place = text, 0
        self._depth, self._is_bash = depth, is_bash
        self._documents: list[tuple[str, bool]] = []
        self._writes: tuple[str, ...] = ()
        self._substituted: list[tuple[str, str]] = []

    def whole(self) -> Block:
        """Return the commands of the text."""
        body = self.block(frozenset())
        if self.place < len(self._text):
            raise UnreadableScript
        return body

    def elements(self) -> Iterator[str]:
        """Yield words up to the end of the text."""
        while self._skip_lines():
            yield self._word()

    def block(self, ends: frozenset[str]) -> Block:
        """Return commands up to one of some words, which is not taken."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableScript
        nodes: list[Node] = []
        while self._skip_lines() and not self._at(")") and not self._at(";;"):
            word = self._peek()
            if word in ends:
                break
            if word in _CLOSERS:
                raise UnreadableScript
            node = self._chain()
            self._blanks()
            if self._at("&") and not self._at("&&"):
                node = Apart((node,), "&")
            if (match := _SEPARATOR.match(self._text, self.place)) and not self._at(";;"):
                self.place = match.end()
                if match[0] == "\n":
                    self._pass_documents()
            elif self._at("("):
                raise UnreadableScript  # a pattern of bash, as `!(keep)`
            nodes.append(node)
        self._depth -= 1
        return tuple(nodes)

    def _chain(self) -> Node:
        parts: list[tuple[str, bool, Node]] = []
        operator = ""
        while True:
            turned, node = self._pipe()
            parts.append((operator, turned, node))
            self._blanks()
            operator = self._text[self.place : self.place + 2]
            if operator not in {"&&", "||"}:
                return parts[0][2] if len(parts) == 1 and not parts[0][1] else Chain(tuple(parts))
            self.place += 2
            self._skip_lines()

    def _pipe(self) -> tuple[bool, Node]:
        turned = False
        while self._peek() == "!":
            turned = not turned
            self._take("!")
        nodes = [self._command()]
        self._blanks()
        while self._at("|") and not self._at("||"):
            self.place += 2 if self._at("|&") else 1
            self._skip_lines()
            nodes.append(self._command())
            self._blanks()
        return turned, nodes[0] if len(nodes) == 1 else Apart(tuple(nodes), "|")

    def _command(self) -> Node:
        """Return a command, after those that words of it are made of."""
        budget.check()
        outer, self._substituted = self._substituted, []
        node = self._plain_command()
        inner, self._substituted = self._substituted, outer
        parsers = [(_Parser(text, self._depth, is_bash=self._is_bash), kind) for text, kind in inner]
        return Group((*(Apart(parser.whole(), kind) for parser, kind in parsers), node)) if inner else node

    def _plain_command(self) -> Node:
        self._blanks()
        word = self._peek()
        compound: dict[str, Callable[[], Node]] = {
            "if": self._if,
            "case": self._case,
            "while": self._while,
            "until": self._while,
            "for": self._for,
            "{": self._group,
            "[[": self._test,
        }
        if self._at("(("):
            return self._arithmetic()
        if self._at("("):
            node: Node = self._subshell()
        elif word in compound:
            node = compound[word]()
        elif word in {"select", "coproc", "time"}:
            raise UnreadableScript
        elif match := _FUNCTION.match(self._text, self.place):
            self.place = match.end()
            return Function(match["name"] or match["plain"], (self._command(),))
        else:
            return self._simple()
        writes: tuple[str, ...] = ()
        while self._redirection():
            writes += self._writes
        return Group((Simple((":",), writes), node)) if writes else node

    def _if(self) -> Node:
        arms = []
        keyword = "if"
        while keyword in {"if", "elif"}:
            self._take(keyword)
            condition = self.block(frozenset(["then"]))
            self._take("then")
            arms.append((condition, self.block(frozenset(["elif", "else", "fi"]))))
            keyword = self._peek()
        if keyword == "else":
            self._take("else")
            arms.append(((), self.block(frozenset(["fi"]))))
        self._take("fi")
        return Condition(tuple(arms))

    def _case(self) -> Node:
        self._take("case")
        word = self._pattern()
        self._skip_lines()
        self._take("in")
        arms = []
        while self._skip_lines() and self._peek() != "esac":
            if self._at("("):
                self.place += 1
            patterns = [self._pattern()]
            while self._at("|"):
                self.place += 1
                patterns.append(self._pattern())
            self._expect(")")
            arms.append((tuple(patterns), self.block(frozenset(["esac"]))))
            if self._at(";;&") or self._at(";&"):
                raise UnreadableScript
            if self._at(";;"):
                self.place += 2
        self._take("esac")
        return Choice(word, tuple(arms))

    def _pattern(self) -> str:
        self._blanks()
        word = self._word()
        self._blanks()
        return word

    def _while(self) -> Node:
        self._take(self._peek())
        head = self.block(frozenset(["do"]))
        return Loop(head, self._do())

    def _for(self) -> Node:
        self._take("for")
        variable = ""
        words: tuple[str, ...] = ('"$@"',)
        if self._at("(("):
            self._arithmetic()
        else:
            variable = self._pattern()
            self._skip_lines()
            if self._peek() == "in":
                self._take("in")
                words = self._simple(empty=True).words
        self._blanks()
        if self._at(";"):
            self.place += 1
        return Loop((), self._do(), variable, words)

    def _do(self) -> Block:
        self._skip_lines()
        self._take("do")
        body = self.block(frozenset(["done"]))
        self._take("done")
        return body

    def _group(self) -> Node:
        self._take("{")
        body = self.block(frozenset(["}"]))
        self._take("}")
        return Group(body)

    def _subshell(self) -> Node:
        self._expect("(")
        body = self.block(frozenset())
        self._expect(")")
        return Apart(body, "(")

    def _test(self) -> Node:
        words = ["[["]
        self._take("[[")
        while words[-1] != "]]":
            self._skip_lines()
            if operator := _OPERATOR.match(self._text, self.place):
                self.place = operator.end()
                words.append(operator[0])
            elif words[-1] == "=~" and (expression := _EXPRESSION.match(self._text, self.place)):
                self.place = expression.end()
                words.append("")
            else:
                words.append(self._word())
        return Simple(tuple(words))

    def _arithmetic(self) -> Node:
        end = self._text.find("))", self.place)
        if end < 0:
            raise UnreadableScript
        self.place = end + 2
        return Simple(("((",))

    def _simple(self, *, empty: bool = False) -> Simple:
        words: list[str] = []
        redirected = False
        writes: tuple[str, ...] = ()
        while True:
            self._blanks()
            if self._redirection():
                redirected = True
                writes += self._writes
            elif self.place < len(self._text) and (self._text[self.place] not in ";&|()<>\n#" or self._at_file()):
                words.append(self._word())
                if self._at("(") and words[-1].endswith("="):  # an array
                    start = self.place
                    self._pass_parentheses()
                    words[-1] += self._text[start : self.place]
            elif self._at("#"):
                self._comment()
            elif words or redirected or empty:
                return Simple(tuple(words), writes)
            else:
                raise UnreadableScript

    def _redirection(self) -> bool:
        self._blanks()
        match = _REDIRECTION.match(self._text, self.place)
        if match is None or (match[0][-1] in "<>" and self._text[match.end() : match.end() + 1] == "("):
            return False
        if "&>" in match[0] and not self._is_bash:
            raise UnreadableScript  # which starts a command in the background
        self.place = match.end()
        self._blanks()
        word = self._word()
        self._writes = (word,) if ">" in match[0] and not _TO_NOTHING.fullmatch(word) else ()
        if re.fullmatch(r"[^<]*<<-?", match[0]):
            self._documents.append((re.sub(r"[\\'\"]", "", word), match[0].endswith("-")))
        return True

    def _word(self) -> str:
        start = self.place
        while self.place < len(self._text):
            character = self._text[self.place]
            if match := _PLAIN.match(self._text, self.place):
                self.place = match.end()
            elif character in "\"'`\\$":
                self._pass_quoted()
            elif self._at_file():
                self.place += 1
                self._pass_substitution()
            else:
                break
        if self.place == start:
            raise UnreadableScript
        return self._text[start : self.place]

    def _at_file(self) -> bool:
        """Return whether a command begins here that bash makes a file of."""
        return self._at("<(") or self._at(">(")

    def _pass_quoted(self, *, within: bool = False) -> None:
        """Go past a quoted text, an escaped character or a variable, which may be within double quotes."""
        text, character = self._text, self._text[self.place]
        if character == "\\":
            self.place += 2
        elif character == "'":
            end = text.find("'", self.place + 1)
            if end < 0 or within:
                raise UnreadableScript
            self.place = end + 1
        elif character == "`":
            match = _BACKQUOTED.match(text, self.place)
            if match is None:
                raise UnreadableScript
            self._substituted.append((re.sub(r"\\([\\`$])", r"\1", match[1]), "$("))
            self.place = match.end()
        elif character == '"':
            self._pass_until('"')
        elif text.startswith("$((", self.place):
            self._pass_arithmetic()
        elif text.startswith("$(", self.place):
            self.place += 1
            self._pass_substitution()
        elif text.startswith("${", self.place):
            self.place += 1
            kept = len(self._substituted)
            self._pass_until("}", within=within)
            self._substituted[kept:] = [(each, "${") for each, _ in self._substituted[kept:]]
        elif match := _ESCAPED.match(text, self.place):
            self.place = match.end()
        else:
            self.place += 1
            if match := _NAME.match(text, self.place):
                self.place = match.end()

    def _pass_until(self, end: str, *, within: bool = False) -> None:
        """Go past a text in quotes or braces, from its first character to its end."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableScript
        self.place += 1
        while not self._at(end):
            budget.check()
            if self.place >= len(self._text):
                raise UnreadableScript
            escapes = end == "}" or not _ESCAPED.match(self._text, self.place)
            if (self._text[self.place] in "\\`$" and escapes) or (self._text[self.place] in "\"'" and end == "}"):
                self._pass_quoted(within=within or end == '"')
            else:
                self.place += 1
        self.place += 1
        self._depth -= 1

    def _pass_substitution(self) -> None:
        """Go past commands between parentheses, and keep them; those within them are read with them."""
        start, kept = self.place, len(self._substituted)
        self._pass_parentheses()
        self._substituted[kept:] = [(self._text[start + 1 : self.place - 1], "$(")]

    def _pass_arithmetic(self) -> None:
        self.place += 1
        start = self.place
        self._pass_parentheses()
        if _CHANGED.search(self._text, start, self.place):
            raise UnreadableScript

    def _pass_parentheses(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableScript
        self.place += 1
        while not self._at(")"):
            budget.check()
            if self.place >= len(self._text):
                raise UnreadableScript
            if self._at("("):
                self._pass_parentheses()
            elif self._text[self.place] in "\"'`\\$":
                self._pass_quoted()
            elif self._at("#") and self._text[self.place - 1] in " \t\n":
                self._comment()
            else:
                self.place += 1
        self.place += 1
        self._depth -= 1

    def _skip_lines(self) -> bool:
        """Go past blanks, comments and ends of lines; return whether anything is left."""
        while True:
            self._blanks()
            if self._at("\n"):
                self.place += 1
                self._pass_documents()
            elif self._at("#"):
                self._comment()
            else:
                return self.place < len(self._text)

    def _pass_documents(self) -> None:
        for word, indented in self._documents:
            for line in self._lines():
                if (line.lstrip("\t") if indented else line) == word:
                    break
        self._documents = []

    def _lines(self) -> Iterator[str]:
        while self.place < len(self._text):
            line = self._text[self.place :].partition("\n")[0]
            self.place += len(line) + 1
            yield line

    def _comment(self) -> None:
        end = self._text.find("\n", self.place)
        self.place = len(self._text) if end < 0 else end

    def _blanks(self) -> None:
        if match := _BLANK.match(self._text, self.place):
            self.place = match.end()

    def _at(self, text: str) -> bool:
        return self._text.startswith(text, self.place)

    def _peek(self) -> str:
        self._blanks()
        match = _PLAIN.match(self._text, self.place)
        return match[0] if match else ""

    def _expect(self, text: str) -> None:
        self._skip_lines()
        if not self._at(text):
            raise UnreadableScript
        self.place += len(text)

    def _take(self, word: str) -> None:
        self._skip_lines()
        if self._peek() != word:
            raise UnreadableScript
        self.place += len(word)
