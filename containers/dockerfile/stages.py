"""What a build can read: the stages that its target reaches, and the paths of the context in their instructions.

The rules are those of moby/buildkit v0.26, ``frontend/dockerfile/dockerfile2llb`` (``convert.go``, ``convert_copy.go``,
``convert_runmount.go``). A build whose reach nobody knows beforehand is refused.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from containers.dockerfile import instruction_values
from containers.dockerfile.expansion import ExpansionError, Unknown, WordError, expand
from containers.dockerfile.instructions import (
    HEREDOC,
    Dockerfile,
    DockerfileError,
    Instruction,
    declarations,
    json_array,
    pairs,
    split_words,
)
from containers.errors import one_line
from containers.platform_name import architecture, system
from containers.registry.reference import Reference

_ENGINE = ("BUILDPLATFORM", "BUILDOS", "BUILDARCH", "BUILDVARIANT", "BUILDOSVERSION", "TARGETOSVERSION", "TARGETSTAGE")
"""Variables of every build whose values depend on the engine."""
_TARGET = ("TARGETPLATFORM", "TARGETOS", "TARGETARCH", "TARGETVARIANT")
"""Variables of every build whose values are those of the platform to build for."""
FRONTEND = re.compile(r"BUILDKIT_.*|SOURCE_DATE_EPOCH")
"""Arguments that BuildKit itself reads, whether a stage declares them or not."""
DECLARED = re.compile(r"BUILDKIT_SBOM_SCAN_(CONTEXT|STAGE)|SOURCE_DATE_EPOCH")
"""Those of them whose ``ARG`` it reads; the others it takes from the client alone."""
_SYNTAX = "BUILDKIT_SYNTAX"
"""The build argument whose first word is the frontend's image, before that of ``# syntax=`` (``builder/build.go``)."""
_AT_COMMIT = re.compile(r"(?:https?://[^#?]+\.git|(?!https?://)[^#?]+)#[0-9a-f]{40}(?::.*)?")
"""A git repository at a whole commit. An address of http whose path does not end in ``.git`` is a file's, whatever
follows ``#`` (``dfgitutil/git_ref.go:98``)."""
_CHECKSUM = re.compile(r"sha[0-9]+:[0-9a-f]{64,128}|[0-9a-f]{40,64}")
"""A whole checksum of a file or commit. Of a commit BuildKit takes a few digits too (``source/git/source.go:602``)."""
MOST_EXPANDED = 16 << 20
"""Characters of all words of a Dockerfile with their variables replaced: each may use those before it twice."""
_MOST_INHERITED = 1 << 22
"""Variables and sources that the stages and ``RUN`` of a Dockerfile have from what stands before them, together."""
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
NAMES = re.compile(r"\$\{?(\w+)")
"""Names of the variables that a text may read."""


@dataclass(frozen=True)
class Source:
    """A path that an instruction reads in the context; "" is the whole context.

    ``pattern`` says whether ``*``, ``?`` and ``[`` have a meaning in it. ``COPY --parents`` reads the modes of the
    folders above the path too.
    """

    path: str
    pattern: bool
    instruction: Instruction


@dataclass(frozen=True)
class Run:
    """A ``RUN``: its command, the context's paths in its stage and its mounts, and the variables that it sees.

    ``complete`` says that no parent image can have set another variable.
    """

    command: str
    sources: tuple[Source, ...]
    variables: Mapping[str, str | None]
    complete: bool

    def value(self, name: str) -> str | None:
        """Return a variable's value, empty if it has none; None if only the build knows it."""
        return self.variables.get(name, "" if self.complete else None)


@dataclass(frozen=True)
class Reach:
    """What the build of one target can read: instructions, paths in the context, and build arguments.

    ``instructions`` are the ``ARG`` before the first stage, of those that are used, and then the reached stages.
    ``arguments`` maps the names whose values they can read to a default, None if no stage sets one. ``stages`` has the
    names of the reached stages, in small letters. ``outside`` has what the Dockerfile names to be fetched: images, that
    of ``# syntax=`` or ``BUILDKIT_SYNTAX`` too, and every ``ADD`` without a checksum. ``environment`` maps the names
    that ``ENV`` sets in these stages to the values, None for one known to the build only. ``user`` is whom the built
    image runs as: empty for its parent's user, None where only the build knows.
    """

    dockerfile: Dockerfile
    instructions: tuple[Instruction, ...]
    sources: tuple[Source, ...]
    arguments: Mapping[str, str | None]
    stages: frozenset[str]
    outside: frozenset[str]
    environment: Mapping[str, Set[str | None]]
    runs: tuple[Run, ...]
    user: str | None

    def render(self, given: Mapping[str, object]) -> str:
        """Return a Dockerfile of these instructions alone, each in its one form.

        An argument that is ``given`` has no default in it, because the default has no effect. There is no ``check``
        directive: it says what the author is warned of.
        """
        escape = self.dockerfile.escape
        lines = [f"# {directive}\n" for directive in self.dockerfile.directives if not directive.startswith("check=")]
        for instruction in self.instructions:
            if instruction.keyword == "ARG":
                words = [
                    name if (name := word.partition("=")[0]) in given else word
                    for word in split_words(instruction.rest, escape)
                ]
                lines.append(f"ARG {' '.join(words)}\n")
            else:
                lines.append(instruction.render())
        return "".join(lines)


@dataclass
class _Stage:
    first: Instruction
    name: str
    """In small letters; empty for a stage without a name."""
    image: str
    """As ``FROM`` has it: another stage's name, a parent image, or ``scratch``."""
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class _Scope:
    """The variables at one place of a stage.

    ``environment`` has those of ``ENV`` alone. ``complete`` says that no parent image can have set others. ``user`` is
    what ``USER`` says, see :class:`Reach`.
    """

    variables: dict[str, str | None]
    environment: dict[str, str | None]
    complete: bool
    user: str | None = ""

    def child(self) -> _Scope:
        """Return the scope at the start of a child: there ``ENV``, the parent's too, wins over a later ``ARG``."""
        arguments = self.variables if self.complete else dict.fromkeys(self.variables)
        return _Scope({**arguments, **self.environment}, dict(self.environment), self.complete, self.user)


def builtin(platform: str) -> dict[str, str | None]:
    """Return the variables of every build for a platform; None for a value that the engine decides."""
    values: dict[str, str | None] = dict.fromkeys((*_ENGINE, *_TARGET))
    if platform.count("/") == 1:
        values |= zip(_TARGET, (platform, system(platform), architecture(platform), ""), strict=True)
    return values


def is_named(dockerfile: Dockerfile, name: str) -> bool:
    """Return whether a stage has a name, in small letters or not."""
    firsts = (instruction.words for instruction in dockerfile.instructions if instruction.keyword == "FROM")
    return any(len(words) == 3 and words[2].lower() == name.lower() for words in firsts)


def default(dockerfile: Dockerfile, argument: str) -> str | None:
    """Return an argument's default before the first stage, as it is written; None if none is declared there.

    It is empty if the argument has no default.
    """
    for instruction in dockerfile.instructions:
        if instruction.keyword == "FROM":
            break
        for name, value in declarations(instruction, dockerfile.escape):
            if name == argument:
                return (value or "").strip("\"'")
    return None


def reach(
    dockerfile: Dockerfile, target: str | None, arguments: Mapping[str, str], platform: str, *, whole: bool = False
) -> Reach:
    """Return what the build of a target can read.

    Args:
        dockerfile: the Dockerfile.
        target: the stage to build; None for the last one.
        arguments: the build arguments. A parent image's value may be any text that names no stage.
        platform: the platform to build for, such as ``linux/amd64``.
        whole: whether the file is built as it is. BuildKit then reads the ``FROM`` of each stage, reached or not.

    Raises:
        DockerfileError: there is no such stage, what an instruction reads is not known before the build, or the stages
            or their variables are without a reasonable bound.
    """
    try:
        return _Search(dockerfile, arguments, platform).of(target, whole=whole)
    except RecursionError:
        raise DockerfileError(f"{dockerfile.path}: too many stages, each of which needs the one before it") from None


class _Search:
    def __init__(self, dockerfile: Dockerfile, arguments: Mapping[str, str], platform: str) -> None:
        self._dockerfile, self._arguments = dockerfile, arguments
        self._globals: list[Instruction] = []
        known = builtin(platform)
        self._expanded = self._inherited = 0
        self._outer = _Scope({name: arguments.get(name, value) for name, value in known.items()}, {}, complete=True)
        self._builtin = frozenset(known)
        self._stages: list[_Stage] = []
        for instruction in dockerfile.instructions:
            if flaw := instruction_values.flaw(instruction):
                raise dockerfile.error(instruction, flaw)
            if instruction.keyword == "FROM":
                self._stages.append(self._stage(instruction))
            elif self._stages:
                self._stages[-1].instructions.append(instruction)
            elif instruction.keyword == "ARG":
                self._globals.append(instruction)
                self._refuse(instruction, self._outer)
                self._declare(instruction, self._outer)
            else:
                raise dockerfile.error(instruction, "it stands before the first FROM, where only ARG may")
        if not self._stages:
            raise DockerfileError(f"{dockerfile.path}: there is no FROM")
        epoch = self._outer.variables.get("SOURCE_DATE_EPOCH", arguments.get("SOURCE_DATE_EPOCH", ""))
        if epoch is None or not re.fullmatch("-?[0-9]*", epoch):
            raise DockerfileError(
                f"{dockerfile.path}: SOURCE_DATE_EPOCH: expected seconds; newer engines read it elsewhere"
            )
        self._places = {stage.name: place for place, stage in enumerate(self._stages) if stage.name}
        for place, stage in enumerate(self._stages):
            if self._places.get(stage.name, place) != place:
                raise dockerfile.error(stage.first, f"two stages are named '{one_line(stage.name)}'; rename one")
        self._reached: dict[int, _Scope] = {}
        self._sources: list[Source] = []
        self._outside: set[str] = set()
        self._environment: defaultdict[str, set[str | None]] = defaultdict(set)
        self._had: dict[int, int] = {}  # by stage, its sources: bit N is that of self._sources[N]
        self._runs: list[tuple[Instruction, int, _Scope]] = []

    def of(self, target: str | None, *, whole: bool) -> Reach:
        index = self._find(target.lower(), len(self._stages)) if target else len(self._stages) - 1
        if index is None:
            stages = ", ".join(stage.name for stage in self._stages if stage.name) or "none with a name"
            raise DockerfileError(f"{self._dockerfile.path}: there is no stage '{target}'; it has {stages}")
        self._visit(index)
        for stage in self._stages if whole else ():
            self._refuse(stage.first, self._outer)
            if self._try(stage.image, self._outer) is not None:
                self._base(stage)
        reached = sorted(self._reached)
        inner = [
            self._renumbered(instruction, reached)
            for place in reached
            for instruction in (self._stages[place].first, *self._stages[place].instructions)
        ]
        outer, names = self._global_arguments(inner)
        instructions = (*outer, *inner)
        sources = tuple(self._sources)
        return Reach(
            self._dockerfile,
            instructions,
            sources,
            self._read_arguments(instructions, names),
            frozenset(self._stages[place].name for place in reached),
            frozenset({*self._outside, *self._frontends()}),
            self._environment,
            tuple(_run(*run, sources) for run in self._runs),
            self._reached[index].user,
        )

    def _global_arguments(self, inner: Sequence[Instruction]) -> tuple[Sequence[Instruction], Set[str]]:
        """Return the ARGs before the first stage that the reached instructions read, and all names in use."""
        names = {name for instruction in inner if instruction.keyword == "FROM" for name in _names(instruction)}
        names |= {name for instruction in inner for name, _ in declarations(instruction, self._dockerfile.escape)}
        names |= set(filter(DECLARED.fullmatch, self._outer.variables))
        outer = []
        for instruction in reversed(self._globals):
            if names & {name for name, _ in declarations(instruction, self._dockerfile.escape)}:
                outer.append(instruction)
                for name, default in declarations(instruction, self._dockerfile.escape):
                    names |= set(NAMES.findall(default or "")) if name not in self._arguments else set()
        return outer[::-1], names

    def _read_arguments(self, instructions: Iterable[Instruction], names: Set[str]) -> dict[str, str | None]:
        """Return the arguments that a build reads, with the defaults known without values."""
        read: dict[str, str | None] = dict.fromkeys(filter(FRONTEND.fullmatch, self._arguments))
        read |= dict.fromkeys(names & self._builtin)
        for instruction in instructions:
            for name, default in declarations(instruction, self._dockerfile.escape):
                value = None if default is None else self._try(default, _Scope({}, {}, complete=False))
                read[name] = read.get(name) if value is None else value
        return read

    def _frontends(self) -> Iterator[str]:
        """Yield the images that read the Dockerfile in place of BuildKit's own frontend."""
        yield from (line.removeprefix("syntax=") for line in self._dockerfile.directives if line.startswith("syntax="))
        yield from self._arguments.get(_SYNTAX, "").split()[:1]

    def _stage(self, first: Instruction) -> _Stage:
        words = first.words
        if len(words) not in (1, 3) or not words[0] or (len(words) == 3 and words[1].upper() != "AS"):
            raise self._dockerfile.error(first, f"{one_line(first.rest)}: expected an image, or an image AS a name")
        name = words[2].lower() if len(words) == 3 else ""
        if name and (not _STAGE_NAME.fullmatch(name) or name in {"context", "scratch"}):
            raise self._dockerfile.error(
                first, f"{one_line(name)}: expected a letter, then letters, digits, '_.-'; not context or scratch"
            )
        return _Stage(first, name, words[0])

    def _find(self, name: str, before: int) -> int | None:
        """Return the place of the stage with a name, among the first ones."""
        place = self._places.get(name, before)
        return place if place < before else None

    def _renumbered(self, instruction: Instruction, reached: Sequence[int]) -> Instruction:
        """Return an instruction whose ``--from`` counts the reached stages alone."""
        place = number(instruction)
        if place is None:
            return instruction
        flags = [
            f"--from={bisect_left(reached, place)}" if flag.startswith("--from=") else flag
            for flag in instruction.flags
        ]
        return replace(instruction, flags=tuple(flags))

    def _visit(self, index: int) -> _Scope:
        if index in self._reached:
            return self._reached[index]
        stage = self._stages[index]
        image = self._base(stage)
        base = self._find(image, index)
        if base is None:
            self._outside.add(image)
            self._had[index] = 0
            scope = _Scope({"PATH": None}, {}, complete=image == "scratch")
        else:
            scope = self._visit(base).child()
            self._inherit(stage.first, len(scope.variables) + len(scope.environment))
            self._had[index] = self._had[base]
            for instruction in self._stages[base].instructions:
                if instruction.keyword == "ONBUILD":
                    raise self._dockerfile.error(
                        instruction, f"stage '{one_line(image)}' has a child in this file; write the instruction there"
                    )
        for instruction in stage.instructions:
            self._read(instruction, index, scope)
        self._reached[index] = scope
        return scope

    def _base(self, stage: _Stage) -> str:
        """Return the image or the stage that a stage begins with. Raises DockerfileError: BuildKit refuses its FROM."""
        self._refuse(stage.first, self._outer)
        image = self._expand(stage.first, stage.image, self._outer)
        if not image:
            raise self._dockerfile.error(
                stage.first,
                f"{one_line(stage.image)} is empty; declare it by ARG before the first FROM, with a value or a default",
            )
        if image not in self._places:
            self._check_reference(stage.first, image)
        return image

    def _check_reference(self, instruction: Instruction, name: str) -> None:
        try:
            Reference.parse(name)
        except ValueError as error:
            raise self._dockerfile.error(
                instruction, f"{one_line(name)}: {error}; expected such as debian:12"
            ) from None

    def _refuse(self, instruction: Instruction, scope: _Scope) -> None:
        """Raise the error of an instruction that BuildKit refuses, as far as its values are known."""
        escape = self._dockerfile.escape

        def value(word: str, unknown: Unknown = lambda *_: None, escape: str = escape) -> str | None:
            try:
                return expand(word, scope.variables, escape=escape, complete=scope.complete, unknown=unknown)
            except WordError:
                raise
            except ExpansionError:
                return None

        try:
            words = [(word, escape) for word in instruction_values.words(instruction, escape, self._arguments)]
            for word, character in (*words, *((text, "\\") for text in instruction_values.documents(instruction))):
                value(word, lambda *_: "", character)  # whether it can be read, whatever the values
                if "?" in word:
                    value(word, escape=character)
            flaw = instruction_values.flaw_of_values(instruction, value)
        except WordError as error:
            flaw = one_line(str(error))
        if flaw:
            raise self._dockerfile.error(instruction, flaw)

    def _read(self, instruction: Instruction, index: int, scope: _Scope) -> None:
        self._refuse(instruction, scope)
        match instruction.keyword:
            case "ARG":
                self._declare(instruction, scope)
            case "ENV":
                given = {
                    self._expand(instruction, name, scope): self._try(value, scope)
                    for name, value in pairs(instruction, self._dockerfile.escape)
                }
                scope.variables |= given
                scope.environment |= given
                for name, value in given.items():
                    self._environment[name].add(value)
            case "USER":
                scope.user = self._try(instruction.rest, scope)
            case "COPY" | "ADD":
                self._had[index] |= self._read_paths(instruction, index, scope)
            case "RUN":
                had = self._had[index]
                for mount in instruction_values.mounts(instruction):
                    options = {name: value for name, _, value in mount}
                    had |= self._read_mount(instruction, options, index, scope)
                self._inherit(instruction, len(scope.variables) + had.bit_count())
                self._runs.append((instruction, had, replace(scope, variables=dict(scope.variables))))

    def _inherit(self, instruction: Instruction, count: int) -> None:
        self._inherited += count
        if self._inherited > _MOST_INHERITED:
            raise self._dockerfile.error(
                instruction, f"it and others have more than {_MOST_INHERITED:,} variables and sources from before them"
            )

    def _declare(self, instruction: Instruction, scope: _Scope) -> None:
        for word, default in declarations(instruction, self._dockerfile.escape):
            # Words after `#` are names too, in BuildKit as here: a comment is a line of its own.
            name = self._expand(instruction, word, scope)
            set_here = default is not None or name in self._arguments or name in self._outer.variables
            # Engines differ in the name of a word with quotes: it counts if that name has a value.
            if not name or "$" in word or (name != word and set_here):
                raise self._dockerfile.error(
                    instruction, f"{one_line(word or instruction.rest)}: expected letters, digits and '_'"
                )
            if name in self._arguments:
                scope.variables[name] = self._arguments[name]
            elif default is not None:
                scope.variables[name] = self._try(default, scope)
            elif name in self._outer.variables:
                scope.variables[name] = self._outer.variables[name]

    def _read_paths(self, instruction: Instruction, index: int, scope: _Scope) -> int:
        """Read a ``COPY`` or an ``ADD``; return the sources that the stage has by it."""
        origin = instruction.flag("from")
        if origin:
            if "$" in origin:
                raise self._dockerfile.error(
                    instruction, f"--from={one_line(origin)}: BuildKit takes no variable; name a stage FROM it"
                )
            return self._depend(instruction, origin, index, number(instruction))
        if instruction.rest.startswith("[") and '"' in instruction.rest and json_array(instruction.rest) is None:
            raise self._dockerfile.error(instruction, f"{one_line(instruction.rest)}: expected a JSON array of strings")
        had = 0
        for word in instruction.words[:-1]:
            if (heredoc := HEREDOC.fullmatch(word)) and heredoc["name"]:
                continue
            if instruction.keyword == "ADD" and re.match("https?://", word):
                self._fetch(instruction, self._try(word, scope) or word, scope)
                continue
            path = self._expand(instruction, word, scope)
            if instruction.keyword == "COPY" or not instruction_values.REMOTE.match(path):
                had |= self._add(instruction, path, pattern=any(character in path for character in "*?["))
            else:
                self._fetch(instruction, path, scope)
        return had

    def _read_mount(self, instruction: Instruction, options: Mapping[str, str], index: int, scope: _Scope) -> int:
        """Read a mount of a ``RUN``; return the sources that it has."""
        origin = options.get("from")
        if origin:
            if "$" in origin:
                raise self._dockerfile.error(
                    instruction, f"from={one_line(origin)}: BuildKit takes no variable; name a stage FROM it"
                )
            return self._depend(instruction, origin, index, None)
        if self._expand(instruction, options.get("type", "bind"), scope).lower() == "bind":
            path = self._expand(instruction, options.get("source", ""), scope)
            return self._add(instruction, path, pattern=False)
        return 0

    def _add(self, instruction: Instruction, path: str, *, pattern: bool) -> int:
        if re.search("[\\\\\0\ud800-\udfff]", path):
            raise self._dockerfile.error(instruction, f"{one_line(path)}: a path with a backslash, or that no file has")
        self._sources.append(Source(within(path), pattern, instruction))
        return 1 << len(self._sources) - 1

    def _fetch(self, instruction: Instruction, address: str, scope: _Scope) -> None:
        """Note the address of an ``ADD``, unless a checksum or a whole commit fixes the content."""
        checksum = self._try(instruction.flag("checksum") or "", scope) or ""
        if not _CHECKSUM.fullmatch(checksum) and not _AT_COMMIT.fullmatch(address):
            self._outside.add(address)

    def _depend(self, instruction: Instruction, name: str, index: int, number: int | None) -> int:
        """Visit a stage of which an instruction takes files; return the sources that it has."""
        place = self._find(name.lower(), len(self._stages)) if number is None else number
        if place is None:
            self._check_reference(instruction, name)
            self._outside.add(name)
            return 0
        if not 0 <= place < index:
            raise self._dockerfile.error(instruction, f"the stage '{one_line(name)}' must stand before this one")
        self._visit(place)
        return self._had[place]

    def _expand(self, instruction: Instruction, word: str, scope: _Scope) -> str:
        try:
            return self._counted(word, scope)
        except ExpansionError as error:
            raise self._dockerfile.error(instruction, one_line(str(error))) from None

    def _try(self, word: str, scope: _Scope) -> str | None:
        """Return a word's value; None if only the build knows it."""
        try:
            return self._counted(word, scope)
        except ExpansionError:
            return None

    def _counted(self, word: str, scope: _Scope) -> str:
        value = expand(word, scope.variables, escape=self._dockerfile.escape, complete=scope.complete)
        self._expanded += len(value)
        if self._expanded > MOST_EXPANDED:
            raise too_long(self._dockerfile)
        return value


def too_long(dockerfile: Dockerfile) -> DockerfileError:
    """Return the error of a Dockerfile whose words have more than :data:`MOST_EXPANDED` characters."""
    return DockerfileError(f"{dockerfile.path}: its variables have more than {MOST_EXPANDED >> 20} MiB of text")


def within(path: str) -> str:
    """Return a path relative to the context. BuildKit takes `..` above the context for the context itself."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _places(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def number(instruction: Instruction) -> int | None:
    """Return the place of the stage that an instruction's ``--from`` numbers; None if it has a name or none."""
    origin = instruction.flag("from") or ""
    return int(origin) if re.fullmatch("[+-]?[0-9]+", origin) else None


def _run(instruction: Instruction, had: int, scope: _Scope, sources: Sequence[Source]) -> Run:
    """Return a RUN with the sources whose bits ``had`` has."""
    command = "".join([instruction.rest, *instruction.heredocs])
    own = tuple(sources[place] for place in _places(had))
    return Run(command, own, scope.variables, scope.complete)


def _names(instruction: Instruction) -> set[str]:
    return {name for text in (*instruction.flags, instruction.rest) for name in NAMES.findall(text)}
