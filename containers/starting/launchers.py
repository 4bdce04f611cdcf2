"""Programs that start another one: ``#!``, `env`, the first process of a container, a shell's text.

Sources: Linux 6.12, fs/binfmt_script.c; coreutils/coreutils 01755d3, src/env.c (`shortopts`, `longopts`,
`parse_split_string`); krallin/tini v0.19.0, src/tini.c:97 (`-p` and `-e` have values); Yelp/dumb-init v1.2.5,
dumb-init.c:193 (`--rewrite`); openSUSE/catatonit v0.2.0, catatonit.c:458 (no option has a value).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from containers.starting.shell_text import ASSIGNMENT, ENDS, LOOKED_UP, Text


class _Launcher(NamedTuple):
    """A program that starts its arguments: options with a value, and how many arguments come before the program."""

    with_value: frozenset[str] = frozenset()
    before: int = 0


_AS_USER: Final = ("gosu", "su-exec")
_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    **dict.fromkeys(("tini", "tini-static", "docker-init"), _Launcher(frozenset({"-p", "-e"}))),
    "dumb-init": _Launcher(frozenset({"-r", "--rewrite"})),
    "catatonit": _Launcher(),
    **dict.fromkeys(_AS_USER, _Launcher(before=1)),  # the user
    "nohup": _Launcher(),
    "setsid": _Launcher(),
    "nice": _Launcher(frozenset({"-n", "--adjustment"})),
    "stdbuf": _Launcher(frozenset({"-i", "-o", "-e", "--input", "--output", "--error"})),
    "timeout": _Launcher(frozenset({"-k", "-s", "--kill-after", "--signal"}), 1),
}
_WITH_VALUE: Final = {"-u", "--unset", "-C", "--chdir", "-a", "--argv0"}
"""Options of `env` that the next argument is the value of."""
_SHELLS: Final = {"sh", "bash", "dash", "ash"}
_BUFFER: Final = 256
"""Bytes of a file that the kernel reads (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`)."""
_SPLITS: Final = re.compile(r"-v?S|--split-string=?")
"""The option of `env` that makes words of its value; in ``#!`` the file's path follows it."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class Words(NamedTuple):
    """What is started: a program, by path or name, and its arguments.

    ``folder`` is where it starts, empty for where its starter is; ``must_enter`` is whether nothing starts if that
    folder cannot be entered. ``by_text`` is whether a shell runs a text without ``#!``, which the kernel refuses.
    ``user`` is who starts it, empty for who starts its starter. ``loose`` is whether its starter may have changed PATH,
    the folder, the accounts or Python's settings: then only a path from the root is certain.
    """

    program: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    must_enter: bool = False
    by_text: bool = False
    user: str = ""
    loose: bool = False


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
    splits = posixpath.basename(program) == "env" and arguments and _SPLITS.match(arguments[0])
    if line.endswith(b"\r") and not splits:
        return Words(""), "ends with a carriage return, which is a part of the name: the file has line ends of Windows"
    return Words(program, tuple(arguments)), ""


def launched(words: Words, environment: Mapping[str, str], wraps: Callable[[str], bool]) -> Words | None:
    """Return what a program starts, with an image's environment; None if it is not known to start another.

    ``wraps`` returns whether a script, by path, starts its arguments.
    """
    name = posixpath.basename(words.program)
    if launcher := _LAUNCHERS.get(name):
        return _after_options(words.arguments, launcher, name)
    if name == "env":
        return _of_env(words.arguments, environment)
    if name in _SHELLS:
        return _of_shell(words.arguments, environment, wraps)
    return None


def _after_options(arguments: Sequence[str], launcher: _Launcher, name: str) -> Words | None:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in launcher.with_value and rest:
            rest.pop(0)
    before, rest = rest[: launcher.before], rest[launcher.before :]
    if not rest or rest[0].startswith("-"):
        return None
    user = before[0] if name in _AS_USER else ""
    return Words(rest[0], tuple(rest[1:]), by_text=name != "gosu", user=user)  # gosu starts it as the kernel does


def _of_env(arguments: Sequence[str], environment: Mapping[str, str]) -> Words | None:
    rest = list(arguments)
    options = list(takewhile(lambda word: word.startswith("-") or ASSIGNMENT.fullmatch(word), rest))
    split = next((number for number, option in enumerate(options) if _SPLITS.match(option)), None)
    if split is not None:
        text = " ".join((_SPLITS.sub("", rest[split], count=1), *rest[split + 1 : split + 2]))
        if (words := _split(text, environment)) is None:
            return None
        rest[split : split + 2] = words
    folder, loose = "", False
    while rest and (rest[0].startswith("-") or ASSIGNMENT.fullmatch(rest[0])):
        option, value = _option(rest)
        if option in {"-C", "--chdir"}:
            folder = value
        changed = value if option in {"-u", "--unset"} else option
        loose |= bool(re.fullmatch(r"-\w*i\w*|-|--ignore-.*", option) or LOOKED_UP.fullmatch(changed))
    if not rest or (loose and "/" not in rest[0]):
        return None
    return Words(rest[0], tuple(rest[1:]), folder=folder, must_enter=True, by_text=True, loose=loose)


def _option(rest: list[str]) -> tuple[str, str]:
    """Take an option of `env` or a variable from its arguments, and return its name and value."""
    option = rest.pop(0)
    if option in _WITH_VALUE and rest:
        return option, rest.pop(0)
    if option[:2] in _WITH_VALUE:  # as in `-C/app`
        return option[:2], option[2:]
    name, _, value = option.partition("=")
    return name, value


def _split(text: str, environment: Mapping[str, str]) -> list[str] | None:
    """Return the words that `env -S` makes; None with escapes of its own, or a variable that only a container has."""
    text = _VARIABLE.sub(lambda name: environment.get(name[1], name[0]), text)
    try:
        return None if re.search(r"[\\$#]", text) else shlex.split(text)
    except ValueError:
        return []


def _shell_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a shell's options, and the arguments after them."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith(("-", "+")) and "--" not in options:
        options.append(rest.pop(0))
        if re.fullmatch(r"[-+][a-zA-Z]*[oO]", options[-1]) and rest:
            options.append(rest.pop(0))
    return options, rest


def _of_shell(arguments: Sequence[str], environment: Mapping[str, str], wraps: Callable[[str], bool]) -> Words | None:
    """Return the first program of a shell's text, or the one that its script starts with its arguments."""
    options, rest = _shell_options(arguments)
    if not any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option) for option in options):
        name = "".join(rest[1:2])
        wrapped = name and not name.startswith("-") and wraps(rest[0])
        return Words(name, tuple(rest[2:]), by_text=True, loose=True) if wrapped else None
    text = Text(
        tuple(rest[2:]), searches="CDPATH" in environment, ends=any(ENDS.fullmatch(option) for option in options)
    )
    program = text.program("".join(rest[:1]))
    # A login shell reads files that may set PATH.
    reads_file = any(option == "--login" or re.fullmatch(r"-[a-zA-Z]*[li][a-zA-Z]*", option) for option in options)
    loose = text.sets or reads_file or any(re.match(r"(?:BASH_)?ENV$|BASH_FUNC_", name) for name in environment)
    if program is None or not program.name or (loose and "/" not in program.name):
        return None
    return Words(program.name, program.arguments, program.folder, text.must_enter, by_text=True, loose=loose)
