"""The git repositories that a build's scripts fetch: the tag of each, and its commit in the lock.

Scripts fetch by ``fetch-source REPOSITORY REF DIRECTORY``. A locked tag or short commit is fetched by all digits of its
commit: the build gets a ``fetch-source`` with lines before it that replace the ref. Without an entry in the lock, the
script is as it is.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Set
from typing import Final

from containers.dockerfile.expansion import ExpansionError, expand
from stacks.identity.prologue import Prologue

SCRIPT: Final = "common/build/fetch-source"
"""The script that fetches, relative to the context."""

_CALL: Final = re.compile(r"^(?![ \t]*#).*fetch-source[ \t]+(\S+)[ \t]+([^\s)]+)", re.MULTILINE)
_NAMED: Final = ("repository", "tag")
_ASSIGNMENT: Final = re.compile(rf"^({'|'.join(_NAMED)})=(\S+)$", re.MULTILINE)
"""What ``dockerfiles/wheels/sources`` says of a component."""
_PLAIN: Final = re.compile(r"\$\{?(\w+)(?![\w:])")
"""A variable without a default."""
_DEFAULT: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")
"""A variable with a default."""
_TEST: Final = r'\[ (?:-n "\$\w+"|"\$\w+" = [\w.-]+) \]'
_GUARD: Final = re.compile(rf"^({_TEST}(?: && {_TEST})*) \|\| exit 0$", re.MULTILINE)
"""A line that ends a script which has nothing to do: ``[ -n "$VERSION" ] && [ "$SOURCE" = build ] || exit 0``."""
_TESTED: Final = re.compile(r'"\$(\w+)"(?: = ([\w.-]+))?')
"""A variable that must be that word, or not be empty."""
_LOADED: Final = re.compile(r"^[ \t]*(?:\.|source|eval)[ \t]", re.MULTILINE)
"""A line that runs another text in the script, which may set any variable."""
_END: Final = re.compile("[\n;&|]")
"""What ends a command."""
_SETTING: Final = re.compile(r"\b(?:read|for|unset)\b(.*)", re.DOTALL)
"""A command that sets the variables that it names, and their names."""
_WHOLE_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def refs(
    scripts: Mapping[str, str], arguments: Mapping[str, str | None], unsure: Mapping[str, Set[str]] | None = None
) -> Iterator[str]:
    """Yield the tags and commits in the scripts' fetches, as ``owner/name tag``, without those never fetched.

    A repository or tag that is not known before the build is yielded as the script has it. ``arguments`` are the values
    of the build arguments that the scripts read; ``unsure`` are by path those that a script may see with another value.
    """
    values = {path: {**arguments, **dict.fromkeys((unsure or {}).get(path, ()))} for path in scripts}
    named = {
        name: _expanded(word, values[path])
        for path, text in scripts.items()
        for name, word in _ASSIGNMENT.findall(text)
    }
    for path, text in scripts.items():
        variables = {**values[path], **named}
        for call in _CALL.finditer(_reached(text, variables)) if path != SCRIPT else ():
            words = call.groups()
            known = _before(text[: call.start()], variables)
            if any(known.get(name) == "" for name in _PLAIN.findall(_used(words[1], known))):
                continue  # scripts leave out what has no version
            repository, ref = (_expanded(word, known) for word in words)
            if repository is None or ref is None:
                yield " ".join(words)
            elif ref:
                yield f"{repository} {ref}"


def lines(command: str) -> str:
    """Return the command of a step as a script with a line for each of its commands."""
    return _END.sub("\n", command)


def _used(word: str, known: Mapping[str, str | None]) -> str:
    """Return a word with the defaults of unset or empty variables, and without the others with a default.

    Nothing behind the last brace has a default that ends: each would be searched to the end of the word.
    """
    closed, brace, rest = word.rpartition("}")
    return _DEFAULT.sub(lambda match: "" if known.get(match[1]) else match[2], closed + brace) + rest


def named(text: str, scripts: Mapping[str, str]) -> set[str]:
    """Return the scripts in a text, by the last part of their paths, and the scripts that these name."""
    words = {path: posixpath.basename(path) for path in scripts}
    found: set[str] = set()
    texts = [text]
    while texts:
        named_there = {path for path in words.keys() - found if _is_word(words[path], texts[-1])}
        texts[-1:] = [scripts[path] for path in named_there]
        found |= named_there
    return found


def _is_word(word: str, text: str) -> bool:
    """Return whether a text has a word. Most do not: the pattern alone took a quarter of the time of a plan."""
    return word in text and re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", text) is not None


def own_commit(source: str) -> str | None:
    """Return the commit that a source, ``owner/name ref``, names itself; None for a tag and a short commit."""
    match = _WHOLE_COMMIT.fullmatch(source.rpartition(" ")[2])
    return match and match[0]


def locked(sources: Mapping[str, str | None]) -> dict[str, str]:
    """Return those of the sources whose commits are the lock's. ``sources`` has commits by ``owner/name ref``."""
    return {name: commit for name, commit in sources.items() if commit and not own_commit(name)}


def prologue(commits: Mapping[str, str]) -> Prologue:
    """Return the lines before ``fetch-source`` that replace refs, given as ``owner/name ref``, by their commits."""
    cases = "".join(
        f'  {shlex.quote(name)}) set -- "$1" {commit} "$3" ;;\n' for name, commit in sorted(commits.items())
    )
    lines = f'#!/bin/sh\n# The commits of stacks/lock.toml.\ncase "$1 $2" in\n{cases}esac\n'
    return Prologue(lines, lines)


def _reached(text: str, variables: Mapping[str, str | None]) -> str:
    """Return a script up to its first ending line, by the variables known there."""
    for guard in _GUARD.finditer(text):
        before = text[: guard.start()]
        if _LOADED.search(before):
            return text
        for name, word in _TESTED.findall(guard[1]):
            value = None if _sets(before, name) else variables.get(name)
            if value is not None and (value != word if word else not value):
                return before
    return text


def _before(text: str, variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the variables after lines of a script; those that it does not set stay known.

    ``repository`` and ``tag`` are known by their assignments.
    """
    return {name: value if name in _NAMED or not _sets(text, name) else None for name, value in variables.items()}


def _sets(text: str, name: str) -> bool:
    """Return whether lines of a script may set a variable: ``NAME=``, ``${NAME:=...}``, ``read`` or ``for``."""
    if name not in text:  # mostly, and quickly
        return False
    name = re.escape(name)
    if re.search(rf"\b{name}[:+]?=", text):
        return True
    commands = (_SETTING.search(command) for command in _END.split(text))
    return any(command and re.search(rf"\b{name}\b", command[1]) for command in commands)


def _expanded(word: str, variables: Mapping[str, str | None]) -> str | None:
    try:
        return expand(word, variables, escape="\\", complete=False)
    except ExpansionError:
        return None
