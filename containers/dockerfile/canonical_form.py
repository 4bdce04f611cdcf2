"""The one form of instructions that BuildKit builds as the same: for keys alone, as it is no Dockerfile.

It leaves out the names of stages and of a script's here-document, a mount's default options and the order of all its
options, needless quotes, the older form of ``ENV`` and ``LABEL``, a port's default protocol and ports given twice, the
units of times, variables of known value, the place and order of settings that no step reads, and the ways to write one
path. What is not plain stays as it is written.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from containers.dockerfile.instructions import Instruction, json_array, split_words
from containers.dockerfile.stages import UNSET, Reach
from containers.platform_name import normal
from containers.registry.reference import Reference

_OPTIONS: Final = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
"""Other names of a mount's options (``instructions/commands_runmount.go``)."""
_WRITES: Final = {"rw": "readonly", "readwrite": "readonly"}
"""Options that say the contrary of another one, so that the last of them counts."""
_ACCESS: Final = {
    **dict.fromkeys(("readonly=true", "rw=false", "readwrite=false"), "readonly"),
    **dict.fromkeys(("readonly=false", "rw=true", "readwrite", "readwrite=true"), "rw"),
}
"""The other forms of these options."""
_SWITCHES: Final = {"--keep-git-dir=true": "--keep-git-dir", "--link=true": "--link", "--parents=true": "--parents"}
"""A switch of ``COPY`` or ``ADD`` and its shorter form (``instructions/bflag.go:186``)."""
_OFF: Final = {"--keep-git-dir=false", "--link=false", "--parents=false"}
"""Their defaults."""
_PLAIN_PATH: Final = re.compile(r"[\w./@+:,~-]+")
_DEFAULTS: Final = {
    "bind": {"type=bind", "readonly", "source=."},
    "cache": {"sharing=shared", "sharing=locked", "id="},
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
_VARIABLE: Final = re.compile(r"\$([A-Za-z_]\w*)")
_PORT: Final = re.compile(r"([0-9]{1,9})(?:/((?i:tcp|udp|sctp)))?")
_SETTINGS: Final = {"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "STOPSIGNAL", "VOLUME"}
"""Instructions that set what no step of a build reads (``dockerfile2llb/convert.go``: each changes the image alone)."""
_STEPS: Final = {"ADD", "COPY", "USER", "WORKDIR"}
"""Steps that no variable reaches but by their words."""
_OF_BUILDKIT: Final = re.compile(r"BUILDKIT_|SOURCE_DATE_EPOCH")
"""How an argument begins that BuildKit itself may read."""
_COMMAND: Final = re.compile(r"(?i:CMD)[ \t]+(.*)", re.DOTALL)
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h)")
"""A number and a unit of Go's ``time.ParseDuration``, as ``HEALTHCHECK`` has them (``instructions/parse.go``)."""
_SCRIPT: Final = re.compile(r"(<<-?)(['\"]?)\w+\2")
"""The whole command of a ``RUN`` whose script is a here-document."""
_DOCUMENT: Final = re.compile(r"(<<-?)(['\"]?)(\w+)\2 ([^<]+)")
"""The words of a ``COPY`` of one here-document."""


def canonical(reach: Reach, platform: str) -> Iterator[Instruction]:
    """Yield the reached instructions in their one form, for a build of a platform."""
    return _Form(reach, platform).instructions()


class _Form:
    """The form of a reach, stage by stage.

    Settings that no step reads stand at a stage's end, sorted, each once with its last value. An ``ARG`` stands before
    the next instruction that may read it otherwise than by a word of known value. Without such an instruction it stands
    nowhere, for example if an ``ENV`` replaces it.
    """

    def __init__(self, reach: Reach, platform: str) -> None:
        self._reach, self._escape, self._platform = reach, reach.dockerfile.escape, normal(platform)
        self._stages: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._folder = ""
        self._count = 0
        self._settings: dict[tuple[str, str], Instruction] = {}
        self._arguments: dict[str, str] = {}

    def instructions(self) -> Iterator[Instruction]:
        firsts = [each for each in self._reach.instructions if each.keyword == "FROM"]
        outer = self._reach.by_variable or any(self._reach.values[each.line][1] is None for each in firsts)
        for each in self._reach.instructions:
            values = self._reach.values.get(each.line, ())
            known = bool(values) and not any(value is None or "$" in value for value in values)
            if each.keyword == "FROM":
                yield from self._begun(each, values)
            elif each.keyword == "ARG":
                yield from self._argument(each, values, kept=outer and not self._count)
            elif each.keyword in _SETTINGS and (known or not values):
                self._settings |= _settings(each, values, self._escape)
            else:
                yield from self._other(each, values, known=known)
        yield from self._set()

    def _begun(self, each: Instruction, values: Sequence[str | None]) -> Iterator[Instruction]:
        if not self._count:
            self._arguments.clear()  # each FROM and ARG of a stage has their values
        yield from self._declared()
        yield from self._set()
        yield self._first(each, values)

    def _other(self, each: Instruction, values: Sequence[str | None], *, known: bool) -> Iterator[Instruction]:
        if each.keyword == "ENV" and known:
            self._arguments = {name: it for name, it in self._arguments.items() if name not in values[::2]}
        if not (known and each.keyword in _STEPS):
            yield from self._declared()
        if each.keyword == "SHELL" or each.keyword in _SETTINGS:
            yield from self._set()  # ENTRYPOINT and CMD read the one, and the other stands for them
        yield from self._steps(each, values)

    def _declared(self) -> Iterator[Instruction]:
        yield from (Instruction("ARGUMENT", rest=json.dumps(pair)) for pair in self._arguments.items())
        self._arguments.clear()

    def _set(self) -> Iterator[Instruction]:
        yield from (self._settings[name] for name in sorted(self._settings))
        self._settings.clear()

    def _first(self, each: Instruction, values: Sequence[str | None]) -> Instruction:
        self._count += 1
        self._folder = ""
        if self._reach.by_variable:
            return each
        image, *name = each.words
        image = _known(image, values[0])
        stage = self._stages.get(image)  # in small letters alone: convert.go:1133
        first = replace(each, rest=stage or _image(image))
        first = replace(first, flags=tuple(map(_braced, first.flags)))
        platform = values[1] and normal(values[1])
        if platform is not None and (stage or image == "scratch" or platform in ("", self._platform)):
            first = replace(
                first, flags=()
            )  # a child has its parent's, `scratch` that of the build: convert.go:450, 1099
        elif platform is not None:
            first = replace(first, flags=(f"--platform={platform}",))
        self._folder = self._folders[f"#{self._count - 1}"] = self._folders.get(first.rest, "")
        self._stages |= {word.lower(): f"#{self._count - 1}" for word in name[1:]}  # which no image is called
        return first

    def _argument(self, each: Instruction, values: Sequence[str | None], *, kept: bool) -> Iterator[Instruction]:
        words = split_words(each.rest, self._escape)
        pairs = [
            pair
            for pair in zip(words, values, strict=True)
            if pair[1] != UNSET or "=" in pair[0] or _OF_BUILDKIT.match(pair[0])
        ]
        unknown = any(value is None or "$" in value for _, value in pairs)
        if pairs and (kept or unknown or any(_OF_BUILDKIT.match(word) for word, _ in pairs)):
            yield from self._declared()
            yield replace(each, rest=" ".join(_unquoted(word) for word, _ in pairs))
            return
        for word, value in pairs:
            name = word.partition("=")[0]
            self._arguments.pop(name, None)
            self._arguments[name] = value or ""

    def _steps(self, each: Instruction, values: Sequence[str | None]) -> Iterator[Instruction]:
        """Yield an instruction that makes a layer or affects later ones."""
        match each.keyword:
            case "COPY" | "ADD":
                yield _copy(each, values, self._stages, self._folder)
            case "RUN":
                flags = tuple(
                    _mount(flag, self._stages) if flag.startswith("--mount=") else flag
                    for flag in each.flags
                    if flag not in _RUN_DEFAULTS
                )
                yield _script(replace(each, flags=flags))
            case "ENV" | "LABEL":
                pairs = [rest for _, rest in _pairs(each, values, self._escape)]
                if any(value is None or "$" in value for value in values):
                    pairs = [" ".join(pairs)]  # each of them reads what was before all of them
                yield from (replace(each, rest=rest) for rest in pairs)
            case "USER":
                yield replace(each, rest=json.dumps(_known(each.rest, values[0])))
            case "WORKDIR":
                yield self._moved(each, _known(each.rest, values[0]))
            case _:
                yield each

    def _moved(self, each: Instruction, folder: str) -> Instruction:
        if folder and self._folder and not folder.startswith("/") and "$" not in folder:
            folder = _target(folder, self._folder).rstrip("/") or "/"
        self._folder = folder if folder.startswith("/") and _PLAIN_PATH.fullmatch(folder) else ""
        self._folders[f"#{self._count - 1}"] = self._folder
        return replace(each, rest=json.dumps(folder))  # Docker 26.1.5 keeps a slash at its end


def _settings(each: Instruction, values: Sequence[str | None], escape: str) -> Mapping[tuple[str, str], Instruction]:
    """Return an instruction's settings by name. A later one of the same name replaces it. Each value is known."""
    match each.keyword:
        case "LABEL":
            return {("LABEL", name): replace(each, rest=rest) for name, rest in _pairs(each, values, escape)}
        case "HEALTHCHECK":
            each = _healthcheck(each)
        case "EXPOSE":
            return {("EXPOSE", port): replace(each, rest=port) for port in map(_port, filter(None, values))}
        case "VOLUME":
            return {("VOLUME", path): replace(each, rest=json.dumps(path)) for path in values if path is not None}
        case "STOPSIGNAL":
            each = replace(each, rest=json.dumps(values[0]))
    return {(each.keyword, ""): each}


def _port(text: str) -> str:
    number = _PORT.fullmatch(text)
    return f"{int(number[1])}/{(number[2] or 'tcp').lower()}" if number else json.dumps(text)


def _known(word: str, value: str | None) -> str:
    """Return a word's value, or the word where only the build knows it. A value with ``$`` stays as it is written."""
    return _braced(word) if value is None or "$" in value else value


def _braced(word: str) -> str:
    """Return a word with ``${x}`` for ``$x``, where no quote or escape can take the meaning of the ``$``."""
    return _VARIABLE.sub(r"${\1}", word) if word.isascii() and not re.search(r"['\\`]", word) else word


def _image(name: str) -> str:
    """Return an image's name with its registry and tag written out; ``scratch`` and what is no name stay."""
    try:
        reference = Reference.parse(name)
    except ValueError:
        return name
    tag = reference.tag or ("" if reference.digest else "latest")
    return name if name == "scratch" else str(replace(reference.in_full, tag=tag))


def _target(path: str, folder: str) -> str:
    """Return the path of a target, from the root if its folder is known.

    It keeps a slash at its end. One that ends in a dot after a slash stays, as engines read it differently.
    """
    if not _PLAIN_PATH.fullmatch(path) or path.endswith(("/.", "/..")):
        return path
    whole = posixpath.normpath(f"{folder}/{path}" if folder and not path.startswith("/") else path)
    whole = f"/{whole.lstrip('/')}" if whole.startswith("/") else whole
    return f"{whole.rstrip('/')}/" if path == "." or path.endswith("/") else whole


def _healthcheck(each: Instruction) -> Instruction:
    """Return a ``HEALTHCHECK`` with times in nanoseconds, and without those of zero: the engine's defaults."""
    flags = []
    for flag in each.flags:
        name, _, value = flag.partition("=")
        if name == "--retries":
            amount, unit = int(value or 0) if re.fullmatch("[0-9]{0,9}", value) else None, ""
        else:
            amount, unit = _nanoseconds(value), "ns"
        if amount != 0:
            flags.append(flag if amount is None else f"{name}={amount}{unit}")
    command = _COMMAND.fullmatch(each.rest)
    rest = f"CMD {json.dumps(json_array(command[1]) or command[1])}" if command else each.rest
    return replace(each, flags=tuple(flags), rest=rest)


def _nanoseconds(text: str) -> int | None:
    """Return the nanoseconds of a time as Go writes it, such as ``1m30s``; None for any other text."""
    if not re.fullmatch(rf"(?:{_TIME.pattern})+", text):
        return 0 if text in ("", "0") else None
    return int(sum(Decimal(number) * _UNITS[unit] for number, unit in _TIME.findall(text)))


def _pairs(each: Instruction, values: Sequence[str | None], escape: str) -> Iterator[tuple[str, str]]:
    """Yield each name, with it and its value as they are known, or without quotes around plain values."""
    rest, words = each.rest, split_words(each.rest, escape)
    if not words or "=" not in words[0]:
        older = _OLDER.fullmatch(rest)
        words = [f'{older[1]}="{older[2]}"' if older else f" {rest}"]  # no word begins with a space
    for word, name, value in zip(words, values[::2], values[1::2], strict=True):
        known = name is not None and value is not None and "$" not in name + value
        yield name or word, json.dumps([name, value]) if known else _unquoted(word) if "=" in word else _braced(word)


def _unquoted(word: str) -> str:
    """Return a name and its value without quotes, or in double quotes, where these mean the same."""
    single = _SINGLE.fullmatch(word)
    word = f'{single[1]}"{single[2]}"' if single else word
    return _braced(_QUOTED.sub(r"\1\2", word) if _QUOTED.fullmatch(word) else word)


def _copy(copy: Instruction, values: Sequence[str | None], numbers: Mapping[str, str], folder: str) -> Instruction:
    """Return a ``COPY`` or ``ADD`` with its stage's number and with what is known of its words.

    Paths of ``COPY`` are relative to the root of their source, and a relative target is in ``folder``.
    """
    switched = (_SWITCHES.get(flag, flag) for flag in copy.flags if flag not in _OFF)
    flags = [_numbered(flag, numbers) if flag.startswith("--from=") else flag for flag in switched]
    if copy.heredocs:
        rest, documents = copy.rest, copy.heredocs
        document = _DOCUMENT.fullmatch(rest)
        if (
            document and len(documents) == 1 and not re.search(r"[$\\]", documents[0])
        ):  # no variable in it: quotes say nothing
            documents = (json.dumps(_lines(documents[0], chomped=document[1] == "<<-")) + "\n",)
            rest = f"<<{document[3]} {document[4]}"
        return replace(copy, flags=tuple(flags), rest=rest, heredocs=documents)
    *sources, target = map(_known, copy.words, values)
    if copy.keyword == "COPY" and "--parents" not in flags:
        sources = [_path(source) for source in sources]
    for name, value in zip(("--chown=", "--chmod=", "--checksum="), values[-3:], strict=True):
        flags = [f"{name}{_known(flag.removeprefix(name), value)}" if flag.startswith(name) else flag for flag in flags]
    flags = [_unquoted(flag) if flag.startswith("--chown=") else _OCTAL.sub(r"--chmod=\1", flag) for flag in flags]
    return replace(copy, flags=tuple(flags), rest=json.dumps([*sources, _target(target, folder)]))


def _path(path: str) -> str:
    return posixpath.normpath(f"/{path}").lstrip("/") or "." if _PLAIN_PATH.fullmatch(path) else path


def _numbered(option: str, numbers: Mapping[str, str]) -> str:
    """Return an option that names a stage, with its number: as ``--from=1`` has it."""
    name, _, origin = option.partition("=")
    return f"{name}={numbers.get(origin.lower(), origin).removeprefix('#')}"


def _mount(flag: str, numbers: Mapping[str, str]) -> str:
    """Return a mount with its options but defaults, sorted; with all in their order, if one is given twice."""
    fields = next(csv.reader([flag.partition("=")[2]]), [])
    options, written = {}, []
    for field in fields:
        name, equals, value = field.partition("=")
        name = _OPTIONS.get(name.lower(), name.lower())
        value = numbers.get(value.lower(), value) if name == "from" else value
        written.append(f"{name}{equals}{value}")
        options[_WRITES.get(name, name)] = written[-1]
    if len(options) != len(fields):
        return f"--mount={json.dumps(written)}"
    kind = options.get("type", "type=bind").partition("=")[2]
    if "readonly" in options:
        options["readonly"] = _ACCESS.get(options["readonly"], options["readonly"])
    if kind == "cache" and "id" in options and "$" not in "".join(fields):
        # the default, or any other one: solver/llbsolver/ops/exec.go:86
        own = options.get("target", "").partition("=")[2]
        options["id"] = "id=" if options["id"] in ("id=", f"id={posixpath.normpath(own)}") else "id"
    if kind == "bind" and "source" in options:  # from the root: dockerfile2llb/convert_runmount.go:132
        options["source"] = f"source={_path(options['source'].removeprefix('source='))}"
    return f"--mount={json.dumps(sorted(set(options.values()) - _DEFAULTS.get(kind, set())))}"


def _script(run: Instruction) -> Instruction:
    """Return a ``RUN`` without its here-document's name. A file has that name only if it begins with ``#!``."""
    script = _SCRIPT.fullmatch(run.rest)
    if script is None or len(run.heredocs) != 1 or run.heredocs[0].lstrip("\t").startswith("#!"):
        return run
    return Instruction("SCRIPT", run.flags, json.dumps(_lines(run.heredocs[0], chomped=script[1] == "<<-")))


def _lines(document: str, *, chomped: bool) -> list[str]:
    """Return the lines of a here-document without its last one (``parser/parser.go``, ``ChompHeredocContent``)."""
    lines = document.split("\n")[:-2]
    return [line.lstrip("\t") for line in lines] if chomped else lines
