"""The one form of instructions that BuildKit builds as the same: for keys alone, as it is no Dockerfile.

Not in it are the names of stages and of a script's here-document, the order of a mount's options and those that are
defaults, quotes around values that need none, the older form of ``ENV`` and ``LABEL``, a port's default protocol, and
the ways to write one path. What is not plain stays as it is written.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from containers.dockerfile.instructions import Instruction, split_words
from containers.dockerfile.stages import Reach

_OPTIONS: Final = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
"""Other names of a mount's options (``instructions/commands_runmount.go``)."""
_WRITES: Final = {"rw": "readonly", "readwrite": "readonly"}
"""Options that say the contrary of another one, so that the last of them counts."""
_PLAIN_PATH: Final = re.compile(r"[\w./@+:,~-]+")
_DEFAULTS: Final = {
    "bind": {"type=bind", "readonly", "readonly=true"},
    "cache": {"sharing=shared", "sharing=locked"},
    "secret": {"required=false"},
    "ssh": {"required=false"},
}
"""Options of which BuildKit makes nothing, by a mount's type; `sharing` says who waits."""
_RUN_DEFAULTS: Final = {"--network=default", "--security=sandbox"}
_SINGLE: Final = re.compile(r"""([^="']+=)'([^"'$`\\]*)'""")
"""A value in single quotes that means the same in double quotes."""
_QUOTED: Final = re.compile(r"""([^="']+=)"([\w./:@+,${}-]*)\"""")
"""A value in double quotes that means the same without: a variable's value is never split."""
_OLDER: Final = re.compile(r"([\w.-]+)[ \t]+([\w./:@+,${}-]+(?:[ \t]+[\w./:@+,${}-]+)*)")
_OCTAL: Final = re.compile(r"--chmod=0*([0-7]+)")
_PORT: Final = re.compile(r"(?<!\S)(\d+)(?!\S)")
_SCRIPT: Final = re.compile(r"(<<-?)(['\"]?)\w+\2")
"""The whole command of a ``RUN`` whose script is a here-document."""


def canonical(reach: Reach) -> Iterator[Instruction]:
    """Yield the reached instructions in their one form."""
    numbers: dict[str, str] = {}
    count = 0
    for each in reach.instructions:
        match each.keyword:
            case "FROM" if not reach.by_variable:
                image, *name = each.words
                yield replace(each, rest=numbers.get(image.lower(), image))
                numbers |= {word.lower(): f"#{count}" for word in name[1:]}  # which no image is called
                count += 1
            case "COPY":
                yield _copy(each, numbers)
            case "RUN":
                flags = tuple(
                    _mount(flag, numbers) if flag.startswith("--mount=") else flag
                    for flag in each.flags
                    if flag not in _RUN_DEFAULTS
                )
                yield _script(replace(each, flags=flags))
            case "ENV" | "LABEL":
                yield replace(each, rest=_pairs(each.rest, reach.dockerfile.escape))
            case "ARG":
                yield replace(each, rest=" ".join(map(_unquoted, split_words(each.rest, reach.dockerfile.escape))))
            case "EXPOSE":
                yield replace(each, rest=_PORT.sub(r"\1/tcp", each.rest))
            case _:
                yield each


def _pairs(rest: str, escape: str) -> str:
    """Return names and values without quotes around plain values; also of the older form, a name and one value."""
    words = split_words(rest, escape)
    if words and "=" in words[0]:
        return " ".join(map(_unquoted, words))
    older = _OLDER.fullmatch(rest)
    return _unquoted(f'{older[1]}="{older[2]}"') if older else rest


def _unquoted(word: str) -> str:
    """Return a name and its value without quotes, or in double quotes, where these mean the same."""
    single = _SINGLE.fullmatch(word)
    word = f'{single[1]}"{single[2]}"' if single else word
    return _QUOTED.sub(r"\1\2", word) if _QUOTED.fullmatch(word) else word


def _copy(copy: Instruction, numbers: Mapping[str, str]) -> Instruction:
    """Return a ``COPY`` with paths relative to the root of its source."""
    *sources, target = copy.words
    if not copy.heredocs and copy.flag("parents") is None:
        sources = [_path(source) for source in sources]
    flags = [_numbered(flag, numbers) if flag.startswith("--from=") else flag for flag in copy.flags]
    flags = [_unquoted(flag) if flag.startswith("--chown=") else _OCTAL.sub(r"--chmod=\1", flag) for flag in flags]
    return replace(copy, flags=tuple(flags), rest=json.dumps([*sources, "./" if target == "." else target]))


def _path(path: str) -> str:
    return posixpath.normpath(f"/{path}").lstrip("/") or "." if _PLAIN_PATH.fullmatch(path) else path


def _numbered(option: str, numbers: Mapping[str, str]) -> str:
    """Return an option that names a stage, with its number: as ``--from=1`` has it."""
    name, _, origin = option.partition("=")
    return f"{name}={numbers.get(origin.lower(), origin).removeprefix('#')}"


def _mount(flag: str, numbers: Mapping[str, str]) -> str:
    """Return a mount with its options but defaults, sorted; as it is, if one is given twice: the last one counts."""
    fields = next(csv.reader([flag.partition("=")[2]]), [])
    options = {}
    for field in fields:
        name, equals, value = field.partition("=")
        name = _OPTIONS.get(name.lower(), name.lower())
        value = numbers.get(value.lower(), value) if name == "from" else value
        options[_WRITES.get(name, name)] = f"{name}{equals}{value}"
    if len(options) != len(fields):
        return flag
    kind = options.get("type", "type=bind").partition("=")[2]
    return f"--mount={json.dumps(sorted(set(options.values()) - _DEFAULTS.get(kind, set())))}"


def _script(run: Instruction) -> Instruction:
    """Return a ``RUN`` without its here-document's name. A file has that name only if it begins with ``#!``."""
    script = _SCRIPT.fullmatch(run.rest)
    if script is None or len(run.heredocs) != 1 or run.heredocs[0].lstrip("\t").startswith("#!"):
        return run
    lines = run.heredocs[0].splitlines(keepends=True)[:-1]
    return Instruction("SCRIPT", run.flags, script[1] + json.dumps(lines))
