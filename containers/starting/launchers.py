"""Programs that start another one: ``#!``, `env`, the first process of a container, a shell's text.

Sources: Linux 6.12, fs/binfmt_script.c; coreutils/coreutils 01755d3, src/env.c (`shortopts`, `longopts`,
`parse_split_string`); krallin/tini v0.19.0, src/tini.c:97 (`-p` and `-e` have values); Yelp/dumb-init v1.2.5,
dumb-init.c:193 (`--rewrite`); openSUSE/catatonit v0.2.0, catatonit.c:458 (no option has a value).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

_FIRST_PROCESSES: Final = {"tini", "tini-static", "docker-init", "dumb-init", "catatonit"}
_AS_USER: Final = {"gosu", "su-exec"}
"""Programs whose first argument is a user, and the next ones a command of that user."""
_WITH_VALUE: Final = {"-p", "-e", "-r", "--rewrite", "-u", "--unset", "-C", "--chdir"}
"""Options of these programs and of `env` that the next argument is the value of."""
_SHELLS: Final = {"sh", "bash", "dash", "ash"}
_MOST_TEXT: Final = 4096
"""Characters of a shell's text that are read: its first commands count."""
_BUFFER: Final = 256
"""Bytes of a file that the kernel reads (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`)."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SPLITS: Final = re.compile(r"-v?S|--split-string=?")
"""The option of `env` that makes words of its value; in ``#!`` the file's path follows it."""
_PLAIN: Final = re.compile(r"[\w./+:@%,-]+")
_PASSED: Final = {"set", ":", "true", "ulimit", "umask", "echo", "printf", "trap"}
"""Commands of a shell after which the next one is looked up as before."""
_BUILT_IN: Final = re.compile(
    r"alias|bg|break|builtin|caller|case|cd|command|continue|coproc|declare|dirs|disown|do|done|elif|else|enable|esac|eval"
    r"|exit|export|false|fg|fi|for|function|getopts|hash|if|in|jobs|kill|let|local|logout|mapfile|popd|pushd|pwd|read"
    r"|readarray|readonly|return|select|shift|shopt|source|suspend|test|then|time|times|type|typeset|unalias|unset|until"
    r"|wait|while|[.]"
)
"""Further words that a shell itself knows."""


class Words(NamedTuple):
    """What is started: a program, by path or name, and its arguments; ``maybe`` if it may be found in other ways."""

    program: str
    arguments: tuple[str, ...] = ()
    maybe: bool = False


def interpreter(start: bytes) -> tuple[Words, str]:
    """Return what starts a script, or the problem of its first line; ``start`` is what the kernel reads of it."""
    line, newline, _ = start.removeprefix(b"#!").partition(b"\n")
    line = line.partition(b"\0")[0]
    if not line.strip(b" \t"):
        return Words(""), "names no program"
    if not newline and len(start) >= _BUFFER and not re.search(rb"[ \t]", line.lstrip(b" \t")):
        return Words(""), f"is longer than the {_BUFFER} bytes that the kernel reads"
    program, *arguments = (
        word.decode(errors="replace") for word in re.split(rb"[ \t]+", line.strip(b" \t"), maxsplit=1)
    )
    if line.endswith(b"\r"):
        return Words(""), "ends with a carriage return, which is a part of the name: the file has line ends of Windows"
    return Words(program, tuple(arguments)), ""


def launched(words: Words) -> Words | None:
    """Return what a program starts; None if it is not known to start another."""
    name = posixpath.basename(words.program)
    if name in _FIRST_PROCESSES:
        return _after_options(words.arguments)
    if name in _AS_USER:
        return _after_options(words.arguments[1:])
    if name == "env":
        return _of_env(words.arguments)
    if name in _SHELLS:
        return _of_shell(words.arguments)
    return None


def wrapped(words: Words) -> Words | None:
    """Return the program that a script starts with its arguments. The script may change PATH."""
    program = next(iter(words.arguments), "-")
    return None if program.startswith("-") else Words(program, words.arguments[1:], maybe="/" not in program)


def _after_options(arguments: Sequence[str]) -> Words | None:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    return Words(rest[0], tuple(rest[1:])) if rest else None


def _of_env(arguments: Sequence[str]) -> Words | None:
    rest = list(arguments)
    options = list(takewhile(lambda word: word.startswith("-") or _ASSIGNMENT.fullmatch(word), rest))
    split = next((number for number, option in enumerate(options) if _SPLITS.match(option)), None)
    if split is not None:
        text = " ".join((_SPLITS.sub("", rest[split], count=1), *rest[split + 1 : split + 2]))
        rest[split : split + 2] = _split(text)
    if any(argument in {"-i", "-", "--ignore-environment"} for argument in rest):
        return None  # PATH is another one
    while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0])):
        option = rest.pop(0)
        if option.startswith("PATH="):
            return None
        if option in _WITH_VALUE and rest:
            rest.pop(0)
    return Words(rest[0], tuple(rest[1:])) if rest else None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _of_shell(arguments: Sequence[str]) -> Words | None:
    """Return the first program of a shell's text, if that is plain."""
    options = []
    rest = list(arguments)
    while rest and rest[0].startswith(("-", "+")):
        options.append(rest.pop(0))
    if not rest or not any(re.fullmatch(r"-[a-z]*c[a-z]*", option) for option in options):
        return None
    words = next(_commands(rest[0][:_MOST_TEXT]), None)
    by_login = any(option == "--login" or re.fullmatch(r"-[a-z]*[li][a-z]*", option) for option in options)
    if words is None or (by_login and "/" not in words.program):
        return None  # a login shell reads files that may set PATH
    return words


def _commands(text: str) -> Iterator[Words]:
    """Yield the commands that are certain to run as they stand: up to the first that a shell itself decides on."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        return
    for token in [*tokens, ";"]:
        if token not in {"&&", ";", "||", "|", "&"}:
            command.append(token)
            continue
        if (words := _command(command)) is None:
            return
        if words.program:
            yield words
            return
        if token not in {"&&", ";"}:
            return
        command = []


def _command(tokens: Sequence[str]) -> Words | None:
    """Return a command's program, without a name where the shell only sets itself up; None if that is not plain."""
    rest = list(tokens)
    while rest and _ASSIGNMENT.fullmatch(rest[0]):
        if rest.pop(0).startswith("PATH="):
            return None
    if rest and rest[0] == "exec":
        rest.pop(0)
    if not rest or rest[0] in _PASSED:
        return Words("")
    if _BUILT_IN.fullmatch(rest[0]) or not _PLAIN.fullmatch(rest[0]):
        return None
    return Words(rest[0], tuple(rest[1:]))
