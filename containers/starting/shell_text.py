"""The first program of a shell's text, if the text fails without it.

Sources: POSIX.1-2017, Shell Command Language (2.3 Token Recognition, 2.14 `set -e`); `dash` and `bash` are asked in
tests/images/test_started.py. A text that is not plain has no program here: nothing is said of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from containers import budget

_VARIABLE: Final = r"\$(?:\w+|[@*#?!$-]|\{[\w@*#]+(?:[^{}\"'`\\$\w][^{}\"'`\\$]*)?\})"
_QUOTED: Final = rf"'[^']*'|\"(?:[^\"`\\$]|\\.|{_VARIABLE}|\$(?=[ \"]))*\""
_WORD: Final = rf"(?:[^ \t\n;&|()<>\"'`\\$]|\\.|{_QUOTED}|{_VARIABLE})+"
_TOKEN: Final = re.compile(
    rf"[ \t]*(?:(?P<comment>#[^\n]*)|(?P<redirection>\d*(?:>>|>\||[<>]&?)[ \t]*{_WORD})"
    rf"|(?P<separator>&&|\|\||[;&|\n])|(?P<open>\((?!\())|(?P<close>\))|(?P<word>{_WORD}))",
    re.DOTALL,
)
_JOINED: Final = re.compile(r"(?<![^ \t\n;&|()])#[^\n]*|\\.", re.DOTALL)
"""A comment, or an escaped character; an escaped end of line joins lines, but ends a comment."""
_PART: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^'\"]+", re.DOTALL)
_EXPANDED: Final = re.compile(r"[$\\*?\[\]{}~]")
"""Characters by which a word outside of quotes is another one."""
_ARGUMENTS: Final = {'"$@"', '"${@}"'}
_UNREADABLE: Final = "unreadable"
ASSIGNMENT: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=.*", re.DOTALL)
_PLAIN: Final = re.compile(r"[\w./+:@%,][\w./+:@%,-]*\r?")
_PASSED: Final = frozenset(
    [
        *("set", ":", "true", "ulimit", "umask", "echo", "printf", "trap", "sleep", "date", "id", "uname", "export"),
        *("mkdir", "ls", "cat", "hostname", "whoami", "nproc", "df", "free", "nvidia-smi"),
    ]
)
"""Commands after which a shell looks the next one up as before."""
_SUCCEED: Final = {"", "set", ":", "true", "echo", "export", "cd"}
"""Those that do not fail: an assignment has no name, and `cd` is noted by itself."""
_OPTION: Final = re.compile(r"-[a-zA-Z]+|errexit|nounset|pipefail|xtrace|verbose|allexport|monitor|noglob")
"""Arguments of `set` that leave the text's own arguments as they are."""
_NO_HANDLER: Final = re.compile(r"\"\"|''|-|[A-Z]+[12]?")
"""Arguments of `trap` without a command, which may end the text in another way."""
_NO_VARIABLE: Final = re.compile(r"(?!-v).*", re.DOTALL)
"""Arguments of `printf` by which it sets no variable."""
ENDS: Final = re.compile(r"-[a-zA-Z]*e[a-zA-Z]*|errexit")
"""Options by which a shell ends at the first failure."""
LOOKED_UP: Final = re.compile(
    r"PATH|CDPATH|ENV|BASH_ENV|IFS|HOME|PYTHON\w*|GUNICORN_CMD_ARGS|UVICORN_\w+|WEB_CONCURRENCY|PET_\w+|UV_WORKING_DIR\w*"
)
MOST_CHARACTERS: Final = 1000
"""Characters of a variable's value that is followed: a line may double them."""
_NAMES: Final = re.compile(rf"(?<!\w)(?:{LOOKED_UP.pattern})(?!\w)")
"""Variables that change what a name stands for, or are options of a program."""
_BUILT_IN: Final = re.compile(
    r"alias|bg|bind|break|builtin|caller|case|cd|chdir|command|compgen|complete|compopt|continue|coproc|declare|dirs"
    r"|disown|do|done|elif|else|enable|esac|eval|exit|export|false|fg|fi|for|function|getopts|hash|help|history|if|in"
    r"|jobs|kill|let|local|logout|mapfile|popd|pushd|pwd|read|readarray|readonly|return|select|shift|shopt|source"
    r"|suspend|test|then|time|times|type|typeset|unalias|unset|until|wait|while|[.]"
)
"""Further words that a shell itself knows."""
_SOURCES: Final = {".", "source"}
_CODE: Final = re.compile(r".*/(?:activate|[^/]+\.(?:ba)?sh)")
"""A file that is sourced as a part of an image. Others, as `.env`, may be the settings that a container is given."""
_EXIT: Final = re.compile(r"exit(?: [1-9]\d*)?")
_BLOCKS: Final = {"{": "}", "if": "fi", "while": "done", "until": "done"}
"""The words that begin and end blocks that are read."""
_DEEPEST: Final = 20
"""Blocks within each other that are read."""
_BEFORE_COMMAND: Final = frozenset(["if", "then", "elif", "else", "while", "until", "do", "!"])
_CONDITIONS: Final = {"[", "test"}
_FAILS: Final = re.compile(r"exit [1-9]\d*")
_PLAIN_COMMANDS: Final = frozenset(
    [
        *("[", "test", ":", "true", "false", "echo", "date", "id", "uname", "mkdir", "ls", "cat", "grep", "export"),
        *("nc", "pg_isready"),
    ]
)
"""Commands that change nothing of what a shell starts later."""
_ALWAYS: Final = (["true"], [":"])
"""Commands by which a loop may never end."""
_OF_FILE: Final = re.compile("^-[a-moprstuwxGLNOS]$|/")
"""Words of a loop that may wait for a file, the program itself perhaps."""
SHORT: Final = re.compile(r"[\d.]{1,4}s?")
"""What `sleep` waits for; a longer time, as `infinity`, is a start too."""
_TO_NOTHING: Final = re.compile(r"\d*>>?[ \t]*/dev/null|\d*>&[ \t]*\d")


_OWN_FOLDER: Final = re.compile(
    r"""\$\(dirname (?:-- )?(?P<quote>"?)\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})(?P=quote)\)"""
    r"""|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"""
)
"""What a script calls its own folder by."""
_ENTERED: Final = re.compile(
    r"""\$\(cd (?:-- )?(?P<quote>"?)(?P<path>/[\w./+@,-]*)(?P=quote) (?:&?> ?/dev/null(?: 2>&1)? )?"""
    r"""(?:&&|;) pwd(?: -P)?\)"""
)
"""How a script makes a path of that."""
_IN_TWO_LANGUAGES: Final = "'''exec'"
"""How a script of Python starts it by a shell, as its path is too long for ``#!`` (pypa/pip 26.3, pip/_vendor/distlib,
scripts.py, `_build_shebang`; uv does the same)."""
_READ: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class CertainProgram(NamedTuple):
    """A program with its arguments, and the ``folder`` that the text enters before.

    ``cut`` is whether the arguments end before the first unknown one. ``sourced`` is whether it is a file that the
    shell reads as a part of the text.
    """

    name: str
    arguments: tuple[str, ...]
    folder: str
    cut: bool = False
    sourced: bool = False


class Text:
    """The text of a shell.

    Args:
        arguments: those of the text.
        searches: whether `cd` looks in other folders too.
        ends: whether the shell ends at the first failure.

    After :meth:`program`, ``sets`` is whether the text sets a variable by which names are looked up, and
    ``must_enter`` whether nothing starts if the folder cannot be entered.
    """

    def __init__(self, arguments: tuple[str, ...], *, searches: bool, ends: bool) -> None:
        self._searches, self._arguments, self._ends = searches, arguments, ends
        self._folder, self._chained, self._if_succeeded = "", False, False
        self._known_values: dict[str, str] = {}
        self._splits = False
        self.must_enter, self.sets = True, False

    def program(self, text: str, name: str = "") -> CertainProgram | None:
        """Return the first program, if the text fails without it; None if that is not certain.

        ``name`` is the path by which a script is started, empty for a text of its own.
        """
        folder = posixpath.dirname(name) or "."
        if name and _PLAIN.fullmatch(folder):
            text = _ENTERED.sub(lambda match: posixpath.normpath(match["path"]), _OWN_FOLDER.sub(folder, text))
        text = text.replace(_IN_TWO_LANGUAGES, "exec", 1)
        return self._first(list(_tokens(text)))

    def _first(self, tokens: Sequence[tuple[str, str]]) -> CertainProgram | None:
        found, rest = self._up_to_block(tokens)
        while rest is not None:
            budget.check()
            found, rest = self._up_to_block(rest)
        return found

    def _up_to_block(
        self, tokens: Sequence[tuple[str, str]]
    ) -> tuple[CertainProgram | None, Sequence[tuple[str, str]] | None]:
        """Return the first program before a block, or else what a shell goes on with at the block."""
        command: list[str] = []
        redirected = skipped = False
        for number, (kind, word) in enumerate(tokens, 1):
            block = None if command or redirected else self._at_block(tokens[number - 1 :], skipped=skipped)
            if block or kind in {"open", "close"}:
                return block or (None, None)
            if kind == "word":
                command.append(word)
            redirected |= kind == "redirection"
            if kind != "separator" or not (command or redirected):
                continue  # an end of line after `||` ends nothing
            if not skipped:
                if _is_beside(tokens[number - 1 :]):
                    return None, None
                found = self._command(command, word, tokens[number:], redirected=redirected)
                if found is None or found.name:
                    return found, None
            skipped, command, redirected = word == "||", [], False  # what follows is for a failure
        return None, None

    def _at_block(
        self, tokens: Sequence[tuple[str, str]], *, skipped: bool
    ) -> tuple[CertainProgram | None, Sequence[tuple[str, str]] | None] | None:
        """Return the program and the rest of a block, a condition or a subshell that begins here; None without one."""
        kind, word = tokens[0]
        # What comes before `&&` decides whether a shell runs it.
        passed = skipped or self._chained
        if kind == "word" and word in _BLOCKS:
            return None, None if passed else self._of_block(word, tokens[1:])
        if kind == "word" and word in _CONDITIONS and not passed:
            return None, self._after_condition(tokens)
        if kind in {"open", "close"}:
            return None if skipped else self._of_subshell(tokens[1:]), None
        return None

    def _of_block(self, start: str, tokens: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]] | None:
        """Return what a shell goes on with at a block, without its braces, or after it; None if that is not known.

        The tokens after its first word are given. A condition, and what it decides, is passed over if all of it is
        plain.
        """
        commands: list[list[str]] = [[]]
        depth = 1
        for number, (kind, word) in enumerate(tokens):
            budget.check()
            if kind in {"open", "close"} or (kind == "separator" and word not in {";", "&&", "||"}):
                return None
            if kind == "separator":
                commands.append([])
            elif kind == "redirection" and not _TO_NOTHING.fullmatch(word):
                return None
            elif kind == "word" and not set(commands[-1]) - _BEFORE_COMMAND and word in (*_BLOCKS, *_BLOCKS.values()):
                depth += 1 if word in _BLOCKS else -1
                if depth > _DEEPEST:
                    return None
                if depth == 0:
                    return self._after_block(start, word, commands, tokens[:number], tokens[number + 1 :])
            elif kind == "word":
                commands[-1].append(word)
        return None

    def _after_condition(self, tokens: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]] | None:
        """Return the tokens after a condition and the commands that it decides, if a shell does not fail there.

        None if that is not known. The condition's tokens and those after it are given.
        """
        commands: list[list[str]] = [[]]
        for number, (kind, word) in enumerate(tokens, 1):
            if (kind, word) == ("separator", ";") and commands[-1]:
                plain = all(_FAILS.fullmatch(" ".join(each)) or self._changes_nothing(each) for each in commands)
                return tokens[number:] if plain else None
            if kind == "separator" and word in {"&&", "||"}:
                commands.append([])
            elif kind == "word":
                commands[-1].append(word)
            elif (kind, word) != ("separator", ";") and not _TO_NOTHING.fullmatch(word):
                return None
        return None

    def _after_block(
        self,
        start: str,
        end: str,
        commands: Sequence[Sequence[str]],
        within: Sequence[tuple[str, str]],
        after: Sequence[tuple[str, str]],
    ) -> Sequence[tuple[str, str]] | None:
        if end != _BLOCKS[start] or after[0] != ("separator", ";"):
            return None
        if start == "{":
            return [*within, *after]  # whose separator ends a block at the end, as in `{ { true; } }`
        plain = [list(dropwhile(_BEFORE_COMMAND.__contains__, command)) for command in commands]
        if not all(map(self._changes_nothing, plain)):
            return None
        if end == "done" and any(each[:1] in _ALWAYS or any(map(_OF_FILE.search, each)) for each in plain):
            return None
        return after[1:]

    def _changes_nothing(self, words: Sequence[str]) -> bool:
        """Return whether a command changes nothing for the next ones but variables; these are noted."""
        rest = list(dropwhile(ASSIGNMENT.fullmatch, words))
        exported = rest[1:] if rest[:1] == ["export"] else []
        for word in (*words[: len(words) - len(rest)], *exported):
            name = word.partition("=")[0].removesuffix("+")
            self.sets |= not ASSIGNMENT.fullmatch(word) or bool(LOOKED_UP.fullmatch(name))
            self._known_values.pop(name, None)
            self._splits |= name == "IFS"
        if rest[:1] == ["sleep"]:
            return all(map(SHORT.fullmatch, rest[1:]))
        return not rest or rest[0] in _PLAIN_COMMANDS or rest[:2] == ["command", "-v"]

    def _of_subshell(self, tokens: Sequence[tuple[str, str]]) -> CertainProgram | None:
        """Return the program of a subshell, whose tokens and those after it are given, if the text fails as it does."""
        end = next((number for number, (kind, _) in enumerate(tokens) if kind in {"open", "close"}), None)
        if end is None or tokens[end][0] == "open":
            return None
        after = list(dropwhile(lambda token: token[0] == "redirection", tokens[end + 1 :]))
        if after[0][0] != "separator":
            return None
        # A shell that looks at a status does not end at a failure before.
        ends = self._ends and after[0][1] == ";"
        inner = Text(self._arguments, searches=self._searches, ends=ends)
        inner._folder, inner.must_enter, inner._known_values = self._folder, self.must_enter, dict(self._known_values)
        inner._splits = self._splits
        found = inner._first([*tokens[:end], ("separator", ";")])
        self.sets, self.must_enter = self.sets or inner.sets, inner.must_enter
        return found if found and self._fails(after[0][1], after[1:]) else None

    def _command(
        self, words: list[str], separator: str, later: Sequence[tuple[str, str]], *, redirected: bool
    ) -> CertainProgram | None:
        """Return a command's program, one without a name if the shell only sets itself up; None if that is unknown."""
        rest = self._without_assignments(words)
        replaces = rest[:1] == ["exec"]
        if replaces:
            rest = rest[3:] if rest[1:2] == ["-a"] else rest[1:]
        if not rest or (rest[0] in {"cd", *_PASSED} and not replaces):
            # A redirection may write the next program.
            return None if redirected or not self._set_up(rest, separator) else CertainProgram("", (), self._folder)
        known = self._known(rest)
        if rest[0] in _SOURCES and not replaces:
            return self._sourced("".join(known[1:2]), separator, later)
        if not self._is_known(rest[0], known):
            return None
        certain = replaces and not self._chained and separator in {";", "&&", "||"}
        cut = any(word not in _ARGUMENTS and self._value(word) is None for word in rest)
        found = CertainProgram(known[0], known[1:], self._folder, cut)
        return found if certain or self._fails(separator, later) else None

    def _sourced(self, file: str, separator: str, later: Sequence[tuple[str, str]]) -> CertainProgram | None:
        """Return the file that a text reads as its own, if the text fails without it."""
        is_certain = bool(_CODE.fullmatch(file)) and _is_name(file) and self._fails(separator, later)
        return CertainProgram(file, (), self._folder, sourced=True) if is_certain else None

    @staticmethod
    def _is_known(word: str, known: Sequence[str]) -> bool:
        """Return whether a command's known words, of which the text has ``word`` as the first, begin with a program."""
        if not known or not _is_name(known[0]):
            return False
        return word == known[0] or word in _ARGUMENTS or "/" in known[0]

    def _without_assignments(self, words: Sequence[str]) -> list[str]:
        """Return a command without the variables before it, which are for it alone; those of no command are noted."""
        rest = list(dropwhile(ASSIGNMENT.fullmatch, words))
        assigned = words[: len(words) - len(rest)]
        self.sets |= any(LOOKED_UP.fullmatch(word.partition("=")[0].removesuffix("+")) for word in assigned)
        for name, value in () if rest else map(self._assigned, assigned):
            self._note(name, value)
        return rest

    def _assigned(self, word: str) -> tuple[str, str]:
        """Return the name and the value of a variable that a word sets; an unknown value is empty."""
        name, _, value = word.partition("=")
        return name, self._value(value) or ""

    def _note(self, name: str, value: str) -> None:
        """Note a variable's value from now on, if it is a plain path or word that no `cd` and no IFS changes."""
        variable = name.removesuffix("+")
        self._known_values.pop(variable, None)
        if variable == "IFS":
            self._known_values, self._splits = {}, True
        elif (
            len(value) <= MOST_CHARACTERS
            and _PLAIN.fullmatch(value)
            and name not in {"PWD", "OLDPWD"}
            and not self._splits
        ):
            self._known_values[name] = value

    def _export(self, words: Sequence[str]) -> None:
        """Note the values that `export` sets. All are made before the first one is set."""
        if any("=" in word and not ASSIGNMENT.fullmatch(word) for word in words):
            self._known_values.clear()  # as `export "NAME=value"` has it
            self._splits |= any("IFS" in word for word in words)
        for name, value in list(map(self._assigned, filter(ASSIGNMENT.fullmatch, words))):
            self._note(name, value)

    def _value(self, word: str) -> str | None:
        """Return the value of a word, with variables that the text has set; None if only a shell knows."""
        if "'" not in word and "\\" not in word:
            word = _READ.sub(lambda match: self._known_values.get(match[1] or match[2], match[0]), word)
        return _value(word)

    def _known(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the values of words, up to the first unknown one."""
        known: list[str] = []
        for word in words:
            value = self._value(word)
            if word in _ARGUMENTS:
                known += self._arguments
            elif value is None:
                break
            else:
                known.append(value)
        return tuple(known)

    def _fails(self, separator: str, later: Sequence[tuple[str, str]]) -> bool:
        """Return whether the text is certain to fail where a command does."""
        chained, rest = self._chained or separator == "&&", list(later)
        of_list = takewhile(lambda token: token != ("separator", ";"), later)
        has_block = any(word in _BLOCKS for _, word in of_list) or any(kind in {"open", "close"} for kind, _ in later)
        if separator in {"&&", "||"} and has_block:
            return False  # whose own `|| exit 1` is not the list's
        if separator == "&&":  # a failure passes over what follows
            skipped = takewhile(lambda token: token[0] != "separator" or token[1] in {"&&", "|"}, later)
            rest = rest[len(list(skipped)) :]
            separator = rest.pop(0)[1]
        if separator == "||":
            ends = [token for _, token in takewhile(lambda token: token[0] != "separator", rest)]
            after = [token for _, token in rest[len(ends) :]]
            return after[0] in {";", "&&", "||"} and (
                bool(_EXIT.fullmatch(" ".join(ends))) or (ends == ["false"] and set(after) == {";"})
            )
        return separator == ";" and ({word for _, word in rest} <= {";"} or (self._ends and not chained))

    def _set_up(self, words: Sequence[str], separator: str) -> bool:
        """Note what a command changes of the shell itself; return whether it does nothing else."""
        command, arguments = "".join(words[:1]), words[1:]
        if command == "cd":
            plain = self._enter(arguments, separator)
        else:
            self.sets |= any(_NAMES.search(word) for word in arguments)
            self.sets |= command == "export" and any(_value(word.partition("=")[0]) is None for word in arguments)
            self._export(arguments if command == "export" else ())
            self._ends |= command == "set" and any(ENDS.fullmatch(word) for word in arguments)
            known = {"set": _OPTION, "trap": _NO_HANDLER, "printf": _NO_VARIABLE, "sleep": SHORT}.get(command)
            plain = separator in {";", "&&"} and (known is None or all(map(known.fullmatch, arguments)))
        # A failure before `&&` leaves the shell as it was, which then goes on.
        plain &= not self._if_succeeded or separator == "&&"
        self._chained = separator == "&&"
        self._if_succeeded = self._chained and (self._if_succeeded or command not in _SUCCEED)
        return plain

    def _enter(self, arguments: Sequence[str], separator: str) -> bool:
        folder = self._value("".join(arguments[:1])) or ""
        # A shell takes `..` away by name.
        plain = len(arguments) == 1 and _is_name(folder) and ".." not in PurePosixPath(folder).parts
        if not plain or separator not in {"&&", ";", "||"} or (self._searches and folder[0] not in "./"):
            return False
        self._folder = posixpath.join(self._folder, folder)
        self.must_enter &= separator == "&&" or (separator == ";" and self._ends)
        return True


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and content of each token; the last one is a separator, an unknown one if the text has others."""
    place = 0
    text = _JOINED.sub(lambda match: "" if match[0] == "\\\n" else match[0], text).rstrip(" \t\n")
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            yield "separator", _UNREADABLE
            return
        place, kind = match.end(), str(match.lastgroup)
        if kind != "comment":
            yield kind, ";" if match[kind] == "\n" else match[kind]
    yield "separator", ";"


def _is_beside(tokens: Sequence[tuple[str, str]]) -> bool:
    """Return whether a list runs beside the text, or may; its first separator and what follows are given."""
    joined = False
    for kind, word in tokens:
        if kind in {"open", "close"}:
            return True
        if joined and word == ";":
            continue  # an end of line after `||` ends nothing
        joined = kind == "separator" and word in {"&&", "||", "|"}
        if kind == "separator" and not joined:
            return word in {"&", _UNREADABLE}
    return False


def _is_name(word: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and not _BUILT_IN.fullmatch(word)


def _value(word: str) -> str | None:
    """Return what a word stands for; None if only a shell knows."""
    value = ""
    for part in _PART.findall(word):
        if part.startswith("'"):
            value += part[1:-1]
        elif part.startswith('"'):
            if re.search(r"[$\\]", part):
                return None
            value += part[1:-1]
        elif _EXPANDED.search(part):
            return None
        else:
            value += part
    return value
