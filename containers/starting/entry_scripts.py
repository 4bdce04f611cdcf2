"""What a shell's script may end with, for known arguments: how entry points of images choose by their command.

A script is followed along each of its ways. A condition that only a container decides has two. What is before the end
may fail, as far as that ends the script too. Sources: as for `shell_syntax`; `dash` and `bash` are asked in
tests/images/test_started.py.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from containers import budget
from containers.errors import one_line
from containers.starting import shell_syntax
from containers.starting.shell_syntax import (
    Block,
    Chain,
    Choice,
    Condition,
    Function,
    Group,
    Loop,
    Node,
    Simple,
    UnreadableScript,
)
from containers.starting.shell_text import ASSIGNMENT, LOOKED_UP, MOST_CHARACTERS, SHORT


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_WAYS: Final = 64
"""Ways through a script that are followed."""
_MOST_STEPS: Final = 5000
_MOST_WORDS: Final = 1000
"""Arguments that are followed: a line may double them."""
_MOST_TURNS: Final = 16
"""Turns of a loop over known words that are followed one by one."""
_DEEPEST: Final = 8
"""Functions that call each other."""
_VARIABLE: Final = r"""\$(?:\w+|[@*#?$!-]|\([^()"]*\)|\{[^{}"]*\})"""
_PIECE: Final = re.compile(
    rf"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\$`]|\\.|{_VARIABLE}|\$(?=[ "]|$))*)"|\\(?P<escaped>.)"""
    rf"""|(?P<variable>{_VARIABLE})|(?P<plain>[^'"\\$`]+)""",
    re.DOTALL,
)
_WITHIN: Final = re.compile(rf"""(?P<escaped>\\[\\$`"])|(?P<variable>{_VARIABLE})|(?P<plain>[^\\$]+|.)""", re.DOTALL)
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
_OF_FILE: Final = re.compile(r"^-[a-moprstuwxGLNOS]$|^(?!\d*>|/dev/null).*/")
"""Words of a loop that may wait for a file."""
_ONE_WORD: Final = re.compile(r"[\w./@%+:,=-]+")
_QUOTED: Final = re.compile(r'(?:[^"$]*"[^"]*")*[^"$]*')
"""A word whose variables are all between quotes: its value stays one word."""
_NUMBERS: Final = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
"""A number to all shells; for bash's `[[`, 010 is 8."""
_LOCAL: Final = {"local", "declare", "typeset"}
_IN_LOOP: Final = {"on", "break", "continue"}
_DECLARES: Final = {"export", "readonly", *_LOCAL}
_STATUSES: Final = {"true": True, ":": True, "false": False, "echo": True}
_SETS: Final = {"read", "mapfile", "readarray", "getopts", "printf", "unset"}
_QUIET: Final = _names(
    "echo printf umask ulimit shopt type hash alias wait pwd command let (( trap getopts read unset mapfile readarray "
    "sleep id date hostname cat chown chmod mkdir rm ls stat find sed awk grep tr cut head tail sort wc basename "
    "dirname env whoami getent nc pg_isready nproc df free uname nvidia-smi which"
)
"""Commands that neither are what a container is for nor make a program."""
_MAKES: Final = _names(
    "cp mv ln install tar unzip gunzip gzip zstd xz dd tee rsync curl wget pip pip3 uv poetry pdm conda mamba npm yarn "
    "pnpm bundle gem composer git apt apt-get apk dnf microdnf yum dpkg rpm make cmake ninja gcc g++ cc go cargo javac "
    "mvn busybox aws gsutil gcloud az mount eval touch envsubst"
)
"""Commands that may make the program which is started later."""
_CHANGES: Final = {"chmod", "chown", "chgrp", "sed"}
"""Commands that change files: their rights, or their text."""
_RUNNABLE: Final = re.compile(r".*[+=].*x.*|[0-7]*[1357]")
"""Modes by which `chmod` lets a user run a file."""
_STARTS: Final = {
    "env": re.compile("(?!-[0u]).+", re.DOTALL),
    "command": re.compile("(?!-[vV]).+", re.DOTALL),
    "tail": re.compile(r"-\w*[fF].*|--(?:follow|retry).*"),
    "nc": re.compile(r"-\w*l.*"),
    "trap": re.compile("EXIT|0|ERR|DEBUG"),
}
"""Quiet commands that are not so with such an argument: they start another one, or do not end."""
_OTHER_SHELL: Final = re.compile("nocasematch|execfail|expand_aliases")
"""Options of `shopt` by which a script means something else."""
_SET: Final = re.compile(r"\$\{(\w+):?=")
"""How a word sets a variable that is not set."""


class Ends(NamedTuple):
    """How a script may end: the programs that replace it, as lists of words, of which one does in any case.

    A list ends with None where more words follow that are unknown. ``folder`` is where they start. ``loose`` is whether
    something before may have changed PATH or made a program. ``problem`` says why it starts none.
    """

    programs: tuple[tuple[str | None, ...], ...]
    folder: str = ""
    loose: bool = False
    problem: str = ""


@dataclass(frozen=True)
class _State:
    """What is known on one way; ``arguments`` may end with None: more follow that are unknown.

    ``ran`` is whether a program ran that may be what the container is for. ``made`` is whether a program may have been
    made, or the script ended; ``changed`` are files and folders that were changed. ``own`` are a function's variables.
    ``unmatched`` is whether the first argument is none of those that the script chooses by, and nothing ran since.
    """

    arguments: tuple[str | None, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, Block] = field(default_factory=dict)
    folder: str = ""
    loose: bool = False
    ran: bool = False
    made: bool = False
    unmatched: bool = False
    changed: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()


class _Outcome(NamedTuple):
    """Where a way leads after a command: ``kind`` is `on`, `break`, `continue`, `return`, `exit` or `exec`."""

    state: _State
    kind: str
    status: bool | None = None
    words: tuple[str | None, ...] = ()


def ends(
    text: str, name: str, arguments: Sequence[str | None], uid: int, is_there: Callable[[str], bool], shell: str = "sh"
) -> Ends | None:
    """Return how a script ends that a shell starts by a name, as a user; None if that is not known.

    ``is_there`` returns whether the image has a file.
    """
    try:
        body = shell_syntax.parse(text)
        ways = list(_Ways(name, uid, is_there, is_bash=shell == "bash").block(body, _State(tuple(arguments))))
    except (UnreadableScript, RecursionError):
        return None
    started: list[_Outcome] = []
    stopped: list[_Outcome] = []
    for way in ways:
        if way.state.made or _may_be_made(way, is_there):
            return None
        if way.kind == "exec":
            started.append(way)
        elif way.state.unmatched or (way.kind == "exit" and way.status is False and not way.state.ran):
            stopped.append(way)
        else:
            return None
    if len({way.state.folder for way in started}) > 1:
        return None
    if started:
        loose = any(way.state.loose or way.state.ran for way in started)
        return Ends(tuple(dict.fromkeys(way.words for way in started)), started[0].state.folder, loose)
    first = arguments[0] if arguments else ""  # without a command, many say how they are used
    return (
        Ends((), problem=f"starts nothing for {one_line(first)}")
        if stopped and first and not first.startswith("-")
        else None
    )


class _Ways:
    """The ways through a script that is started by a name, as a user."""

    def __init__(self, name: str, uid: int, is_there: Callable[[str], bool], *, is_bash: bool) -> None:
        self._name, self._uid, self._is_there, self._is_bash = name, uid, is_there, is_bash
        self._calls: list[str] = []
        self._steps = 0

    def block(self, body: Block, state: _State) -> Iterator[_Outcome]:
        """Yield where the ways through some commands lead, one for each different one."""
        ways = [_Outcome(state, "on", status=True)]
        for node in body:
            following: list[_Outcome] = []
            for way in ways:
                if way.kind == "on":
                    following += self._node(node, way.state)
                else:
                    following.append(way)
            ways = _different(following)
        yield from ways

    def _node(self, node: Node, state: _State) -> list[_Outcome]:
        budget.check()
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise UnreadableScript
        if isinstance(node, Simple):
            ways = self._simple(node.words, state)
            return [way._replace(state=replace(way.state, made=True)) for way in ways] if node.writes else ways
        if isinstance(node, Chain):
            return self._chain(node, state)
        if isinstance(node, Condition):
            return list(self._condition(node, state))
        if isinstance(node, Choice):
            return list(self._choice(node, state))
        if isinstance(node, Loop):
            return self._loop(node, state)
        if isinstance(node, Function):
            return [_Outcome(replace(state, functions={**state.functions, node.name: node.body}), "on", status=True)]
        if isinstance(node, Group):
            return list(self.block(node.body, state))
        inner = list(self.block(node.body, state))
        ran = any(way.state.ran or way.kind == "exec" for way in inner)
        made = any(way.state.made for way in inner)
        changed = tuple(dict.fromkeys(path for way in inner for path in way.state.changed))
        unmatched = state.unmatched and all(way.state.unmatched for way in inner)
        return [_Outcome(replace(state, ran=ran, made=made, changed=changed, unmatched=unmatched), "on")]

    def _chain(self, chain: Chain, state: _State) -> list[_Outcome]:
        ways = [_Outcome(state, "on", status=True)]
        for operator, turned, node in chain.parts:
            following: list[_Outcome] = []
            for way in ways:
                runs = way.status if operator == "&&" else not way.status if way.status is not None else None
                if way.kind != "on" or (operator and runs is False):
                    following.append(way)
                    continue
                if operator and runs is None:
                    following.append(way._replace(status=operator == "||"))
                following += (
                    one._replace(status=not one.status)
                    if turned and one.status is not None and one.kind == "on"
                    else one
                    for one in self._node(node, way.state)
                )
            ways = _different(following)
        return ways

    def _condition(self, condition: Condition, state: _State) -> Iterator[_Outcome]:
        states = [state]
        for test, body in condition.arms:
            otherwise: list[_State] = []
            for each in states:
                for way in self.block(test, each):
                    if way.kind != "on":
                        yield way
                        continue
                    if way.status is not False or not test:
                        yield from self.block(body, way.state)
                    if way.status is not True and test:
                        otherwise.append(way.state)
            states = otherwise
        yield from (_Outcome(each, "on", status=True) for each in states)

    def _choice(self, choice: Choice, state: _State) -> Iterator[_Outcome]:
        subject = self._value(choice.word, state)
        certain = subject is not None
        for patterns, body in choice.arms:
            matches = [self._matches(subject, pattern, state) for pattern in patterns]
            if any(match is not False for match in matches):
                certain &= True in matches
                yield from self.block(body, state)
            if True in matches:
                return
        unmatched = certain and choice.word.strip('"') in {"$1", "${1}"}
        yield _Outcome(replace(state, unmatched=unmatched or state.unmatched), "on", status=True)

    def _loop(self, loop: Loop, state: _State) -> list[_Outcome]:
        words = [*_words(loop.head), *_words(loop.body)]
        if not loop.variable and (any(map(_OF_FILE.search, words)) or words[:1] in (["true"], [":"])):
            raise UnreadableScript  # it may wait for the program itself, or never end
        values = self._values(loop.words, state)
        if loop.variable and None not in values and len(values) <= _MOST_TURNS:
            return self._each(loop, values, state)
        start = _without(state, [loop.variable])
        start = _without(start, _changes(start, self._once(loop, start)))
        ways = self._once(loop, start)
        on = [way.state for way in ways if way.kind in _IN_LOOP]
        if any(each.arguments != state.arguments or each.folder != state.folder for each in on):
            raise UnreadableScript
        after = start if loop.variable else replace(start, unmatched=False)  # it may not end, as with `while sleep 9`
        for each in on:
            after = replace(
                after,
                ran=after.ran or each.ran,
                made=after.made or each.made,
                loose=after.loose or each.loose,
                unmatched=after.unmatched and each.unmatched,
                changed=tuple(dict.fromkeys((*after.changed, *each.changed))),
                own=after.own | each.own,
            )
        return [*(way for way in ways if way.kind not in _IN_LOOP), _Outcome(after, "on")]

    def _each(self, loop: Loop, values: Sequence[str | None], state: _State) -> list[_Outcome]:
        """Return where the ways through a loop over known words lead."""
        ways = [_Outcome(state, "on")]
        for value in values:
            following: list[_Outcome] = []
            for way in ways:
                if way.kind != "on":
                    following.append(way)
                    continue
                variables = {**way.state.variables, loop.variable: str(value)}
                turn = self.block(loop.body, replace(way.state, variables=variables))
                following += (one._replace(kind="on") if one.kind == "continue" else one for one in turn)
            ways = _different(following)
        return [way._replace(kind="on") if way.kind == "break" else way for way in ways]

    def _once(self, loop: Loop, state: _State) -> list[_Outcome]:
        """Return where the ways through one run of a loop lead."""
        return [
            one
            for way in self.block(loop.head, state)
            for one in (self.block(loop.body, way.state) if way.kind == "on" else [way])
        ]

    def _simple(self, words: Sequence[str], state: _State) -> list[_Outcome]:
        rest = list(words)
        state = _without(state, [name for word in words for name in _SET.findall(word)])
        while rest and ASSIGNMENT.fullmatch(rest[0]):
            state = self._assigned(state, rest.pop(0))
        if rest:  # those are for the command, of which some keep them
            state = _without(state, words[: len(words) - len(rest)])
        else:
            return [
                _Outcome(state, "on", status=True if not any(re.search(r"\$\(|`", word) for word in words) else None)
            ]
        if rest[0] in {"[", "test", "[["}:
            return [_Outcome(state, "on", status=self._test(rest, state))]
        values = self._values(rest, state)
        command, arguments = values[0] if values else None, values[1:]
        if isinstance(command, str) and command in state.functions:
            return self._call(command, arguments, state)
        return self._builtin(command, rest, arguments, state)

    def _builtin(
        self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: _State
    ) -> list[_Outcome]:
        """Return where a command other than a function leads."""
        if command in {"exit", "return"}:
            code = arguments[0] if arguments else "?"
            status = None if code is None or not _NUMBER.fullmatch(code) else int(code) == 0
            return [_Outcome(state, str(command), status=status)]
        if command in {"break", "continue"}:
            if arguments not in {(), ("1",)}:
                raise UnreadableScript
            return [_Outcome(state, str(command))]
        if command == "exec":
            return self._exec(arguments, state)
        if command in {"shift", "set"}:
            after = self._rearranged(str(command), arguments, state)
            return [_Outcome(after, "on", status=None if command == "shift" and after is state else True)]
        if command in _DECLARES:
            return [_Outcome(self._declared(str(command), words[1:], state), "on", status=True)]
        if command == "cd":
            return [_Outcome(self._entered(arguments, state), "on")]
        if command == "shopt" and any(each is None or _OTHER_SHELL.fullmatch(each) for each in arguments):
            raise UnreadableScript
        if command in _STATUSES:
            return [_Outcome(state, "on", status=_STATUSES[str(command)])]
        if command in {".", "source"}:
            return [_Outcome(self._sourced(arguments, state), "on")]
        return [_Outcome(self._ran(command, words, arguments, state), "on")]

    def _sourced(self, arguments: tuple[str | None, ...], state: _State) -> _State:
        """Return the state after a file of commands, which may end the script if it is there."""
        file = arguments[0] if arguments else None
        made = file is None or "/" not in file or self._is_there(posixpath.join(state.folder, file))
        return replace(state, loose=True, made=state.made or made, variables={})

    def _ran(
        self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: _State
    ) -> _State:
        """Return the state after a program, or a command of the shell that sets variables."""
        if command == "sleep" and not all(each and SHORT.fullmatch(each) for each in arguments):
            raise UnreadableScript
        if command == "unset" and "-f" in words:
            raise UnreadableScript
        if command in {"((", "let"}:
            state = replace(state, variables={})
        elif command in _SETS:
            state = _without(state, words[1:])
        known = [each for each in arguments if each]
        made = command is None or _makes(command, known, cut=None in arguments)
        return replace(
            state,
            ran=state.ran or command not in _QUIET or _starts(str(command), known),
            made=state.made or made,
            changed=(*state.changed, *_changed_files(str(command), known)),
            unmatched=state.unmatched and (command == "printf" or (command == "cat" and not arguments)),
        )

    def _declared(self, command: str, words: Sequence[str], state: _State) -> _State:
        before = state
        for word in words:
            if not re.match(r"-?\w+\+?(?:=|$)", word) or re.match("-[a-z]*[inul]", word):
                raise UnreadableScript  # as in `export "PATH=..."`, or a variable that stands for another one
            state = self._assigned(state, word, before) if ASSIGNMENT.fullmatch(word) else _without(state, [word])
        own = [word.partition("=")[0] for word in words] if command in _LOCAL else []
        return replace(state, own=state.own.union(own))

    def _exec(self, arguments: tuple[str | None, ...], state: _State) -> list[_Outcome]:
        rest = arguments[2:] if arguments[:1] == ("-a",) else arguments
        if not arguments:  # a redirection, or no arguments
            return [_Outcome(state, "on", status=True)]
        if not rest or rest[0] is None or rest[0].startswith("-"):
            raise UnreadableScript
        return [_Outcome(state, "exec", words=rest)]

    def _call(self, name: str, arguments: tuple[str | None, ...], state: _State) -> list[_Outcome]:
        if len(self._calls) >= _DEEPEST:
            raise UnreadableScript
        self._calls.append(name)
        ways = list(self.block(state.functions[name], replace(state, arguments=arguments, own=frozenset())))
        self._calls.pop()
        return [
            way._replace(state=self._after_call(way.state, state), kind="on") if way.kind in {"on", "return"} else way
            for way in ways
        ]

    def _after_call(self, state: _State, before: _State) -> _State:
        """Return the state after a function, whose own variables are again what they were: that is not kept."""
        return replace(_without(state, state.own), arguments=before.arguments, own=before.own)

    def _rearranged(self, command: str, arguments: tuple[str | None, ...], state: _State) -> _State:
        """Return the state after `shift` or `set`."""
        if command == "shift":
            count = arguments[0] if arguments else "1"
            if count is None or not _NUMBER.fullmatch(count) or None in state.arguments[: int(count)]:
                raise UnreadableScript
            if int(count) > len(state.arguments):
                return state  # where dash ends
            return replace(state, arguments=state.arguments[int(count) :])
        rest = arguments
        while rest and rest[0] is not None and re.fullmatch("[-+][A-Za-z]+", rest[0]):
            rest = rest[2:] if rest[0].endswith("o") else rest[1:]
        if rest[:1] == (None,):
            raise UnreadableScript
        if len(rest) > _MOST_WORDS:
            raise UnreadableScript
        return replace(state, arguments=rest[1:] if rest[:1] == ("--",) else rest) if rest else state

    def _entered(self, arguments: tuple[str | None, ...], state: _State) -> _State:
        folder = arguments[0] if len(arguments) == 1 else None
        if folder is None or folder.startswith("-") or ".." in PurePosixPath(folder).parts:
            return replace(state, loose=True)
        return replace(state, folder=posixpath.join(state.folder, folder))

    def _assigned(self, state: _State, word: str, before: _State | None = None) -> _State:
        """Return the state after a word that sets a variable; its value is made of the variables ``before``."""
        name, _, value = word.partition("=")
        variable = name.removesuffix("+")
        known = None if name != variable or variable in {"PWD", "OLDPWD"} else self._value(value, before or state)
        state = _without(state, [variable])
        if variable == "IFS":
            raise UnreadableScript
        loose = state.loose or bool(LOOKED_UP.fullmatch(variable))
        variables = state.variables if known is None else {**state.variables, variable: known}
        return replace(state, loose=loose, variables=variables)

    def _values(self, words: Sequence[str], state: _State) -> tuple[str | None, ...]:
        """Return the values of words; where one may be none or several unknown ones, the last value is None."""
        values: list[str | None] = []
        for word in words:
            start = _FROM.fullmatch(word)
            if word in _ALL or start:
                values += state.arguments[int(start[1]) - 1 if start else 0 :]
                if None in state.arguments[-1:]:
                    break
                continue
            value = self._value(word, state)
            if value == "" and "$" in word and '"' not in word:
                continue
            if value is None or not (_QUOTED.fullmatch(word) or _ONE_WORD.fullmatch(value)):
                return (*values, None)
            values.append(value)
        return tuple(values)

    def _value(self, word: str, state: _State) -> str | None:
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

    def _piece(self, match: re.Match[str], state: _State) -> str | None:
        if match["variable"] is not None:
            return self._variable(match["variable"], state)
        if match["double"] is None:
            return match["single"] or match["escaped"] or match["plain"] or ""
        value = ""
        for part in _WITHIN.finditer(match["double"]):
            one = (
                self._variable(part["variable"], state) if part["variable"] else (part["plain"] or part["escaped"][1:])
            )
            if one is None:
                return None
            value += one
        return value

    def _variable(self, text: str, state: _State) -> str | None:
        """Return the value of a variable, or of what is made of it."""
        if text == "$(id -u)" or (text in _OF_BASH and self._is_bash):
            return str(self._uid)
        if text in _ITSELF:
            return self._name if self._is_bash or "BASH" not in text else None
        arguments = state.arguments
        if text in {"$#", "${#}"}:
            return None if None in arguments else str(len(arguments))
        if text in {"$*", "${*}", "$@", "${@}"}:
            return None if None in arguments else " ".join(map(str, arguments))
        if function := re.fullmatch(r"\$\{FUNCNAME\[([0-9])\]\}", text):
            return [*reversed(self._calls), "main"][int(function[1])] if int(function[1]) <= len(self._calls) else ""
        match = _PARAMETER.fullmatch(text)
        if match is None:
            return None
        name = match["braced"] or match["bare"]
        if _NUMBER.fullmatch(name):
            words, place = (self._name, *arguments), int(name)
            known = words[place] if place < len(words) else None if None in arguments else ""
        else:
            known = state.variables.get(name)
        return known if known is None or not match["change"] else _changed(known, match["change"])

    def _matches(self, subject: str | None, pattern: str, state: _State) -> bool | None:
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
        if "[[:" in shell or ("[^" in pattern and not self._is_bash):  # dash has no `[^`
            return None
        return fnmatch.fnmatchcase(subject, shell)

    def _test(self, words: Sequence[str], state: _State) -> bool | None:
        """Return what a test says; None if that is not known."""
        if words[0] == "[[":
            return self._double_test(list(words[1:-1]), state)
        inner = list(words[1:-1] if words[0] == "[" else words[1:])
        if "(" in inner or ")" in inner:
            return None
        return _either(
            [_all([self._plain_test(part, state) for part in _parts(each, "-a")]) for each in _parts(inner, "-o")]
        )

    def _double_test(self, words: list[str], state: _State) -> bool | None:
        if "(" in words:
            return None
        return _either(
            [
                _all([self._plain_test(part, state, double=True) for part in _parts(each, "&&")])
                for each in _parts(words, "||")
            ]
        )

    def _plain_test(self, words: Sequence[str], state: _State, *, double: bool = False) -> bool | None:
        if words[:1] == ["!"]:
            status = self._plain_test(words[1:], state, double=double)
            return None if status is None else not status
        kept = list(words) if double else self._kept(words, state)
        values = [self._value(word, state) for word in kept or ()]
        if kept is None or None in values[:1]:
            return None
        if len(kept) == 1:
            return bool(values[0])
        if len(kept) == 2 and kept[0] in {"-n", "-z"}:
            return None if values[1] is None else bool(values[1]) == (kept[0] == "-n")
        return self._comparison(kept, values, state, double=double) if len(kept) == 3 else None

    def _kept(self, words: Sequence[str], state: _State) -> list[str] | None:
        """Return the words of `[` that are there: a value without quotes may be none, or several, which gives None."""
        kept = []
        for word in words:
            value = None if _QUOTED.fullmatch(word) else self._value(word, state)
            if value == "" and '"' not in word:
                continue
            if not _QUOTED.fullmatch(word) and not _ONE_WORD.fullmatch(value or ""):
                return None
            kept.append(word)
        return kept

    def _comparison(
        self, words: Sequence[str], values: Sequence[str | None], state: _State, *, double: bool
    ) -> bool | None:
        left, right, operator = values[0], values[2], words[1]
        if operator == "==" and not (double or self._is_bash):
            return None  # which is an error to dash
        if operator in {"=", "==", "!="}:
            equal = self._matches(left, words[2], state) if double else _equal(left, right)
            return None if equal is None else equal == (operator != "!=")
        if operator in _NUMBERS and left and right and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
            return bool(_NUMBERS[operator](int(left), int(right)))
        return None


def _starts(command: str, arguments: Sequence[str]) -> bool:
    """Return whether a quiet command starts another one, or does not end."""
    starts = _STARTS.get(command)
    return starts is not None and any(map(starts.fullmatch, arguments[:1] if command == "command" else arguments))


def _makes(command: str, arguments: Sequence[str], *, cut: bool) -> bool:
    """Return whether a command, or the one that it runs for each file, may make a program of a file that is not known.

    ``cut`` is whether it has unknown arguments.
    """
    if command == "chmod":
        return cut and all(map(_RUNNABLE.fullmatch, arguments[:1]))
    names = [command, *(arguments if command in {"find", "xargs"} else ())]
    return "chmod" in names[1:] or any(posixpath.basename(name) in _MAKES for name in names)


def _changed_files(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the files that a command changes: they follow a mode, a user or a text."""
    if command not in _CHANGES or (command == "sed" and not any(each.startswith("-i") for each in arguments)):
        return []
    return [each for each in arguments if not each.startswith("-")][1:]


def _may_be_made(way: _Outcome, is_there: Callable[[str], bool]) -> bool:
    """Return whether the lines before the end may have made its program, or a file for it to run."""
    program, state = "".join(map(str, way.words[:1])), way.state
    if way.kind == "exec" and state.ran and "/" in program and not is_there(posixpath.join(state.folder, program)):
        return True
    return any(_changes_program(path.rstrip("/"), word) for path in state.changed for word in way.words if word)


def _changes_program(path: str, word: str) -> bool:
    """Return whether a change of a file or folder may be one of a program."""
    folder, name = posixpath.split(path)
    if "/" in word:
        return f"{word}/".startswith(f"{path}/") or posixpath.basename(word) == name
    return path.endswith("bin") or (folder.endswith("bin") and name == word)


def _words(body: Block) -> Iterator[str]:
    """Yield the words of commands, those in functions too."""
    for node in body:
        if isinstance(node, Simple):
            yield from node.words if node.words[:1] != ("read",) else ()
        elif isinstance(node, Chain):
            yield from _words(tuple(part for _, _, part in node.parts))
        elif isinstance(node, Condition):
            for test, inner in node.arms:
                yield from _words((*test, *inner))
        elif isinstance(node, Choice):
            for _, inner in node.arms:
                yield from _words(inner)
        else:
            yield from _words((*node.head, *node.body) if isinstance(node, Loop) else node.body)


def _equal(left: str | None, right: str | None) -> bool | None:
    return None if left is None or right is None else left == right


def _all(values: Sequence[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _either(values: Sequence[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def _parts(words: Sequence[str], operator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == operator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _without(state: _State, words: Iterable[str]) -> _State:
    """Return a state without the values of the variables among some words."""
    names = {word.partition("=")[0] for word in words}
    if any(LOOKED_UP.fullmatch(name) for name in names):
        state = replace(state, loose=True)
    return replace(state, variables={name: value for name, value in state.variables.items() if name not in names})


def _changes(state: _State, ways: Iterable[_Outcome]) -> set[str]:
    """Return the variables that some ways from a state change."""
    known = state.variables
    after = [way.state.variables for way in ways]
    return {name for each in after for name in {*each, *known} if each.get(name) != known.get(name)}


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
    if default := re.fullmatch(r":([-=?])[^$]*", change):
        return value or (None if default[1] == "?" else change[2:].strip("\"'"))
    return None


def _different(ways: Sequence[_Outcome]) -> list[_Outcome]:
    """Return ways without those that are as others."""
    different: list[_Outcome] = []
    for way in ways:
        budget.check()
        if way not in different:
            different.append(way)
        if len(different) > _MOST_WAYS:
            raise UnreadableScript
    return different
