"""Why a shell's text or script starts nothing, for known arguments: entry points of images choose by their command.

A script is followed along each of its ways. A condition that only a container decides has two. A command that does not
start fails, which may end the shell; nothing is known of the status of one that starts. Sources: as for `shell_syntax`;
`dash` and `bash` are asked in tests/images/test_started.py.
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
from containers.starting.refusals import Refusal
from containers.starting.shell_syntax import (
    Apart,
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
from containers.starting.shell_text import ASSIGNMENT, CODE, LOOKED_UP, MOST_CHARACTERS, SHORT, is_name


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
_QUOTED: Final = re.compile(r"""(?:[^"'$]|"[^"]*"|'[^']*')*""")
"""A word whose variables are all between quotes: its value stays one word."""
_NUMBERS: Final = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
"""A number to all shells; for bash's `[[`, 010 is 8."""
_LOCAL: Final = {"local", "declare", "typeset"}
_IN_LOOP: Final = {"on", "break", "continue"}
_DECLARES: Final = {"export", "readonly", *_LOCAL}
_STATUSES: Final = {"true": True, ":": True, "false": False, "echo": True, "printf": True}
_SETS: Final = {"read", "mapfile", "readarray", "getopts", "printf", "unset"}
_QUIET: Final = _names(
    "echo printf umask ulimit shopt type hash alias wait pwd command let (( trap getopts read unset mapfile readarray "
    "sleep id date hostname cat chown chmod mkdir rm ls stat find sed awk grep tr cut head tail sort wc basename "
    "dirname tee touch env whoami getent nc pg_isready nproc df free uname nvidia-smi which"
)
"""Commands that neither are what a container is for nor make a program."""
_MAKES: Final = _names(
    "cp mv ln install tar unzip gunzip gzip zstd xz dd rsync curl wget pip pip3 uv poetry pdm conda mamba npm yarn "
    "pnpm bundle gem composer git apt apt-get apk dnf microdnf yum dpkg rpm make cmake ninja gcc g++ cc go cargo javac "
    "mvn busybox aws gsutil gcloud az mount eval envsubst"
)
"""Commands that may make the program which is started later."""
_CHANGES: Final = {"chmod", "chown", "chgrp", "sed", "tee", "touch"}
"""Commands that change files: their rights, or their text."""
_RUNNABLE: Final = re.compile(r".*[+=].*x.*|[0-7]*[1357]")
"""Modes by which `chmod` lets a user run a file."""
_STARTS: Final = {
    "env": re.compile("(?!-[0u]).+", re.DOTALL),
    "command": re.compile("(?!-[vV]).+", re.DOTALL),
    "tail": re.compile(r"-\w*[fF].*|--(?:follow|retry).*"),
    "nc": re.compile(r"-\w*l.*"),
}
"""Quiet commands that are not so with such an argument: they start another one, or do not end."""
_PREFIXES: Final = {"command", "builtin"}
"""Words before a command that is no function."""
_OF_EXEC: Final = re.compile("-[cl]*(a?)|--")
"""Options of `exec` in bash; the last one may have a value."""
_LOOKS_UP: Final = re.compile("command -[vV]|which|type|hash")
"""What says whether a name is there, as it stands before the name."""
_AT_END: Final = re.compile("EXIT|0|ERR|DEBUG")
"""Conditions of `trap` that are no signals."""
_OF_SHELL: Final = {":", "ulimit", "umask", "printf", "trap", "set", "shift", "echo", "true", "["}
"""Further commands that a shell itself has."""
_OF_ALL: Final = re.compile(r"/etc/(?:passwd|group)|.*\.(?:pyc?|pth)")
"""Files that change what names stand for, or modules."""
_ARRAY: Final = re.compile(r'"\$\{(\w+)\[@\]\}"')
"""All words of an array."""
_ELEMENT: Final = re.compile(r"\$\{(#?)(\w+)\[([0-9]{1,3}|[@*])\]\}", re.ASCII)
"""An element of an array, or how many it has."""
_OTHER_SHELL: Final = re.compile("nocasematch|execfail|expand_aliases")
"""Options of `shopt` by which a script means something else."""
_SET: Final = re.compile(r"\$\{(\w+):?=")
"""How a word sets a variable that is not set."""


class Asked(NamedTuple):
    """A program whose start a script asks for: its words, which end with None where unknown ones follow.

    ``folder`` is where it starts. ``loose`` is whether something before may have changed PATH or made a program.
    ``sourced`` is whether the shell reads the file as a part of the script.
    """

    words: tuple[str | None, ...]
    folder: str = ""
    loose: bool = False
    sourced: bool = False


@dataclass(frozen=True)
class _State:
    """What is known on one way; ``arguments`` may end with None: more follow that are unknown.

    ``ran`` is whether a program ran that may be what the container is for. ``made`` is whether a program may have been
    made, or the script ended; ``changed`` are files and folders that were changed. ``own`` are a function's variables.
    ``unmatched`` is whether the first argument is none of those that the script chooses by, and nothing ran since.
    ``refused`` is why the last command did not start; ``jobs`` say it of those in the background. ``ends`` is whether
    the shell ends at a failure, and ``quiet`` whether something looks at it; ``pipes`` is whether any part of a pipe
    fails it.
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
    arrays: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    refused: Refusal | None = None
    jobs: tuple[Refusal | None, ...] = ()
    ends: bool = False
    quiet: bool = False
    pipes: bool = False


class _Outcome(NamedTuple):
    """Where a way leads after a command: ``kind`` is `on`, `break`, `continue`, `return`, `exit` or `exec`."""

    state: _State
    kind: str
    status: bool | None = None


class Shell(NamedTuple):
    """What a shell starts a script with.

    Args:
        name: the path or name of the script.
        uid: the user's number.
        is_there: whether the image has a file.
        refusal: why a program does not start, None if it may; it is asked once for each.
        is_bash: whether the shell is bash.
        options: its own.
    """

    name: str
    uid: int
    is_there: Callable[[str], bool]
    refusal: Callable[[Asked], Refusal | None]
    is_bash: bool = False
    options: Sequence[str] = ()


def refusal(text: str, arguments: Sequence[str | None], shell: Shell) -> Refusal | None:
    """Return why a script starts nothing; None if it may start something."""
    state = _with_options(_State(tuple(arguments)), shell.options)
    try:
        ways = list(_Ways(shell).block(shell_syntax.parse(text), state))
    except (UnreadableScript, RecursionError):
        return None
    refused: list[Refusal] = []
    for way in ways:
        fails = way.status is False
        if (
            way.state.made
            or way.kind == "exec"
            or not (way.state.unmatched or (fails and (way.kind == "exit" or way.state.refused)))
        ):
            return None
        if way.state.refused:
            refused.append(way.state.refused)
        elif way.state.ran and not way.state.unmatched:
            return None
    first = arguments[0] if arguments else ""  # without a command, many say how they are used
    if refused or not ways or not first or first.startswith("-"):
        return refused[-1] if refused else None
    return Refusal(f"{shell.name} starts nothing for {one_line(first)}", shell.name)


class _Ways:
    """The ways through a script."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._calls: list[str] = []
        self._steps = 0
        self._status: bool | None = True
        self._known: dict[Asked, Refusal | None] = {}

    def block(self, body: Block, state: _State) -> Iterator[_Outcome]:
        """Yield where the ways through some commands lead, one for each different one."""
        ways = [_Outcome(state, "on", self._status)]
        for node in body:
            following: list[_Outcome] = []
            for way in ways:
                if way.kind == "on":
                    self._status = way.status
                    following += self._node(node, way.state if _tells(node) else replace(way.state, refused=None))
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
            return [way._replace(state=self._written(node.writes, way.state)) for way in ways] if node.writes else ways
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
        return [self._apart(node, state)]

    def _apart(self, node: Apart, state: _State) -> _Outcome:
        """Return the state after what another shell ran."""
        bodies: Iterable[Block] = ((each,) for each in node.body) if node.kind == "|" else (node.body,)
        start = replace(state, refused=None, quiet=state.quiet or node.kind == "$(")  # where bash goes on
        parts = [list(self.block(body, start)) for body in bodies]
        refusals = [self._failure(part) for part in parts]
        inner = [way for part in parts for way in part]
        after = replace(
            state,
            ran=any(way.state.ran or way.kind == "exec" for way in inner),
            made=any(way.state.made for way in inner),
            changed=tuple(dict.fromkeys(path for way in inner for path in way.state.changed)),
            unmatched=state.unmatched and all(way.state.unmatched for way in inner),
            refused=next(filter(None, refusals), None) if state.pipes else refusals[-1],
        )
        if node.kind == "&":
            return _Outcome(replace(after, refused=None, jobs=(*state.jobs, after.refused)), "on", status=True)
        return self._failed(after, ends=node.kind != "$(") if after.refused else _Outcome(after, "on")

    def _failure(self, ways: Sequence[_Outcome]) -> Refusal | None:
        """Return why each of some ways fails, None if one may not."""
        fail = all(way.status is False and way.kind in {"on", "exit", "return"} for way in ways)
        return (
            next((way.state.refused for way in ways), None) if fail and all(way.state.refused for way in ways) else None
        )

    def _failed(self, state: _State, *, ends: bool = True) -> _Outcome:
        """Return the outcome of a command that was refused."""
        return _Outcome(state, "exit" if ends and state.ends and not state.quiet else "on", status=False)

    def _chain(self, chain: Chain, state: _State) -> list[_Outcome]:
        ways = [_Outcome(state, "on", status=True)]
        last = chain.parts[-1]
        for part in chain.parts:
            operator, turned, node = part
            following: list[_Outcome] = []
            for way in ways:
                runs = way.status if operator == "&&" else not way.status if way.status is not None else None
                if way.kind != "on" or (operator and runs is False):
                    following.append(way)
                    continue
                if operator and runs is None:
                    following.append(way._replace(status=operator == "||"))
                self._status = way.status
                quiet = way.state.quiet or turned or part is not last
                for one in self._node(node, replace(way.state, quiet=quiet)):
                    status = not one.status if turned and one.status is not None and one.kind == "on" else one.status
                    following.append(_Outcome(replace(one.state, quiet=way.state.quiet), one.kind, status))
            ways = _different(following)
        return ways

    def _condition(self, condition: Condition, state: _State) -> Iterator[_Outcome]:
        states = [state]
        for test, body in condition.arms:
            otherwise: list[_State] = []
            for each in states:
                for one in self.block(test, replace(each, quiet=each.quiet or bool(test))):
                    way = one._replace(state=replace(one.state, quiet=each.quiet))
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
                jobs=(*after.jobs, *each.jobs),
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
            for way in self.block(loop.head, replace(state, quiet=True))
            for one in (self.block(loop.body, replace(way.state, quiet=state.quiet)) if way.kind == "on" else [way])
        ]

    def _simple(self, words: Sequence[str], state: _State) -> list[_Outcome]:
        rest = list(words)
        state = _without(state, [name for word in words for name in _SET.findall(word)])
        while rest and ASSIGNMENT.fullmatch(rest[0]):
            state = self._assigned(state, rest.pop(0))
        if rest:  # those are for the command, of which some keep them
            state = _without(state, words[: len(words) - len(rest)])
        else:
            if not any(re.search(r"\$\(|`", word) for word in words):
                return [_Outcome(state, "on", status=True)]
            return [self._failed(state) if state.refused and self._status is False else _Outcome(state, "on")]
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
        if command in {"exit", "return", "break", "continue"}:
            return [self._left(str(command), words, arguments, state)]
        if command in _PREFIXES and arguments[:1] and not str(arguments[0] or "-").startswith("-"):
            return self._builtin(arguments[0], words[1:], arguments[1:], state)
        if command == "eval" and None not in arguments:
            return list(self.block(shell_syntax.parse(" ".join(map(str, arguments))), state))
        if command == "exec":
            return self._exec(arguments, state)
        if command == "cd":
            return [self._entered(arguments, state)]
        if command in {".", "source"}:
            return [self._sourced(arguments, state)]
        if _LOOKS_UP.fullmatch(" ".join(words[:-1])) and arguments and (looked := arguments[-1]):
            refused = self._refusal((looked,), state) if looked not in state.functions and is_name(looked) else None
            is_gone = refused is not None and refused.about == looked
            return [self._failed(replace(state, refused=refused)) if is_gone else _Outcome(state, "on")]
        if command == "wait" and words[1:] and state.jobs and all(state.jobs):
            return [self._failed(replace(state, refused=state.jobs[-1]))]
        if command and not state.ran and is_name(command) and command not in _OF_SHELL:
            refused = self._refusal((command, *arguments), state)
            if refused:
                return [self._failed(replace(state, refused=refused))]
        return [self._set(command, words, arguments, state)]

    def _left(self, command: str, words: Sequence[str], arguments: tuple[str | None, ...], state: _State) -> _Outcome:
        """Return where a command leads that leaves a loop, a function or the script."""
        if command in {"break", "continue"}:
            if arguments not in {(), ("1",)}:
                raise UnreadableScript
            return _Outcome(state, command)
        if command == "return" and not self._calls and self._shell.is_bash:
            return _Outcome(state, "on", status=False)  # which leaves functions only
        if not arguments or words[1].strip('"') == "$?":
            return _Outcome(state, command, self._status)
        code = arguments[0]
        return _Outcome(state, command, None if code is None or not _NUMBER.fullmatch(code) else int(code) == 0)

    def _set(
        self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: _State
    ) -> _Outcome:
        """Return where a command of the shell that sets something leads, or a program that starts."""
        if command in {"shift", "set"}:
            after = self._rearranged(str(command), arguments, state)
            return _Outcome(after, "on", status=None if command == "shift" and after is state else True)
        if command in _DECLARES:
            return _Outcome(self._declared(str(command), words[1:], state), "on", status=True)
        if command == "alias" and not self._shell.is_bash:
            raise UnreadableScript  # whose names stand for others
        if command == "shopt" and any(each is None or _OTHER_SHELL.fullmatch(each) for each in arguments):
            raise UnreadableScript
        if command in _STATUSES and arguments[:1] != ("-v",):
            return _Outcome(state, "on", status=_STATUSES[str(command)])
        if command == "trap":
            return _Outcome(self._trapped(arguments, state), "on", status=True)
        return _Outcome(self._ran(command, words, arguments, state), "on")

    def _refusal(self, words: tuple[str | None, ...], state: _State, *, sourced: bool = False) -> Refusal | None:
        """Return why a program does not start; None if it may, or if the lines before may have made it."""
        if state.made or _may_be_made(words, state, self._shell.is_there):
            return None
        asked = Asked(words, state.folder, state.loose or state.ran, sourced)
        if asked not in self._known:
            self._known[asked] = self._shell.refusal(asked)
        return self._known[asked]

    def _trapped(self, arguments: tuple[str | None, ...], state: _State) -> _State:
        """Return the state after `trap`, whose text may end the script otherwise or start something."""
        at_end = any(each is None or _AT_END.fullmatch(each) for each in arguments[1:])
        if not at_end or arguments[0] in {"-", ""}:
            return state
        if arguments[0] is None:
            return replace(state, ran=True)
        ways = list(self.block(shell_syntax.parse(arguments[0]), state))
        return replace(state, ran=state.ran or any(way.kind != "on" or way.state.ran for way in ways))

    def _sourced(self, arguments: tuple[str | None, ...], state: _State) -> _Outcome:
        """Return where a file of commands leads, which may end the script if it is there."""
        file = arguments[0] if arguments else None
        path = posixpath.join(state.folder, file or "")
        made = file is None or "/" not in file or self._shell.is_there(path) or any(map(path.endswith, state.changed))
        after = replace(state, loose=True, made=state.made or made, variables={}, arrays={})
        if made or not CODE.fullmatch(str(file)):
            return _Outcome(after, "on")
        refused = self._refusal((file,), state, sourced=True)
        if refused is None:
            return _Outcome(after, "on")
        outcome = self._failed(replace(after, refused=refused))
        return outcome if self._shell.is_bash else outcome._replace(kind="exit")

    def _written(self, words: Sequence[str], state: _State) -> _State:
        """Return the state after files were written; a program may be made of some."""
        files = [self._value(word, state) for word in words]
        made = any(file is None or _OF_ALL.fullmatch(file) for file in files)
        return replace(state, made=state.made or made, changed=(*state.changed, *map(str, files)))

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
        rest = arguments
        while rest and rest[0] and (option := _OF_EXEC.fullmatch(rest[0])) and self._shell.is_bash:
            rest = rest[2 if option[1] else 1 :]
        if not arguments:  # a redirection, or no arguments
            return [_Outcome(state, "on", status=True)]
        if not rest or rest[0] is None or rest[0].startswith("-"):
            raise UnreadableScript
        refused = self._refusal(rest, state)
        return [_Outcome(replace(state, refused=refused), "exit" if refused else "exec", False if refused else None)]

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
            size = 2 if rest[0].endswith("o") else 1
            state, rest = _with_options(state, [str(word) for word in rest[:size]]), rest[size:]
        if rest[:1] == (None,):
            raise UnreadableScript
        if len(rest) > _MOST_WORDS:
            raise UnreadableScript
        return replace(state, arguments=rest[1:] if rest[:1] == ("--",) else rest) if rest else state

    def _entered(self, arguments: tuple[str | None, ...], state: _State) -> _Outcome:
        """Return where `cd` leads; a folder that is not there may be mounted, and a shell takes `..` away by name."""
        folder = arguments[0] if len(arguments) == 1 else None
        if folder is None or folder.startswith("-") or ".." in PurePosixPath(folder).parts:
            return _Outcome(replace(state, loose=True), "on")
        after = replace(state, folder=posixpath.join(state.folder, folder))
        refused = None if state.made or state.changed else self._shell.refusal(Asked((), after.folder, state.loose))
        if refused:
            return self._failed(replace(state, refused=refused))
        return _Outcome(after, "on", status=None if state.loose and not folder.startswith("/") else True)

    def _assigned(self, state: _State, word: str, before: _State | None = None) -> _State:
        """Return the state after a word that sets a variable; its value is made of the variables ``before``."""
        name, _, value = word.partition("=")
        variable = name.removesuffix("+")
        if value.startswith("("):
            return self._with_array(state, name, value)
        known = None if name != variable or variable in {"PWD", "OLDPWD"} else self._value(value, before or state)
        state = _without(state, [variable])
        if variable == "IFS":
            raise UnreadableScript
        loose = state.loose or bool(LOOKED_UP.fullmatch(variable))
        variables = state.variables if known is None else {**state.variables, variable: known}
        return replace(state, loose=loose, variables=variables)

    def _with_array(self, state: _State, name: str, value: str) -> _State:
        """Return the state after bash's array is set, or longer if its name ends with a plus sign."""
        variable = name.removesuffix("+")
        before = state.arrays.get(variable, (None,)) if name != variable else ()
        if not self._shell.is_bash or LOOKED_UP.fullmatch(variable):
            raise UnreadableScript
        after = before if None in before else (*before, *self._values(shell_syntax.elements(value), state))
        if len(after) > _MOST_WORDS:
            raise UnreadableScript
        return replace(_without(state, [variable]), arrays={**state.arrays, variable: after})

    def _list(self, word: str, state: _State) -> tuple[str | None, ...] | None:
        """Return the words of all arguments, of those from one on, or of an array; None for another word."""
        if word in _ALL:
            return state.arguments
        if start := _FROM.fullmatch(word):
            return state.arguments[int(start[1]) - 1 :]
        array = _ARRAY.fullmatch(word)
        return state.arrays.get(array[1], (None,)) if array else None

    def _values(self, words: Sequence[str], state: _State) -> tuple[str | None, ...]:
        """Return the values of words; where one may be none or several unknown ones, the last value is None."""
        values: list[str | None] = []
        for word in words:
            if (known := self._list(word, state)) is not None:
                values += known
                if None in known[-1:]:
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
        if text == "$(id -u)" or (text in _OF_BASH and self._shell.is_bash):
            return str(self._shell.uid)
        if text in _ITSELF:
            return self._shell.name if self._shell.is_bash or "BASH" not in text else None
        arguments = state.arguments
        if text in {"$#", "${#}"}:
            return None if None in arguments else str(len(arguments))
        if text in {"$*", "${*}", "$@", "${@}"}:
            return None if None in arguments else " ".join(map(str, arguments))
        if function := re.fullmatch(r"\$\{FUNCNAME\[([0-9])\]\}", text):
            return [*reversed(self._calls), "main"][int(function[1])] if int(function[1]) <= len(self._calls) else ""
        if (element := _ELEMENT.fullmatch(text)) and element[2] in state.arrays:
            words = state.arrays[element[2]]
            if element[1] or element[3] in {"@", "*"}:
                return None if None in words else str(len(words)) if element[1] else " ".join(map(str, words))
            place = int(element[3])
            return words[place] if place < len(words) else None if None in words else ""
        match = _PARAMETER.fullmatch(text)
        if match is None:
            return None
        name = match["braced"] or match["bare"]
        if _NUMBER.fullmatch(name):
            words, place = (self._shell.name, *arguments), int(name)
            known = words[place] if place < len(words) else None if None in arguments else ""
        else:
            known = state.variables.get(name)
        if name == "PWD" and state.folder.startswith("/"):
            known = state.folder
        change = match["change"] or ""
        if known is not None and (other := re.fullmatch(":([-=+])(.*)", change, re.DOTALL)):
            return self._value(other[2], state) if bool(known) == (other[1] == "+") else known
        return known if known is None or not change else _changed(known, change)

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
        if "[[:" in shell or ("[^" in pattern and not self._shell.is_bash):  # dash has no `[^`
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
        if operator == "==" and not (double or self._shell.is_bash):
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
    if command in {"chmod", "tee", "touch"}:
        return cut and all(map(_RUNNABLE.fullmatch, arguments[:1] if command == "chmod" else ()))
    names = [command, *(arguments if command in {"find", "xargs"} else ())]
    return "chmod" in names[1:] or any(posixpath.basename(name) in _MAKES for name in names)


def _changed_files(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the files that a command changes: they follow a mode, a user or a text."""
    if command not in _CHANGES or (command == "sed" and not any(each.startswith("-i") for each in arguments)):
        return []
    return [each for each in arguments if not each.startswith("-")][command not in {"tee", "touch"} :]


def _tells(node: Node) -> bool:
    """Return whether a command may tell why the one before it failed."""
    if not isinstance(node, Simple):
        return False
    first = "".join(node.words[:1])
    return first in {"exit", "return", "echo"} or bool(ASSIGNMENT.fullmatch(first)) or not first


def _with_options(state: _State, options: Sequence[str]) -> _State:
    """Return the state after a shell's options, which a plus sign turns off."""
    is_on = True
    for option in options:
        is_on = option[:1] != "+" if option[:1] in {"-", "+"} else is_on
        if re.fullmatch("[-+][A-Za-z]*e[A-Za-z]*", option) or option == "errexit":
            state = replace(state, ends=is_on)
        state = replace(state, pipes=is_on) if option == "pipefail" else state
    return state


def _may_be_made(words: Sequence[str | None], state: _State, is_there: Callable[[str], bool]) -> bool:
    """Return whether the lines before may have made a program, or a file for it to run."""
    program = str(words[0])
    if state.ran and "/" in program and not is_there(posixpath.join(state.folder, program)):
        return True
    return any(_changes_program(path.rstrip("/"), word) for path in state.changed for word in words if word)


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
    names = {re.split(r"\+?=|\[", word.strip("\"'"))[0] for word in words}
    if any(LOOKED_UP.fullmatch(name) for name in names):
        state = replace(state, loose=True)
    return replace(
        state,
        variables={name: value for name, value in state.variables.items() if name not in names},
        arrays={name: value for name, value in state.arrays.items() if name not in names},
    )


def _changes(state: _State, ways: Iterable[_Outcome]) -> set[str]:
    """Return the variables that some ways from a state change."""
    known: Mapping[str, object] = {**state.variables, **state.arrays}
    after = [{**way.state.variables, **way.state.arrays} for way in ways]
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
    return (value or None) if change.startswith(":?") else None


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
