"""The steps of a build as BuildKit makes them of a Dockerfile, and the configuration of its image.

It does what ``dockerfile2llb`` does (moby/buildkit v0.26.3, ``frontend/dockerfile/dockerfile2llb/convert.go``, one
``dispatch...`` for each instruction): a stage is its last step, its variables, its folder and its user. So whatever
leads to the same steps is the same: names of stages, stages that only have another name, constants for variables, the
order of settings that no step reads. What only the parent image or the engine knows is a text of its own.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from containers.dockerfile.expansion import ExpansionError, expand
from containers.dockerfile.instruction_values import REMOTE, mounts, nanoseconds, ports
from containers.dockerfile.instructions import HEREDOC, Dockerfile, Instruction, declarations, json_array, pairs
from containers.dockerfile.stages import (
    DECLARED,
    FRONTEND,
    MOST_EXPANDED,
    NAMES,
    Reach,
    builtin,
    number,
    too_long,
    within,
)
from containers.errors import one_line
from containers.platform_name import normal
from containers.registry.reference import Reference

_UNKNOWN: Final = re.compile("\0[^\0]*\0")
_COMMAND: Final = re.compile(r"(?i:CMD)[ \t]+(.*)", re.DOTALL)
_FILLED: Final = {"BUILDPLATFORM", "BUILDOS", "BUILDARCH"}
"""Variables of the engine that are never empty (``dockerfile2llb/platform.go``)."""
_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_PLAIN_TEXT: Final = re.compile(rf"(?:[^$\\]|{_VARIABLE.pattern})*", re.ASCII)
_SCRIPT: Final = re.compile(r"(<<-?)(['\"]?)\w+\2")
"""The whole command of a ``RUN`` whose script is a here-document."""
_DEFAULT_FLAGS: Final = {
    **dict.fromkeys(("--network=default", "--security=sandbox"), ""),
    **dict.fromkeys(("--keep-git-dir=false", "--link=false", "--parents=false"), ""),
    **{f"--{name}=true": f"--{name}" for name in ("keep-git-dir", "link", "parents")},
}
"""Flags that say a default, and other forms of a switch (``instructions/bflag.go:186``)."""
_UNSORTED: Final = ("secret", "ssh")
"""Types of mounts that BuildKit leaves in their order, behind those that it sorts."""


def graph(reach: Reach, target: str, arguments: Mapping[str, str], platform: str) -> str:
    """Return the SHA-256 of all steps and of the image's configuration, in hexadecimal.

    Args:
        reach: what the build can read.
        target: the stage to build, as it is given or named; empty for the last one without a name.
        arguments: the build arguments.
        platform: the platform to build for.

    Raises:
        DockerfileError: a word has the character of value 0, which no variable and no path can have.
    """
    return _Graph(reach, target, arguments, platform).digest()


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _unknown(*parts: Any) -> str:
    """Return the text that stands for what only the build knows; equal parts have equal values in it."""
    return f"\0{_hash(*parts)}\0"


@dataclass
class _Stage:
    """A stage up to one of its instructions.

    Attributes:
        step: the hash of the last step and all before it.
        complete: whether no parent image can have set a variable.
        folder: the working directory.
        user: whom steps run as; None for the parent's.
        values: variables by name, with those of ``ARG``.
        environment: those of the image, in the order in which each is set first (``convert.go``, ``addEnv``).
        order: the hash of each that a step has, in the order in which each is set last (``client/llb/meta.go``,
            ``EnvList``): a step has all of them, and a value may be long. The empty
            name stands for the parent image's own; its value has those that the image had when the stage began.
        shell: of ``SHELL``; None for the parent's.
        commanded: whether the stage has a ``CMD``, which an ``ENTRYPOINT`` then leaves.
        config: the rest of the image's configuration.
    """

    step: str
    complete: bool
    folder: str = "/"
    user: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=lambda: {"": []})
    shell: Sequence[str] | None = None
    commanded: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    def child(self) -> _Stage:
        """Return the start of a child. It sets the variables of the image again, the parent image's own too."""
        order = {name: value for name, value in self.order.items() if name and name not in self.environment}
        values = dict(self.values) if self.complete else {}
        if not self.complete or "PATH" in order:
            values |= {name: _unknown("inherited", name, value) for name, value in order.items()}
        values |= self.environment
        order |= {"": [(name, _hash(value)) for name, value in self.environment.items()]}
        return replace(
            self,
            values=values,
            environment=dict(self.environment),
            order=order,
            commanded=False,
            config={name: dict(it) if isinstance(it, dict) else it for name, it in self.config.items()},
        )

    def set(self, name: str, value: str) -> None:
        """Set a variable for the steps that follow."""
        self.values[name] = value
        self.order.pop(name, None)
        self.order[name] = _hash(value)

    def variables(self) -> list[Any]:
        """Return the variables of a step. One that is set after the start of the stage has its place there."""
        own = [pair for pair in self.order[""] if pair[0] not in self.order]
        return [[name, value] if name else own for name, value in self.order.items()]

    def add(self, *step: Any) -> None:
        """Add a step to those before it."""
        self.step = _hash(self.step, *step)

    def command(self, text: str) -> Any:
        """Return the words of a command: those of a JSON array, or the shell's (``convert.go``, ``withShell``)."""
        array = json_array(text)
        return array if array is not None else [*self.shell, text] if self.shell else {"shell": text}


class _Graph:
    def __init__(self, reach: Reach, target: str, arguments: Mapping[str, str], platform: str) -> None:
        self._reach, self._arguments, self._platform = reach, arguments, normal(platform)
        self._dockerfile: Dockerfile = reach.dockerfile
        known = {**builtin(platform), "TARGETSTAGE": target or "default"}
        self._outer = _Stage("", complete=True)
        self._outer.values = {
            name: arguments.get(name, _unknown("engine", name) if value is None else value)
            for name, value in known.items()
        }
        self._stages: list[_Stage] = []
        self._names: dict[str, _Stage] = {}
        self._expanded = 0
        self._frontend: list[Any] = [
            [name, value] for name, value in sorted(arguments.items()) if FRONTEND.fullmatch(name)
        ]

    def digest(self) -> str:
        stage = self._outer
        for each in self._reach.instructions:
            if "\0" in "".join([*each.words, *each.flags, *each.heredocs]):
                raise self._dockerfile.error(each, "a character of value 0, which no engine takes")
            if each.keyword == "FROM":
                stage = self._first(each)
            elif each.keyword == "ARG":
                self._declare(each, stage)
            else:
                self._dispatch(each, stage)
        if any(name.startswith("BUILDKIT_SBOM") for name, _ in self._frontend):
            self._frontend.append(["stages", sorted(self._reach.stages)])  # its value may have their names
        syntax = [line for line in self._dockerfile.directives if line.startswith("syntax=")]
        config = {**stage.config, "Env": list(stage.environment.items()), "User": stage.user}
        return _hash(stage.step, config, stage.folder, self._frontend, syntax)

    def _first(self, each: Instruction) -> _Stage:
        name, *alias = each.words
        name = self._value(name, self._outer)
        platform = self._value(each.flag("platform") or "", self._outer)
        if name in self._names:  # in small letters alone: convert.go:1133
            stage = self._names[name].child()
        elif name == "scratch":
            stage = _Stage("scratch", complete=True, values={"PATH": _unknown("PATH")})
        else:
            stage = _Stage(self._image(name, platform), complete=False, folder=_unknown("folder"))
        self._stages.append(stage)
        self._names |= {word.lower(): stage for word in alias[1:]}
        return stage

    def _image(self, name: str, platform: str = "") -> str:
        """Return the step of an image, with its registry and tag written out."""
        if "\0" not in name:
            reference = Reference.parse(name)
            tag = reference.tag or ("" if reference.digest else "latest")
            name = str(replace(reference.in_full, tag=tag))
        platform = platform if "\0" in platform else normal(platform)
        return _hash("image", name, "" if platform == self._platform else platform)

    def _from(self, name: str) -> str:
        """Return the last step of a stage, or an image."""
        stage = self._names.get(name.lower())
        return stage.step if stage else "scratch" if name == "scratch" else self._image(name)

    def _declare(self, each: Instruction, stage: _Stage) -> None:
        for name, default in declarations(each, self._dockerfile.escape):
            value = self._arguments.get(name)
            if value is None and default is not None:
                value = self._value(default, stage)
            if value is None:
                value = self._outer.values.get(name)
            if value is None:
                continue
            if DECLARED.fullmatch(name):
                self._frontend.append([name, value])
            if stage is self._outer or not name.startswith("BUILDKIT_SBOM_SCAN_"):  # convert.go:66, nonEnvArgs
                stage.set(name, value)

    def _dispatch(self, each: Instruction, stage: _Stage) -> None:
        match each.keyword:
            case "ENV":
                for name, value in self._pairs(each, stage):
                    stage.environment[name] = value
                    stage.set(name, value)
            case "LABEL":
                stage.config.setdefault("Labels", {}).update(self._pairs(each, stage))
            case "RUN":
                self._run(each, stage)
            case "COPY" | "ADD":
                self._copy(each, stage)
            case "WORKDIR":
                stage.folder = _moved(self._value(each.rest, stage), stage.folder)
                if stage.folder != "/":
                    stage.add("mkdir", _target(stage.folder, "").rstrip("/"), stage.user)
            case "USER":
                stage.user = self._value(each.rest, stage)
            case _:
                self._configure(each, stage)

    def _configure(self, each: Instruction, stage: _Stage) -> None:
        """Set what the image says, and no step reads but the shell."""
        config = stage.config
        match each.keyword:
            case "SHELL":
                stage.shell = config["Shell"] = json_array(each.rest) or [each.rest]
            case "CMD":
                config["Cmd"], config["ArgsEscaped"] = stage.command(each.rest), True
                stage.commanded = True
            case "ENTRYPOINT":
                config["Entrypoint"] = stage.command(each.rest)
                if not stage.commanded:
                    config["Cmd"] = None
            case "EXPOSE" | "VOLUME":
                words = [self._value(word, stage) for word in each.words]
                if each.keyword == "EXPOSE":
                    words = [port for word in words for port in ports(word) or [word]]
                config.setdefault(each.keyword, {}).update(dict.fromkeys(words, ""))
            case "HEALTHCHECK":
                config["Healthcheck"] = _healthcheck(each)
            case "ONBUILD":
                config["OnBuild"] = [*config.get("OnBuild", []), each.rest, *each.heredocs]
            case "STOPSIGNAL":
                config[each.keyword] = self._value(each.rest, stage)
            case _:
                config[each.keyword] = each.rest

    def _pairs(self, each: Instruction, stage: _Stage) -> list[tuple[str, str]]:
        """Return names with values. Each of them reads what was before all of them."""
        return [
            (self._value(name, stage), self._value(value, stage))
            for name, value in pairs(each, self._dockerfile.escape)
        ]

    def _value(self, word: str, stage: _Stage) -> str:
        """Return a word's value, with what is not known as a text of its own."""

        def unknown(name: str, operator: str, rest: str) -> str | None:
            value = stage.values.get(name)
            operator = "" if operator[-1:] == "-" and not rest else operator  # both are empty without a value
            if value is None and not stage.complete:
                return _unknown("parent", name, operator, rest)
            if operator[-1:] in ("#", "%", "/"):
                return _unknown("operated", value, operator, rest)
            filled = name in _FILLED and value == _unknown("engine", name)
            if value and operator[:1] == ":" and not filled and not _UNKNOWN.sub("", value):
                return _unknown("operated", value, operator, rest)  # it may be empty
            return None

        escape = self._dockerfile.escape
        try:
            value = expand(word, stage.values, escape=escape, complete=True, unknown=unknown)
        except ExpansionError:
            return self._text(word, stage)
        self._expanded += len(value)
        if self._expanded > MOST_EXPANDED:
            raise too_long(self._dockerfile)
        return value

    def _text(self, text: str, stage: _Stage) -> str:
        """Return what stands for a text in which BuildKit replaces variables by rules of its own."""
        read = [[name, stage.values.get(name)] for name in sorted(set(NAMES.findall(text)))]
        return _unknown("text", text, self._dockerfile.escape, read)

    def _run(self, each: Instruction, stage: _Stage) -> None:
        command: Any = stage.command(each.rest)
        if each.heredocs:
            command = [command, *each.heredocs]
            script = _SCRIPT.fullmatch(each.rest)
            if script and len(each.heredocs) == 1 and not each.heredocs[0].lstrip("\t").startswith("#!"):
                # a file has the document's name only if it begins with `#!`
                command = stage.command(_document(each.heredocs[0], chomped=script[1] == "<<-"))
        options = [self._mount(each, mount, stage) for mount in mounts(each)]
        sortable = [it for it in options if it["type"] not in _UNSORTED]
        if not any("\0" in it["target"] for it in sortable):
            sortable.sort(key=lambda it: it["target"])  # client/llb/exec.go:145
        others = [it for it in options if it["type"] in _UNSORTED]
        flags = [flag for flag in each.flags if not flag.startswith("--mount=") and flag not in _DEFAULT_FLAGS]
        stage.add("run", command, stage.variables(), stage.folder, stage.user, [sortable, others], flags)

    def _mount(self, each: Instruction, mount: Sequence[tuple[str, str, str]], stage: _Stage) -> dict[str, Any]:
        """Return a mount's options with what BuildKit makes of them (``dockerfile2llb/convert_runmount.go``)."""
        options: dict[str, Any] = {}
        for option, equals, written in mount:
            name, value = option, self._value(written, stage) if equals and option != "from" else written or "true"
            if name in ("readonly", "readwrite", "required"):
                value = {"1": "true", "t": "true", "0": "false", "f": "false"}.get(value.lower(), value.lower())
            if name == "readwrite":
                name, value = "readonly", {"true": "false", "false": "true"}.get(value, value)
            options[name] = value
        kind = options["type"] = options.get("type", "bind").lower()
        if kind in _UNSORTED:
            return {name: value for name, value in options.items() if (name, value) != ("required", "false")}
        target = options.get("target", "")
        options["target"] = _moved(target, stage.folder)
        if options["target"] == "/":
            raise self._dockerfile.error(each, f"--mount: target={one_line(target)}: expected a folder below /")
        options.setdefault("readonly", "true" if kind == "bind" else "false")
        options["source"] = _path(options.get("source", ""))
        if "from" in options:
            options["from"] = self._from(options["from"])
        if kind == "cache":
            if options.get("from") == "scratch":
                del options["from"]  # as without it: convert_runmount.go:69
            # any other name is dropped, and who waits with it: solver/llbsolver/ops/exec.go:86
            default = (options.pop("id", "") or posixpath.normpath(target)) == options["target"]
            options["id"] = "default" if default and options.pop("sharing", "shared") == "shared" else ""
            options.pop("sharing", None)
        return options

    def _copy(self, each: Instruction, stage: _Stage) -> None:
        origin, place = each.flag("from") or None, number(each)
        if origin is not None:
            origin = self._from(origin) if place is None else self._stages[place].step
        *words, target = each.words
        flags = self._copy_flags(each, stage)
        sources: list[Any] = []
        documents = iter(each.heredocs)
        for word in words:
            document = HEREDOC.fullmatch(word)
            if document and document["name"] and each.heredocs:
                sources.append(self._inline(document, next(documents), stage))
                continue
            path = self._value(word, stage)
            plain = "--parents" not in flags and not (each.keyword == "ADD" and REMOTE.match(path))
            sources.append(_path(path) if plain else path)
        sources.sort(key=lambda it: isinstance(it, list))  # BuildKit copies files before documents
        stage.add(each.keyword, origin, sources, _target(self._value(target, stage), stage.folder), flags)

    def _copy_flags(self, each: Instruction, stage: _Stage) -> Sequence[str]:
        """Return the flags of what is copied, apart from its origin, as far as they have an effect."""
        flags = []
        for written in each.flags:
            flag = _DEFAULT_FLAGS.get(written, written)
            name, _, value = flag.partition("=")
            if name in ("--chown", "--chmod", "--checksum"):
                value = self._value(value, stage)
                value = value.lstrip("0") or "0" if name == "--chmod" and re.fullmatch("[0-7]+", value) else value
                flag = f"{name}={value}" if value else ""
            flags += [flag] if flag and name != "--from" else []
        moded = any(flag.startswith("--chmod=") and _UNKNOWN.sub("", flag) != "--chmod=" for flag in flags)
        if moded or stage.step == "scratch":  # there it has no effect: convert.go:1718, client/llb/merge.go
            flags = [flag for flag in flags if flag != "--link"]
        return flags

    def _inline(self, document: re.Match[str], text: str, stage: _Stage) -> list[str]:
        """Return the name and content of a here-document that is copied. Variables are replaced without quotes."""
        name = document["name"].strip("'\"")
        content = _document(text, chomped=bool(document["chomp"]))
        if name != document["name"]:
            return [name, content]
        if _PLAIN_TEXT.fullmatch(content) and stage.values.keys() >= set(NAMES.findall(content)):
            return [name, _VARIABLE.sub(lambda it: stage.values[it[1] or it[2]], content)]
        return [name, self._text(content, stage)]


def _document(text: str, *, chomped: bool) -> str:
    """Return a here-document without its last line (``parser/parser.go``, ``ChompHeredocContent``)."""
    lines = text.split("\n")[:-2]
    return "".join(f"{line.lstrip(chr(9)) if chomped else line}\n" for line in lines)


def _moved(path: str, folder: str) -> str:
    """Return a path from the root as it is written, or one in a folder (``util/system/path.go``, ``NormalizePath``)."""
    return path if path.startswith("/") else _target(path, folder).rstrip("/") or "/"


def _target(path: str, folder: str) -> str:
    """Return the path of a target from the root, or from a folder that is not known.

    It keeps a slash at its end. One that ends in a dot after a slash stays, as engines read it differently.
    """
    path = path or "."
    if "\0" in path or path.endswith(("/.", "/..")):
        return path if path.startswith("/") else _unknown("joined", folder, path)
    if path.startswith("/"):
        folder = ""
    elif "\0" in folder and ".." in path.split("/"):
        return _unknown("joined", folder, path)
    whole = posixpath.normpath(f"{folder}/{path}")
    whole = f"/{whole.lstrip('/')}" if whole.startswith("/") else whole
    return f"{whole.rstrip('/')}/" if path == "." or path.endswith("/") else whole


def _path(path: str) -> str:
    """Return a path from the root of what it is copied from."""
    return path if "\0" in path else within(path)


def _healthcheck(each: Instruction) -> Sequence[Any]:
    """Return a check with times in nanoseconds, and without those of zero: the engine's defaults."""
    flags = []
    for flag in each.flags:
        name, _, value = flag.partition("=")
        if name == "--retries":
            amount = int(value or 0) if re.fullmatch("[0-9]{0,9}", value) else None
        else:
            amount = nanoseconds(value)
        if amount != 0:
            flags.append([name, value if amount is None else amount])
    command = _COMMAND.fullmatch(each.rest)
    return [flags, json_array(command[1]) or command[1] if command else each.rest.upper()]
