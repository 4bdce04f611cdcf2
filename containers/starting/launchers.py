"""Programs that start another one: ``#!``, `env`, the first process of a container, a shell's text.

Sources: Linux 6.12, fs/binfmt_script.c; coreutils/coreutils 01755d3, src/env.c (`shortopts`, `longopts`,
`parse_split_string`); krallin/tini v0.19.0, src/tini.c:97 (`-p` and `-e` have values); Yelp/dumb-init v1.2.5,
dumb-init.c:193 (`--rewrite`); openSUSE/catatonit v0.2.0, catatonit.c:458 (no option has a value).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple


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
_MOST_TEXT: Final = 4096
"""Characters of a shell's text that are read: its first commands count."""
_BUFFER: Final = 256
"""Bytes of a file that the kernel reads (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`)."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SPLITS: Final = re.compile(r"-v?S|--split-string=?")
"""The option of `env` that makes words of its value; in ``#!`` the file's path follows it."""
_PLAIN: Final = re.compile(r"[\w./+:@%,][\w./+:@%,-]*")
_PUNCTUATION: Final = ";&|()<>\n"
_SEPARATORS: Final = {"&&", ";", "||", "|", "&"}
_REDIRECTIONS: Final = {">", ">>", "<", ">&", "<&", "&>", "&>>", ">|"}
_QUOTED_SEPARATOR: Final = re.compile(rf"([\"'])[{_PUNCTUATION}]+\1")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_PASSED: Final = frozenset(
    ["set", ":", "true", "ulimit", "umask", "echo", "printf", "trap", "sleep", "date", "id", "uname", "export"]
)
"""Commands after which a shell looks the next one up as before."""
_LOOKED_UP: Final = re.compile(r"(?:PATH|CDPATH|ENV|BASH_ENV|IFS)(?:=.*)?", re.DOTALL)
"""Variables that change what a command is."""
_BUILT_IN: Final = re.compile(
    r"alias|bg|break|builtin|caller|case|cd|command|continue|coproc|declare|dirs|disown|do|done|elif|else|enable|esac|eval"
    r"|exit|export|false|fg|fi|for|function|getopts|hash|if|in|jobs|kill|let|local|logout|mapfile|popd|pushd|pwd|read"
    r"|readarray|readonly|return|select|shift|shopt|source|suspend|test|then|time|times|type|typeset|unalias|unset|until"
    r"|wait|while|[.]"
)
"""Further words that a shell itself knows."""


class Words(NamedTuple):
    """What is started: a program, by path or name, and its arguments.

    ``maybe`` if it may be found in other ways. ``folder`` is where it starts, empty for where its starter is;
    ``must_enter`` is whether nothing starts if that folder cannot be entered. ``by_text`` is whether a shell runs a
    text without ``#!``, which the kernel refuses. ``user`` is who starts it, empty for who starts its starter.
    """

    program: str
    arguments: tuple[str, ...] = ()
    maybe: bool = False
    folder: str = ""
    must_enter: bool = False
    by_text: bool = False
    user: str = ""


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


def launched(words: Words, environment: Mapping[str, str]) -> Words | None:
    """Return what a program starts, with an image's environment; None if it is not known to start another."""
    name = posixpath.basename(words.program)
    if launcher := _LAUNCHERS.get(name):
        return _after_options(words.arguments, launcher, name)
    if name == "env":
        return _of_env(words.arguments, environment)
    if name in _SHELLS:
        return _of_shell(words.arguments, environment, reads_file=name == "bash" and "BASH_ENV" in environment)
    return None


def wrapped(words: Words) -> Words | None:
    """Return the program that a script starts with its arguments. The script may change PATH."""
    program = next(iter(words.arguments), "-")
    if program.startswith("-"):
        return None
    return Words(program, words.arguments[1:], maybe="/" not in program, by_text=True)


def _after_options(arguments: Sequence[str], launcher: _Launcher, name: str) -> Words | None:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in launcher.with_value and rest:
            rest.pop(0)
    before, rest = rest[: launcher.before], rest[launcher.before :]
    if not rest:
        return None
    user = before[0] if name in _AS_USER else ""
    return Words(rest[0], tuple(rest[1:]), by_text=name != "gosu", user=user)  # gosu starts it as the kernel does


def _of_env(arguments: Sequence[str], environment: Mapping[str, str]) -> Words | None:
    rest = list(arguments)
    options = list(takewhile(lambda word: word.startswith("-") or _ASSIGNMENT.fullmatch(word), rest))
    split = next((number for number, option in enumerate(options) if _SPLITS.match(option)), None)
    if split is not None:
        text = " ".join((_SPLITS.sub("", rest[split], count=1), *rest[split + 1 : split + 2]))
        if (words := _split(text, environment)) is None:
            return None
        rest[split : split + 2] = words
    folder, other_path = "", False
    while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0])):
        option = rest.pop(0)
        value = rest.pop(0) if option in _WITH_VALUE and rest else option.partition("=")[2]
        if option in {"-C", "--chdir"} or option.startswith("--chdir="):
            folder = value
        removed = value if option in {"-u", "--unset"} or option.startswith("--unset=") else option.removeprefix("-u")
        empties = re.fullmatch(r"-\w*i\w*|-|--ignore-.*", option)
        other_path |= bool(empties) or removed == "PATH" or option.startswith("PATH=")
    if not rest or (other_path and "/" not in rest[0]):
        return None
    return Words(rest[0], tuple(rest[1:]), folder=folder, must_enter=True, by_text=True)


def _split(text: str, environment: Mapping[str, str]) -> list[str] | None:
    """Return the words that `env -S` makes; None with escapes of its own."""
    text = _VARIABLE.sub(lambda name: environment.get(name[1], ""), text)
    try:
        return None if re.search(r"[\\$#]", text) else shlex.split(text)
    except ValueError:
        return []


def _of_shell(arguments: Sequence[str], environment: Mapping[str, str], *, reads_file: bool) -> Words | None:
    """Return the first program of a shell's text, if that is plain; ``reads_file`` if it reads one before."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith(("-", "+")) and "--" not in options:
        options.append(rest.pop(0))
        if re.fullmatch(r"[-+][a-zA-Z]*[oO]", options[-1]) and rest:
            rest.pop(0)
    if not rest or not any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option) for option in options):
        return None
    ends = any(re.fullmatch(r"-[a-zA-Z]*e[a-zA-Z]*", option) for option in options)
    text = _Text(tuple(rest[2:]), searches="CDPATH" in environment, ends=ends)
    words = text.program(rest[0][:_MOST_TEXT])
    by_login = any(option == "--login" or re.fullmatch(r"-[a-z]*[li][a-z]*", option) for option in options)
    if words is None or ((by_login or reads_file or text.other_path) and "/" not in words.program):
        return None  # a login shell reads files that may set PATH
    return words


class _Text:
    """The text of a shell.

    Args:
        arguments: those of the text.
        searches: whether `cd` looks in other folders too.
        ends: whether the shell ends at the first failure.
    """

    def __init__(self, arguments: tuple[str, ...], *, searches: bool, ends: bool) -> None:
        self._searches, self._arguments, self._ends = searches, arguments, ends
        self._folder, self._must_enter = "", True
        self.other_path = False

    def program(self, text: str) -> Words | None:
        """Return the first program that is certain to run; None if a shell itself decides before."""
        if _QUOTED_SEPARATOR.search(text):
            return None
        lexer = shlex.shlex(text.replace("\\\n", ""), posix=True, punctuation_chars=_PUNCTUATION)
        lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
        try:
            tokens = [*lexer, ";"]
        except ValueError:
            return None
        command: list[str] = []
        skipped = False
        for number, token in enumerate(tokens, 1):
            separator = token.strip("\n") or ";"
            if token.strip(_PUNCTUATION) or separator in _REDIRECTIONS:
                command.append(token)
                continue
            if separator not in _SEPARATORS:
                return None
            words = Words("") if skipped or not command else self._command(command, separator, tokens[number:])
            if words is None or words.program:
                return words
            skipped, command = separator == "||", []  # what follows is for a failure
        return None

    def _command(self, tokens: Sequence[str], separator: str, later: Sequence[str]) -> Words | None:
        """Return a command's program, without a name where the shell only sets itself up; None if that is not plain."""
        rest = list(tokens)
        while rest and _ASSIGNMENT.fullmatch(rest[0]):
            self.other_path |= bool(_LOOKED_UP.fullmatch(rest.pop(0)))
        replaces = rest[:1] == ["exec"]
        if replaces:
            rest = rest[3:] if rest[1:2] == ["-a"] else rest[1:]
        if rest[:1] == ["cd"]:
            return self._enter(rest[1:], separator)
        if not rest or rest[0] in _PASSED:
            return self._set_up(rest, separator)
        if rest == ["$@"] and self._arguments:
            rest = list(self._arguments)
        elif _BUILT_IN.fullmatch(rest[0]) or not _PLAIN.fullmatch(rest[0]):
            return None
        goes_on = not replaces and self._goes_on(separator, later)
        return Words(rest[0], tuple(rest[1:]), goes_on, self._folder, self._must_enter, by_text=True)

    def _goes_on(self, separator: str, later: Sequence[str]) -> bool:
        """Return whether the text goes on after a command that fails."""
        if separator == "||":
            return later[:1] not in (["exit"], ["false"])
        return bool(later) and (separator == "&" or (separator == ";" and not self._ends and any(later[:-1])))

    def _set_up(self, words: Sequence[str], separator: str) -> Words | None:
        """Note what a command changes of the shell itself; None if it may do more."""
        self.other_path |= any(_LOOKED_UP.fullmatch(word) for word in words[1:])
        self._ends |= words[:1] == ["set"] and any(re.fullmatch(r"-[a-z]*e[a-z]*", word) for word in words)
        plain = separator in {";", "&&"} and not _REDIRECTIONS.intersection(words)  # which may write the next program
        return Words("") if plain else None

    def _enter(self, arguments: Sequence[str], separator: str) -> Words | None:
        folder = next(iter(arguments), "")
        plain = len(arguments) == 1 and _PLAIN.fullmatch(folder)
        if not plain or separator not in {"&&", ";", "||"} or (self._searches and folder[0] not in "./"):
            return None
        self._folder = posixpath.join(self._folder, folder)
        self._must_enter &= separator == "&&" or (separator == ";" and self._ends)
        return Words("")
