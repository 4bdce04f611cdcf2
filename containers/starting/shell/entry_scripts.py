"""Why a shell's text or script starts nothing, for known arguments: entry points of images choose by their command.

A script is followed along each of its ways. A condition that only a container decides has two. A command that does not
start fails, which may end the shell; nothing is known of the status of one that starts. Sources: as for `shell_syntax`;
`dash` and `bash` are asked in tests/images/test_started.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from containers import budget
from containers.errors import one_line
from containers.starting.refusals import Refusal
from containers.starting.shell import shell_syntax
from containers.starting.shell.command_effects import QUIET, changed_files, makes, may_be_made, placed, starts
from containers.starting.shell.conditions import Conditions
from containers.starting.shell.script_state import (
    Asked,
    Outcome,
    Shell,
    State,
    changes,
    different,
    with_options,
    without,
)
from containers.starting.shell.shell_syntax import (
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
from containers.starting.shell.shell_text import ASSIGNMENT, CODE, LOOKED_UP, SHORT, is_name
from containers.starting.shell.word_values import NUMBER, Values

_MOST_STEPS: Final = 5000
_MOST_WORDS: Final = 1000
"""Arguments that are followed: a line may double them."""
_MOST_TURNS: Final = 16
"""Turns of a loop over known words that are followed one by one."""
_DEEPEST: Final = 8
"""Functions that call each other."""
_OF_FILE: Final = re.compile(r"^-[a-moprstuwxGLNOS]$|^(?!\d*>|/dev/null).*/")
"""Words of a loop that may wait for a file."""
_LOCAL: Final = {"local", "declare", "typeset"}
_IN_LOOP: Final = {"on", "break", "continue"}
_DECLARES: Final = {"export", "readonly", *_LOCAL}
_STATUSES: Final = {"true": True, ":": True, "false": False, "echo": True, "printf": True}
_SETS: Final = {"read", "mapfile", "readarray", "getopts", "printf", "unset"}
_PREFIXES: Final = {"command", "builtin"}
"""Words before a command that is no function."""
_OF_EXEC: Final = re.compile("-[cl]*(a?)|--")
"""Options of `exec` in bash; the last one may have a value."""
_LOOKS_UP: Final = re.compile("command -[vV]|which|type|hash")
"""What says whether a name is there, as it stands before the name."""
_AT_END: Final = re.compile("EXIT|0|ERR|DEBUG")
"""Conditions of `trap` that are no signals."""
_LOOKS: Final = frozenset(["ls", "stat", "command", "which", "type", "hash"])
"""Words of a loop that waits, by which it may wait for a program."""
_OF_RUN: Final = {"PWD", "OLDPWD", "SECONDS", "RANDOM", "SRANDOM", "REPLY", "OPTIND", "OPTARG", "LINENO", "BASHPID"}
"""Variables that a shell itself sets."""
_OF_ALL: Final = re.compile(r"/etc/(?:passwd|group)|.*\.(?:pyc?|pth)")
"""Files that change what names stand for, or modules."""
_OTHER_SHELL: Final = re.compile("nocasematch|execfail|expand_aliases|lastpipe")
"""Options of `shopt` by which a script means something else."""
_SET: Final = re.compile(r"\$\{(\w+):?=")
"""How a word sets a variable that is not set."""


def refusal(text: str, arguments: Sequence[str | None], shell: Shell) -> Refusal | None:
    """Return why a script starts nothing; None if it may start something."""
    state = with_options(State(tuple(arguments)), shell.options)
    try:
        if any(map(_OTHER_SHELL.fullmatch, shell.options)):
            return None
        ways = list(_Ways(shell, state.arguments).block(shell_syntax.parse(text, is_bash=shell.is_bash), state))
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
    if refused or not ways or not first or first.startswith("-") or first in {"help", "usage", "version"}:
        return refused[-1] if refused else None
    return Refusal(f"{shell.name} starts nothing for {one_line(first)}", shell.name)


class _Ways:
    """The ways through a script."""

    def __init__(self, shell: Shell, arguments: tuple[str | None, ...]) -> None:
        self._shell, self._arguments = shell, arguments
        self._calls: list[str] = []
        self._values = Values(shell, self._calls)
        self._conditions = Conditions(shell, self._values)
        self._steps = 0
        self._status: bool | None = True
        self._known: dict[Asked, Refusal | None] = {}

    def block(self, body: Block, state: State) -> Iterator[Outcome]:
        """Yield where the ways through some commands lead, one for each different one."""
        ways = [Outcome(state, "on", self._status)]
        for node in body:
            following: list[Outcome] = []
            for way in ways:
                if way.kind == "on":
                    self._status = way.status
                    following += self._node(node, way.state if _tells(node) else replace(way.state, refused=None))
                else:
                    following.append(way)
            ways = different(following)
        yield from ways

    def _node(self, node: Node, state: State) -> list[Outcome]:
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
            if node.name == "command_not_found_handle":
                raise UnreadableScript  # bash calls it instead of a program
            return [Outcome(replace(state, functions={**state.functions, node.name: node.body}), "on", status=True)]
        if isinstance(node, Group):
            return list(self.block(node.body, state))
        return [self._apart(node, state)]

    def _apart(self, node: Apart, state: State) -> Outcome:
        """Return the state after what another shell ran."""
        bodies: Iterable[Block] = ((each,) for each in node.body) if node.kind == "|" else (node.body,)
        start = replace(state, refused=None, quiet=state.quiet or "$" in node.kind)  # where bash goes on
        parts = [list(self.block(body, start)) for body in bodies]
        refusals = [self._failure(part) for part in parts]
        if node.kind == "|":  # the last part is of the same shell in zsh and ksh
            state = without(state, changes(state, parts[-1]))
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
            return Outcome(replace(after, refused=None, jobs=(*state.jobs, after.refused)), "on", status=True)
        if node.kind == "${":
            return Outcome(replace(after, refused=None), "on")
        return self._failed(after, ends=node.kind != "$(") if after.refused else Outcome(after, "on")

    def _failure(self, ways: Sequence[Outcome]) -> Refusal | None:
        """Return why each of some ways fails, None if one may not."""
        fail = all(way.status is False and way.kind in {"on", "exit", "return"} and way.state.refused for way in ways)
        return ways[0].state.refused if ways and fail else None

    def _failed(self, state: State, *, ends: bool = True) -> Outcome:
        """Return the outcome of a command that was refused."""
        return Outcome(state, "exit" if ends and state.ends and not state.quiet else "on", status=False)

    def _chain(self, chain: Chain, state: State) -> list[Outcome]:
        ways = [Outcome(state, "on", status=True)]
        last = chain.parts[-1]
        for part in chain.parts:
            operator, turned, node = part
            following: list[Outcome] = []
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
                    following.append(Outcome(replace(one.state, quiet=way.state.quiet), one.kind, status))
            ways = different(following)
        return ways

    def _condition(self, condition: Condition, state: State) -> Iterator[Outcome]:
        states = [state]
        for test, body in condition.arms:
            otherwise: list[State] = []
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
        yield from (Outcome(each, "on", status=True) for each in states)

    def _choice(self, choice: Choice, state: State) -> Iterator[Outcome]:
        subject = self._values.value(choice.word, state)
        certain = subject is not None
        for patterns, body in choice.arms:
            matches = [self._values.matches(subject, pattern, state) for pattern in patterns]
            if any(match is not False for match in matches):
                certain &= True in matches
                yield from self.block(body, state)
            if True in matches:
                return
        is_own = not state.ran and (not self._calls or state.arguments == self._arguments)
        unmatched = certain and is_own and choice.word.strip('"') in {"$1", "${1}"}
        yield Outcome(replace(state, unmatched=unmatched or state.unmatched), "on", status=True)

    def _loop(self, loop: Loop, state: State) -> list[Outcome]:
        if _may_wait(loop, state):
            raise UnreadableScript
        values = self._values.values(loop.words, state)
        if loop.variable and None not in values and len(values) <= _MOST_TURNS:
            return self._each(loop, values, state)
        start = without(state, [loop.variable])
        start = without(start, changes(start, self._once(loop, start)))
        ways = self._once(loop, start)
        on = [way.state for way in ways if way.kind in _IN_LOOP]
        if any(_of_shell(each) != _of_shell(state) for each in on):
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
        return [*(way for way in ways if way.kind not in _IN_LOOP), Outcome(after, "on")]

    def _each(self, loop: Loop, values: Sequence[str | None], state: State) -> list[Outcome]:
        """Return where the ways through a loop over known words lead."""
        ways = [Outcome(state, "on")]
        for value in values:
            following: list[Outcome] = []
            for way in ways:
                if way.kind != "on":
                    following.append(way)
                    continue
                variables = {**way.state.variables, loop.variable: str(value)}
                turn = self.block(loop.body, replace(way.state, variables=variables))
                following += (one._replace(kind="on") if one.kind == "continue" else one for one in turn)
            ways = different(following)
        return [way._replace(kind="on") if way.kind == "break" else way for way in ways]

    def _once(self, loop: Loop, state: State) -> list[Outcome]:
        """Return where the ways through one run of a loop lead."""
        return [
            one
            for way in self.block(loop.head, replace(state, quiet=True))
            for one in (self.block(loop.body, replace(way.state, quiet=state.quiet)) if way.kind == "on" else [way])
        ]

    def _simple(self, words: Sequence[str], state: State) -> list[Outcome]:
        rest = list(words)
        state = without(state, [name for word in words for name in _SET.findall(word)])
        while rest and ASSIGNMENT.fullmatch(rest[0]):
            state = self._assigned(state, rest.pop(0))
        if rest:  # those are for the command, of which some keep them
            state = without(state, words[: len(words) - len(rest)])
        else:
            if not any(re.search(r"\$\(|`", word) for word in words):
                return [Outcome(state, "on", status=True)]
            return [self._failed(state) if state.refused and self._status is False else Outcome(state, "on")]
        if rest[0] == "[[" and not self._shell.is_bash:
            raise UnreadableScript  # dash knows none
        if rest[0] in {"[", "test", "[["}:
            return [Outcome(state, "on", status=self._conditions.status(rest, state))]
        values = self._values.values(rest, state)
        command, arguments = values[0] if values else None, values[1:]
        if isinstance(command, str) and command in state.functions:
            return self._call(command, arguments, state)
        return self._builtin(command, rest, arguments, state)

    def _builtin(
        self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: State
    ) -> list[Outcome]:
        """Return where a command other than a function leads."""
        if command in {"exit", "return", "break", "continue"}:
            return [self._left(str(command), words, arguments, state)]
        if command in _PREFIXES and arguments[:1] and not str(arguments[0] or "-").startswith("-"):
            if arguments[0] == ".":
                raise UnreadableScript  # it does not end the shell
            return self._builtin(arguments[0], words[1:], arguments[1:], state)
        if command == "eval" and None not in arguments:
            return list(self.block(self._parsed(" ".join(map(str, arguments))), state))
        if command == "exec":
            return self._exec(arguments, state)
        if command == "cd":
            return [self._entered(arguments, state)]
        if command in {".", "source"}:
            return [self._sourced(command, arguments, state)]
        if _LOOKS_UP.fullmatch(" ".join(words[:-1])) and arguments and arguments[-1]:
            return [self._looked_up(arguments[-1], state)]
        if command == "wait":
            refused = state.jobs[-1] if words[1:] and state.jobs and all(state.jobs) else None
        else:
            refused = self._why_not(command, arguments, state)
        if refused:
            return [self._failed(replace(state, refused=refused))]
        return [self._set(command, words, arguments, state)]

    def _why_not(self, command: str | None, arguments: tuple[str | None, ...], state: State) -> Refusal | None:
        """Return why a command does not start that is no part of the shell; None if it may."""
        if not command or state.ran or not is_name(command):
            return None
        return self._refusal((command, *arguments), state)

    def _looked_up(self, name: str, state: State) -> Outcome:
        """Return where a command leads that says whether a name is there."""
        refused = self._refusal((name,), state) if name not in state.functions and is_name(name) else None
        is_gone = refused is not None and refused.about == name
        return self._failed(replace(state, refused=refused)) if is_gone else Outcome(state, "on")

    def _left(self, command: str, words: Sequence[str], arguments: tuple[str | None, ...], state: State) -> Outcome:
        """Return where a command leads that leaves a loop, a function or the script."""
        if command in {"break", "continue"}:
            if arguments not in {(), ("1",)}:
                raise UnreadableScript
            return Outcome(state, command)
        if command == "return" and not self._calls and self._shell.is_bash:
            return Outcome(state, "on", status=False)  # which leaves functions only
        if not arguments or words[1].strip('"') == "$?":
            return Outcome(state, command, self._status)
        code = arguments[0]
        return Outcome(state, command, None if code is None or not NUMBER.fullmatch(code) else int(code) == 0)

    def _set(
        self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: State
    ) -> Outcome:
        """Return where a command of the shell that sets something leads, or a program that starts."""
        if command in {"shift", "set"}:
            after = self._rearranged(str(command), arguments, state)
            return Outcome(after, "on", status=None if command == "shift" and after is state else True)
        if command in _DECLARES:
            return Outcome(self._declared(str(command), words[1:], state), "on", status=True)
        if command == "alias" and not self._shell.is_bash:
            raise UnreadableScript  # whose names stand for others
        if command == "shopt" and any(each is None or _OTHER_SHELL.fullmatch(each) for each in arguments):
            raise UnreadableScript
        if command in _STATUSES and arguments[:1] != ("-v",):
            return Outcome(state, "on", status=_STATUSES[str(command)])
        if command == "trap":
            return Outcome(self._trapped(arguments, state), "on", status=True)
        return Outcome(self._ran(command, words, arguments, state), "on")

    def _refusal(self, words: tuple[str | None, ...], state: State, *, sourced: bool = False) -> Refusal | None:
        """Return why a program does not start; None if it may, or if the lines before may have made it."""
        if state.made or state.ran:
            return None
        asked = Asked(words, state.folder, state.loose, sourced)
        if asked not in self._known:
            self._known[asked] = self._shell.refusal(asked)
        refused = self._known[asked]
        return None if refused is None or may_be_made(words, refused.about, state) else refused

    def _parsed(self, text: str) -> Block:
        return shell_syntax.parse(text, is_bash=self._shell.is_bash)

    def _trapped(self, arguments: tuple[str | None, ...], state: State) -> State:
        """Return the state after `trap`, whose text may end the script otherwise or start something."""
        at_end = any(each is None or _AT_END.fullmatch(each) for each in arguments[1:])
        if not at_end or arguments[0] in {"-", ""}:
            return state
        if arguments[0] is None:
            return replace(state, ran=True)
        ways = list(self.block(self._parsed(arguments[0]), replace(state, variables={}, arrays={})))
        if {"ERR", "DEBUG"}.intersection(map(str, arguments[1:])) and any(
            way.state.variables or way.state.arrays for way in ways
        ):
            raise UnreadableScript  # which are set at any place
        return replace(state, ran=state.ran or any(way.kind != "on" or way.state.ran for way in ways))

    def _sourced(self, command: str, arguments: tuple[str | None, ...], state: State) -> Outcome:
        """Return where a file of commands leads, which may end the script if it is there."""
        file = arguments[0] if arguments else None
        path = posixpath.join(state.folder, file or "")
        is_changed = posixpath.basename(path) in map(posixpath.basename, state.changed)
        made = file is None or "/" not in file or self._shell.is_there(path) or is_changed
        after = replace(state, loose=True, made=state.made or made, unmatched=False, variables={}, arrays={})
        if made or not CODE.fullmatch(str(file)):
            return Outcome(after, "on")
        refused = self._refusal((file,), state, sourced=True)
        if refused is None:
            return Outcome(after, "on")
        outcome = self._failed(replace(after, refused=refused))
        goes_on = self._shell.is_bash or command == "source"  # which is no name to dash
        return outcome if goes_on else outcome._replace(kind="exit")

    def _written(self, words: Sequence[str], state: State) -> State:
        """Return the state after files were written; a program may be made of some."""
        files = [self._values.value(word, state) for word in words]
        made = None in files
        return self._with_changed(replace(state, made=state.made or made, unmatched=False), map(str, files))

    def _with_changed(self, state: State, files: Iterable[str]) -> State:
        """Return the state after files were changed."""
        places = tuple(placed(file, state) for file in files)
        made = any(map(_OF_ALL.fullmatch, places))
        return replace(state, made=state.made or made, changed=tuple(dict.fromkeys((*state.changed, *places))))

    def _ran(self, command: str | None, words: Sequence[str], arguments: tuple[str | None, ...], state: State) -> State:
        """Return the state after a program, or a command of the shell that sets variables."""
        if command == "sleep" and not all(each and SHORT.fullmatch(each) for each in arguments):
            raise UnreadableScript
        if command == "unset" and "-f" in words:
            raise UnreadableScript
        if command in {"((", "let"}:
            state = replace(state, variables={})
        elif command in _SETS:
            state = without(state, words[1:])
        known = [each for each in arguments if each]
        made = command is None or makes(command, known, cut=None in arguments)
        state = self._with_changed(state, changed_files(str(command), known))
        return replace(
            state,
            ran=state.ran or command not in QUIET or starts(str(command), known),
            made=state.made or made,
            unmatched=state.unmatched and (command == "printf" or (command == "cat" and not arguments)),
        )

    def _declared(self, command: str, words: Sequence[str], state: State) -> State:
        before = state
        for word in words:
            if not re.match(r"-?\w+\+?(?:=|$)", word) or re.match("-[a-z]*[inul]", word):
                raise UnreadableScript  # as in `export "PATH=..."`, or a variable that stands for another one
            state = self._assigned(state, word, before) if ASSIGNMENT.fullmatch(word) else without(state, [word])
        own = [word.partition("=")[0] for word in words] if command in _LOCAL else []
        return replace(state, own=state.own.union(own))

    def _exec(self, arguments: tuple[str | None, ...], state: State) -> list[Outcome]:
        rest = arguments
        while rest and rest[0] and (option := _OF_EXEC.fullmatch(rest[0])) and self._shell.is_bash:
            rest = rest[2 if option[1] else 1 :]
        if not arguments:  # a redirection, or no arguments
            return [Outcome(state, "on", status=True)]
        if not rest or rest[0] is None or rest[0].startswith("-"):
            raise UnreadableScript
        refused = self._refusal(rest, state)
        return [Outcome(replace(state, refused=refused), "exit" if refused else "exec", False if refused else None)]

    def _call(self, name: str, arguments: tuple[str | None, ...], state: State) -> list[Outcome]:
        if len(self._calls) >= _DEEPEST or len(arguments) > _MOST_WORDS:
            raise UnreadableScript
        self._calls.append(name)
        ways = list(self.block(state.functions[name], replace(state, arguments=arguments, own=frozenset())))
        self._calls.pop()
        return [
            way._replace(state=self._after_call(way.state, state), kind="on") if way.kind in {"on", "return"} else way
            for way in ways
        ]

    def _after_call(self, state: State, before: State) -> State:
        """Return the state after a function, whose own variables are again what they were: that is not kept."""
        return replace(without(state, state.own), arguments=before.arguments, own=before.own)

    def _rearranged(self, command: str, arguments: tuple[str | None, ...], state: State) -> State:
        """Return the state after `shift` or `set`."""
        if command == "shift":
            count = arguments[0] if arguments else "1"
            if count is None or not NUMBER.fullmatch(count) or None in state.arguments[: int(count)]:
                raise UnreadableScript
            if int(count) > len(state.arguments):
                return state  # where dash ends
            return replace(state, arguments=state.arguments[int(count) :])
        rest = arguments
        while rest and rest[0] is not None and re.fullmatch("[-+][A-Za-z]+", rest[0]):
            size = 2 if rest[0].endswith("o") else 1
            state, rest = with_options(state, [str(word) for word in rest[:size]]), rest[size:]
        if rest[:1] == (None,) or len(rest) > _MOST_WORDS:
            raise UnreadableScript
        return replace(state, arguments=rest[1:] if rest[:1] == ("--",) else rest) if rest else state

    def _entered(self, arguments: tuple[str | None, ...], state: State) -> Outcome:
        """Return where `cd` leads; a folder that is not there may be mounted, and a shell takes `..` away by name."""
        folder = arguments[0] if len(arguments) == 1 else None
        if folder is None or folder.startswith("-") or ".." in PurePosixPath(folder).parts:
            return Outcome(replace(state, loose=True), "on")
        after = replace(state, folder=posixpath.join(state.folder, folder))
        is_same = not (state.made or state.ran or state.changed)
        refused = self._shell.refusal(Asked((), after.folder, state.loose)) if is_same else None
        if refused:
            return self._failed(replace(state, refused=refused))
        return Outcome(after, "on", status=None if state.loose and not folder.startswith("/") else True)

    def _assigned(self, state: State, word: str, before: State | None = None) -> State:
        """Return the state after a word that sets a variable; its value is made of the variables ``before``."""
        name, _, value = word.partition("=")
        variable = name.removesuffix("+")
        if value.startswith("("):
            return self._with_array(state, name, value)
        known = None if name != variable or variable in _OF_RUN else self._values.value(value, before or state)
        state = without(state, [variable])
        if variable == "IFS":
            raise UnreadableScript
        loose = state.loose or bool(LOOKED_UP.fullmatch(variable))
        variables = state.variables if known is None else {**state.variables, variable: known}
        return replace(state, loose=loose, variables=variables)

    def _with_array(self, state: State, name: str, value: str) -> State:
        """Return the state after bash's array is set, or longer if its name ends with a plus sign."""
        variable = name.removesuffix("+")
        before = state.arrays.get(variable, (None,)) if name != variable else ()
        if not self._shell.is_bash or LOOKED_UP.fullmatch(variable):
            raise UnreadableScript
        after = before if None in before else (*before, *self._values.values(shell_syntax.elements(value), state))
        if len(after) > _MOST_WORDS:
            raise UnreadableScript
        return replace(without(state, [variable]), arrays={**state.arrays, variable: after})


def _may_wait(loop: Loop, state: State) -> bool:
    """Return whether a loop may wait for the program itself, or never end."""
    words = [*_words(loop.head), *_words(loop.body)]
    if "sleep" in words and _LOOKS.union(state.functions).intersection(words):
        return True
    if loop.variable and "sleep" not in words:
        return False
    return any(map(_OF_FILE.search, words)) or (not loop.variable and words[:1] in (["true"], [":"]))


def _of_shell(state: State) -> tuple[object, ...]:
    """Return what is known of a shell besides its variables."""
    return state.arguments, state.folder, state.functions, state.ends, state.pipes


def _tells(node: Node) -> bool:
    """Return whether a command may tell why the one before it failed."""
    if not isinstance(node, Simple):
        return False
    first = "".join(node.words[:1])
    return first in {"exit", "return", "echo"} or bool(ASSIGNMENT.fullmatch(first)) or not first


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
