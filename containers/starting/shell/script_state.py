"""What a shell starts a script with, and what is known on a way through it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from containers import budget
from containers.starting.refusals import Refusal
from containers.starting.shell.shell_syntax import Block, UnreadableScript
from containers.starting.shell.shell_text import LOOKED_UP

_MOST_WAYS: Final = 64
"""Ways through a script that are followed."""


class Asked(NamedTuple):
    """A program whose start a script asks for: its words, which end with None where unknown ones follow.

    ``folder`` is where it starts. ``loose`` is whether something before may have changed PATH.
    ``sourced`` is whether the shell reads the file as a part of the script.
    """

    words: tuple[str | None, ...]
    folder: str = ""
    loose: bool = False
    sourced: bool = False


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


@dataclass(frozen=True)
class State:
    """What is known on one way; ``arguments`` may end with None: more follow that are unknown.

    ``ran`` is whether a program ran that may be what the container is for, or may have made another one. ``made`` is
    whether a command made files that are not known, or the script may have ended; ``changed`` are the known files and
    folders that were written or changed, as from the root. ``own`` are a function's variables.
    ``unmatched`` is whether the first argument is none of those that the script chooses by, and nothing ran before and
    nothing ran or was written since.
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


class Outcome(NamedTuple):
    """Where a way leads after a command: ``kind`` is `on`, `break`, `continue`, `return`, `exit` or `exec`."""

    state: State
    kind: str
    status: bool | None = None


def with_options(state: State, options: Sequence[str]) -> State:
    """Return the state after a shell's options, which a plus sign turns off."""
    is_on = True
    for option in options:
        is_on = option[:1] != "+" if option[:1] in {"-", "+"} else is_on
        if re.fullmatch("[-+][A-Za-z]*e[A-Za-z]*", option) or option == "errexit":
            state = replace(state, ends=is_on)
        state = replace(state, pipes=is_on) if option == "pipefail" else state
    return state


def without(state: State, words: Iterable[str]) -> State:
    """Return a state without the values of the variables among some words."""
    names = {re.split(r"\+?=|\[", word.strip("\"'"))[0] for word in words}
    if any(LOOKED_UP.fullmatch(name) for name in names):
        state = replace(state, loose=True)
    return replace(
        state,
        variables={name: value for name, value in state.variables.items() if name not in names},
        arrays={name: value for name, value in state.arrays.items() if name not in names},
    )


def changes(state: State, ways: Iterable[Outcome]) -> set[str]:
    """Return the variables that some ways from a state change."""
    known: Mapping[str, object] = {**state.variables, **state.arrays}
    after = [{**way.state.variables, **way.state.arrays} for way in ways]
    return {name for each in after for name in {*each, *known} if each.get(name) != known.get(name)}


def different(ways: Sequence[Outcome]) -> list[Outcome]:
    """Return ways without those that are as others."""
    different: list[Outcome] = []
    for way in ways:
        budget.check()
        if way not in different:
            different.append(way)
        if len(different) > _MOST_WAYS:
            raise UnreadableScript
    return different
