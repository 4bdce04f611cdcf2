"""A Dockerfile's instructions, as BuildKit's parser reads them.

The rules are those of moby/buildkit v0.26, ``frontend/dockerfile/parser`` (``parser.go``, ``split_command.go``,
``line_parsers.go``) and ``instructions/parse.go``. What its versions since v0.8 (Docker 20.10) read differently is
refused.

PyPI's ``dockerfile`` is that parser, but needs a Go compiler wherever it has no wheel. So only the tests use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from containers.dockerfile.expansion import SPACE, ExpansionError, raw_words
from containers.errors import SlipwayError, one_line

FLAGS: dict[str, set[str]] = {
    "ADD": {"checksum", "chmod", "chown", "exclude", "keep-git-dir", "link", "unpack"},
    "ARG": set(),
    "CMD": set(),
    "COPY": {"chmod", "chown", "exclude", "from", "link", "parents"},
    "ENTRYPOINT": set(),
    "ENV": set(),
    "EXPOSE": set(),
    "FROM": {"platform"},
    "HEALTHCHECK": {"interval", "retries", "start-interval", "start-period", "timeout"},
    "LABEL": set(),
    "MAINTAINER": set(),
    "ONBUILD": set(),
    "RUN": {"device", "mount", "network", "security"},
    "SHELL": set(),
    "STOPSIGNAL": set(),
    "USER": set(),
    "VOLUME": set(),
    "WORKDIR": set(),
}
"""The instructions and their flags. Another one may read files of which nothing is known here."""
_EXPECTED = {
    **dict.fromkeys(("ADD", "COPY"), "a source and a target"),
    **dict.fromkeys(("ARG", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"), "an argument"),
    **dict.fromkeys(("ENV", "LABEL"), "NAME=VALUE"),
    "ONBUILD": "an instruction other than FROM, MAINTAINER and ONBUILD",
    "SHELL": 'a JSON array, such as ["/bin/sh", "-c"]',
}
"""What BuildKit wants at least after a keyword (``instructions/parse.go``)."""
HEREDOC = re.compile(r"\d*<<(?P<chomp>-?)(?P<space>[\t\r ]*)(?P<name>[^<]*)")
"""A word that begins a here-document."""
_HEREDOC_NAME = re.compile(r"""(?P<quote>['"]?)(?P<name>[^\s'"\\$]+)(?P=quote)""")
_ARRAYS = {"ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME"}
SEPARATOR = r"[\t\v\f\r ]+"
"""What lies between words."""
_BLANK = "\t\n\v\f\r "
_HEREDOC_KEYWORDS = {"RUN", "COPY", "ADD"}
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=(.+)")
_DIRECTIVES = {"syntax", "escape", "check"}
_CHECK = r"\s*(?:(?:skip|experimental)\s*=[^;]*|error\s*=\s*(?:1|0|[tfTF]|true|false|TRUE|FALSE|True|False)\s*)"
_CHECKS = re.compile(rf"{_CHECK}(?:;{_CHECK}){{0,2}}", re.DOTALL)
"""The value of ``# check=`` (``linter/linter.go``, ``ParseLintOptions``)."""
_BYTES = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python's ``surrogateescape`` decodes them."""
_LINE_LIMIT = 65535
"""Bytes of a line that BuildKit reads, with its end: Go's ``bufio.MaxScanTokenSize - 1``."""


class DockerfileError(SlipwayError):
    """A Dockerfile that cannot be read, or a build of which nobody can say beforehand what it reads."""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        keyword: in capitals.
        flags: ``--name=value``, without the quotes, sorted by name; those of one name in their order.
        rest: what follows the flags, with its lines joined as BuildKit joins them. Words have single spaces between
            them; a shell's command is as it is written.
        heredocs: the lines of each here-document with its last one, as they are written.
        line: the number of its first line.
    """

    keyword: str
    flags: tuple[str, ...] = ()
    rest: str = ""
    heredocs: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)

    def flag(self, name: str) -> str | None:
        """Return the value of a flag; None without one."""
        return next((flag.partition("=")[2] for flag in self.flags if flag.partition("=")[0] == f"--{name}"), None)

    @property
    def words(self) -> list[str]:
        """The arguments of ``COPY``, ``ADD`` and ``FROM``: those of a JSON array, else the words between spaces."""
        array = json_array(self.rest)
        return re.split(SEPARATOR, self.rest) if array is None else array

    def render(self) -> str:
        """Return the instruction in its one form, with single spaces around the flags."""
        flags = []
        for flag in self.flags:
            name, equals, value = flag.partition("=")
            quote = "" if re.fullmatch(r"[^\s'\"]*", value) else "'" if '"' in value else '"'
            flags.append(f"{name}{equals}{quote}{value}{quote}")
        rest = f"-- {self.rest}" if self.rest.startswith("--") else self.rest
        return " ".join([self.keyword, *flags, *([rest] if rest else [])]) + "\n" + "".join(self.heredocs)


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile's parser directives, as ``name=value``, and its instructions; ``path`` names it in errors."""

    path: str
    directives: tuple[str, ...]
    instructions: tuple[Instruction, ...]

    @cached_property
    def escape(self) -> str:
        """The character that escapes another one and continues a line."""
        return next((line[-1] for line in self.directives if line.startswith("escape=")), "\\")

    def error(self, instruction: Instruction, message: str) -> DockerfileError:
        """Return the error about an instruction."""
        return _error(self.path, instruction.line, f"{instruction.keyword}: {message}")


@cache
def parse(content: bytes, path: str) -> Dockerfile:
    """Read a Dockerfile. Raises DockerfileError: it is no Dockerfile, or BuildKit's versions read it differently."""
    lines = _lines(content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape"))
    directives = _directives(lines, path)
    if lines and lines[0].startswith("#!") and _directives(lines[1:], path):
        raise _error(path, 2, "a directive after '#!', which only some engines read; delete the first line")
    escape = directives.get("escape", "\\")
    instructions = tuple(_instructions(lines, escape, path))
    for instruction in instructions:
        _check(instruction, escape, path)
    if not instructions:
        raise DockerfileError(f"{path}: no instruction; a Dockerfile begins with FROM")
    return Dockerfile(path, tuple(f"{name}={value}" for name, value in directives.items()), instructions)


def _error(path: str, line: int, message: str) -> DockerfileError:
    return DockerfileError(f"{path}:{line}: {message}")


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _directives(lines: Sequence[str], path: str) -> dict[str, str]:
    directives: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _DIRECTIVE.fullmatch(line.rstrip("\r\n").lstrip(SPACE))
        name = match[1].lower() if match else ""
        if not match or name not in _DIRECTIVES:
            break
        if name in directives:
            raise _error(path, number, f"the directive '{name}' is given twice; keep one")
        value = match[2].strip() or match[2][-1]
        if name == "check" and value.strip() and not _CHECKS.fullmatch(value):
            raise _error(path, number, f"check={one_line(value)}: expected skip=, experimental= or error=true")
        if name == "escape" and value not in ("\\", "`"):
            raise _error(path, number, f"escape={one_line(value)}: expected \\ or `")
        if re.search(r"[^\t -~]", match[0]):
            raise _error(path, number, f"{one_line(match[0])}: expected ASCII")
        directives[name] = value
    return directives


def _instructions(lines: Sequence[str], escape: str, path: str) -> Iterator[Instruction]:
    numbered = iter(enumerate(lines, start=1))
    token = re.escape(escape)
    continuation = re.compile(rf"([^{token}]){token}[ \t]*$|^{token}[ \t]*$")
    for number, raw in numbered:
        if _is_comment(raw):
            continue
        text, continued = _continued(raw.rstrip("\r\n").lstrip(SPACE), continuation)
        if not continued and not text:
            continue
        while continued and (next_line := next(numbered, None)):
            if _is_comment(next_line[1]) or not next_line[1].strip(SPACE):
                continue
            more, continued = _continued(next_line[1].rstrip("\r\n"), continuation)
            text += more
        keyword, flags, rest = _split(text, escape)
        keyword = keyword.upper()
        documents = []
        for name, chomp in _heredocs(text, escape, f"{path}:{number}: {keyword}"):
            documents.append(_document(numbered, name, chomp=chomp))
            if not documents[-1]:
                raise _error(path, number, f"{keyword}: the here-document {one_line(name)} has no end")
        flags.sort(key=lambda flag: flag.partition("=")[0])
        yield Instruction(keyword, tuple(flags), _spaced(keyword, rest, escape), tuple(documents), number)


def _is_comment(line: str) -> bool:
    return line.lstrip(SPACE).startswith("#")


def _continued(line: str, continuation: re.Pattern[str]) -> tuple[str, bool]:
    """Return a line without the character that continues it, and whether it had one."""
    match = continuation.search(line)
    return (line[: match.start()] + (match[1] or ""), True) if match else (line, False)


def _check(instruction: Instruction, escape: str, path: str) -> None:
    """Refuse an instruction that is unknown, that engines read differently, or that has no form on one line."""
    where = f"{path}:{instruction.line}: {one_line(instruction.keyword, 40)}"
    if instruction.keyword not in FLAGS:
        raise DockerfileError(f"{where}: no such instruction")
    for flag in instruction.flags:
        name = flag.partition("=")[0][2:]
        if name not in FLAGS[instruction.keyword]:
            raise DockerfileError(f"{where}: the flag --{one_line(name)} is unknown; what it reads is not known")
        if not (flag.isascii() and flag.isprintable()) or re.search(r"[\\`]|'.*\"|\".*'", flag):
            raise DockerfileError(f"{where}: {one_line(flag)}: engines read such characters in a flag differently")
    if not _has_arguments(instruction, escape):
        expected = _EXPECTED[instruction.keyword]
        raise DockerfileError(f"{where}: {one_line(instruction.rest) or 'nothing'}: expected {expected}")
    rendered = instruction.render()
    if _BYTES.search(rendered):
        raise DockerfileError(f"{where}: bytes that are not UTF-8")
    lines = _lines(rendered)
    if len(lines[0].encode()) > _LINE_LIMIT:
        raise DockerfileError(f"{where}: {len(lines[0].encode())} bytes; BuildKit reads lines of {_LINE_LIMIT} bytes")
    if list(_instructions(lines, escape, path)) != [instruction]:
        raise DockerfileError(f"{where}: on one line it has another meaning; write it without characters of control")


def _has_arguments(instruction: Instruction, escape: str) -> bool:
    """Return whether an instruction has the arguments without which BuildKit does not take it."""
    rest = instruction.rest
    match instruction.keyword:
        case "ADD" | "COPY":
            return len(instruction.words) > 1
        case "ENV" | "LABEL":
            words = split_words(rest, escape)
            pairs = bool(words) and "=" in words[0]
            return all(word.find("=") > 0 for word in words) if pairs else len(re.split(SEPARATOR, rest)) > 1
        case "ONBUILD":
            return _split(rest, escape)[0].upper() not in {"", "FROM", "MAINTAINER", "ONBUILD"}
        case "SHELL":
            return bool(json_array(rest))
        case "VOLUME":
            return bool(instruction.words) and all(instruction.words)
    return bool(rest) or instruction.keyword not in _EXPECTED


def _split(text: str, escape: str) -> tuple[str, list[str], str]:
    """Return an instruction's keyword, its flags, and what follows them."""
    keyword, *after = re.split(SEPARATOR, text.strip(SPACE), maxsplit=1)
    flags, rest = _flags(after[0], escape) if after else ([], "")
    return keyword, flags, rest.strip(SPACE)


def _spaced(keyword: str, rest: str, escape: str) -> str:
    """Return an instruction's arguments with single spaces between words, where other spaces have no meaning."""
    array = json_array(rest) if keyword in _ARRAYS else None
    if array is not None and not _BYTES.search(rest):
        return json.dumps(array)
    if keyword in {"ADD", "COPY", "EXPOSE", "FROM"}:
        return " ".join(re.split(SEPARATOR, rest))
    words = split_words(rest, escape) if keyword in {"ARG", "ENV", "LABEL"} else []
    return " ".join(words) if words and (keyword == "ARG" or "=" in words[0]) else rest


def _flags(text: str, escape: str) -> tuple[list[str], str]:
    """Return the flags before an instruction's arguments, and the arguments; they are read by bytes, in ASCII."""
    flags: list[str] = []
    position = 0
    while True:
        while position < len(text) and text[position] in _BLANK:
            position += 1
        if not text.startswith("--", position):
            return flags, text[position:]
        word, quote = "", ""
        while position < len(text) and (quote or text[position] not in _BLANK):
            character = text[position]
            if character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote = character
            elif character == escape == "\\":  # Docker 20.10 knows no other one here: it stays, and is refused
                position += 1
                word += text[position : position + 1]
            else:
                word += character
            position += 1
        if word == "--":
            return flags, text[position:]
        flags.append(word)


def _heredocs(text: str, escape: str, where: str) -> list[tuple[str, bool]]:
    """Return the name of each here-document of an instruction, and whether tabs before its end are dropped."""
    keyword, _, rest = _split(text, escape)
    if keyword.upper() == "ONBUILD":
        keyword, _, rest = _split(rest, escape)
    if keyword.upper() not in _HEREDOC_KEYWORDS or "<<" not in text or json_array(rest) is not None:
        return []
    try:
        words = raw_words(text)
    except ExpansionError:
        return []  # BuildKit looks no further
    names = []
    for match in filter(None, map(HEREDOC.fullmatch, words)):
        if match["name"]:
            name = _HEREDOC_NAME.fullmatch(match["name"])
            if match["space"] or not name:
                raise DockerfileError(f"{where}: {one_line(match[0])}: write <<NAME, without spaces or escapes")
            names.append((name["name"], bool(match["chomp"])))
    return names


def json_array(text: str) -> list[str] | None:
    """Return a JSON array of strings; None for anything else, which BuildKit takes as words or as a shell's command."""
    if not text.startswith("["):
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else None


def _document(numbered: Iterator[tuple[int, str]], name: str, *, chomp: bool) -> str:
    """Return the lines of a here-document with its last one; empty if it does not end."""
    document = ""
    for _, line in numbered:
        document += line
        end = line.rstrip("\r\n")
        if (end.lstrip("\t") if chomp else end) == name:
            return document if document.endswith("\n") else f"{document}\n"
    return ""


@cache
def split_words(text: str, escape: str) -> Sequence[str]:
    """Return the words of an ``ARG`` or an ``ENV``; quoted and escaped spaces do not part words, and quotes stay."""
    words: list[str] = []
    word, quote = "", ""
    position = 0
    while position < len(text):
        character = text[position]
        if character in SPACE and not quote:
            words += [word] if word else []
            word = ""
        elif character == escape and quote != "'":
            word += text[position : position + 2] if position + 1 < len(text) else ""
            position += 1
        else:
            word += character
            quote = "" if character == quote else quote or (character if character in "'\"" else "")
        position += 1
    return words + ([word] if word else [])


def declarations(instruction: Instruction, escape: str) -> Iterator[tuple[str, str | None]]:
    """Yield the arguments that an ``ARG`` declares, and their defaults; nothing for another instruction."""
    if instruction.keyword == "ARG":
        for word in split_words(instruction.rest, escape):
            name, equals, default = word.partition("=")
            yield name, default if equals else None


def pairs(instruction: Instruction, escape: str) -> Sequence[tuple[str, str]]:
    """Return the names and values of ``ENV`` or ``LABEL``: ``name=value...``, or one name and the rest of the line."""
    words = split_words(instruction.rest, escape)
    if words and "=" in words[0]:
        return [(word.partition("=")[0], word.partition("=")[2]) for word in words]
    name, *value = re.split(SEPARATOR, instruction.rest, maxsplit=1)
    return [(name, value[0] if value else "")]
