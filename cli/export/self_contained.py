"""``slipway export dockerfile``: an image and all that it is built on in the stack, as one Dockerfile with its files.

Each image's context becomes a stage of its own, ``FROM scratch`` with the files that its build reads, and its
instructions take them from there. Stages are named ``<image>.<stage>``, and arguments have their values as defaults.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cli.export import written_folder
from cli.export.bake import copy_contexts
from cli.export.output import replacing
from containers.dockerfile.expansion import expand
from containers.dockerfile.instruction_values import REMOTE
from containers.dockerfile.instructions import HEREDOC, Instruction, declarations, parse, split_words
from containers.errors import SlipwayError, one_line
from stacks.identity import staged_context
from stacks.plan import Plan, PlannedImage

FILES: Final = "files"
"""The folder beside the Dockerfile that has a folder for each image's files."""


def write(planned: Plan, name: str, output: Path, root: Path, *, force: bool) -> list[str]:
    """Write the Dockerfile of an image and the files that it copies to a folder; return the command that builds it.

    Raises:
        SlipwayError: there is no such image, the folder is not an earlier export or was edited since, or one file
            cannot say it.
    """
    image = planned.image(name)
    chain = _chain(planned, image)
    written = text(chain)
    with replacing(output, force=force, replaceable=written_folder.is_as_written) as new:
        new.mkdir()
        copy_contexts({_prefix(each): each.content for each in chain}, new / FILES, root)
        for each in chain:
            for own in (staged_context.DOCKERFILE, f"{staged_context.DOCKERFILE}.dockerignore"):
                (new / FILES / _prefix(each) / own).unlink()
            if not any((new / FILES / _prefix(each)).iterdir()):
                shutil.rmtree(new / FILES / _prefix(each))
        (new / "Dockerfile").write_text(written, encoding="utf-8", errors="surrogateescape")
        written_folder.record(new)
    return [f"docker build --platform {image.spec.platform} --tag {image.reference} {shlex.quote(str(output))}"]


def text(chain: Sequence[PlannedImage]) -> str:
    """Return one Dockerfile of images, each before those built on it."""
    final: dict[str, str] = {}
    parts = []
    for image in chain:
        converter = _Converter(image, final)
        parts.append(f"\n# {image.spec.name}: {image.spec.path}\n" + "".join(converter.lines()))
        final[image.spec.name] = converter.last
    head = (
        f"# {chain[-1].reference} with all that it is built on, written by `slipway export dockerfile`.\n"
        f"# docker build --platform {chain[-1].spec.platform} .\n"
    )
    return head + "".join(parts)


def _chain(planned: Plan, image: PlannedImage) -> list[PlannedImage]:
    """Return an image after the images of the stack that it is built on."""
    images = {each.spec.name: each for each in planned.images}
    needed: set[str] = set()
    pending = [image.spec.name]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += images[name].siblings.values()
    return [each for each in planned.images if each.spec.name in needed]


def _prefix(image: PlannedImage) -> str:
    """Return what the names of an image's stages begin with."""
    return re.sub(r"[^a-z0-9_.-]", "-", image.spec.name.lower())


@dataclass
class _Converter:
    """Turns one image's Dockerfile into stages of a greater one. ``final`` has the last stages of its parents."""

    image: PlannedImage
    final: Mapping[str, str]
    last: str = ""

    def __post_init__(self) -> None:
        content = self.image.content
        self._prefix = _prefix(self.image)
        self._file = parse(content.dockerfile.encode(errors="surrogateescape"), content.spec.dockerfile)
        if self._file.directives:
            directive = one_line(self._file.directives[0])
            raise SlipwayError(
                f"{content.spec.dockerfile}: one Dockerfile has one directive '{directive}' for all of its images; "
                "`slipway export bake` keeps each image's"
            )
        parents = {argument: self.final[name] for argument, name in content.siblings.items()}
        self._given = {**self.image.args, **content.label_args, **parents}
        self._globals: dict[str, str | None] = {}
        self._stages: list[tuple[str, str]] = []  # the name in the image's own file, and the one here

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        if self.image.content.files:
            yield f"FROM scratch AS {self._prefix}.context\nCOPY {FILES}/{self._prefix}/ /\n"
        for instruction in self._file.instructions:
            match instruction.keyword:
                case "FROM":
                    yield self._from(instruction).render()
                case "ARG" if not self._stages:
                    self._declare(instruction)
                case "ARG":
                    yield f"ARG {' '.join(map(self._argument, self._words(instruction)))}\n"
                case "COPY" | "ADD":
                    yield self._copy(instruction).render()
                case "RUN":
                    flags = tuple(
                        self._mount(flag) if flag.startswith("--mount=") else flag for flag in instruction.flags
                    )
                    yield replace(instruction, flags=flags).render()
                case _:
                    yield instruction.render()

    def _words(self, instruction: Instruction) -> Sequence[str]:
        return split_words(instruction.rest, self._file.escape)

    def _declare(self, instruction: Instruction) -> None:
        """Note a global argument. Another image may have another one of its name, so none stays global."""
        for name, default in declarations(instruction, self._file.escape):
            value = self._given.get(name)
            if value is None and default is not None:
                value = expand(default, self._globals, escape=self._file.escape, complete=True)
            self._globals[name] = value

    def _from(self, instruction: Instruction) -> Instruction:
        words = instruction.words
        base = expand(words[0], self._globals, escape=self._file.escape, complete=True)
        own = words[2].lower() if len(words) > 1 else ""
        self.last = f"{self._prefix}.{own or len(self._stages)}"
        flags = tuple(
            expand(flag, {**self._automatic, **self._globals}, escape=self._file.escape, complete=True)
            for flag in instruction.flags
        )
        parent = self._stage(base)
        self._stages.append((own, self.last))
        return replace(instruction, flags=flags, rest=f"{parent} AS {self.last}")

    @property
    def _automatic(self) -> dict[str, str | None]:
        """The platforms, which stay variables."""
        return {name: f"${name}" for name in ("BUILDPLATFORM", "TARGETPLATFORM")}

    def _stage(self, name: str) -> str:
        """Return a stage's name in this file; an image's reference stays."""
        if re.fullmatch("[0-9]+", name) and int(name) < len(self._stages):
            return self._stages[int(name)][1]
        return dict(self._stages).get(name.lower(), name)

    def _argument(self, word: str) -> str:
        name, equals, _ = word.partition("=")
        if name in self._given:
            return f"{name}={_quoted(self._given[name], self._file.path)}"
        if equals or self._globals.get(name) is None:
            return word
        return f"{name}={_quoted(self._globals[name] or '', self._file.path)}"

    def _copy(self, instruction: Instruction) -> Instruction:
        origin = instruction.flag("from")
        if origin:
            flags = tuple(
                f"--from={self._stage(origin)}" if flag.startswith("--from=") else flag for flag in instruction.flags
            )
            return replace(instruction, flags=flags)
        sources = [word for word in instruction.words[:-1] if not HEREDOC.fullmatch(word)]
        local = [word for word in sources if instruction.keyword == "COPY" or not REMOTE.match(word)]
        if not local:
            return instruction
        if instruction.keyword == "ADD" or len(local) < len(instruction.words) - 1:
            raise self._file.error(
                instruction,
                f"{one_line(instruction.rest)}: only a build from its own context can say this; "
                "`slipway export bake` keeps each image's context",
            )
        return replace(instruction, flags=tuple(sorted([*instruction.flags, f"--from={self._prefix}.context"])))

    def _mount(self, flag: str) -> str:
        fields = next(csv.reader([flag.removeprefix("--mount=")], strict=True), [])
        options = {name.lower(): value for name, _, value in (option.partition("=") for option in fields)}
        if origin := options.get("from"):
            fields = [
                f"from={self._stage(origin)}" if option.lower().startswith("from=") else option for option in fields
            ]
        elif options.get("type", "bind") == "bind" and self.image.content.files:
            fields = [*fields, f"from={self._prefix}.context"]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(fields)
        return f"--mount={line.getvalue()}"


def _quoted(value: str, where: str) -> str:
    """Return a value as an argument's default, of which nothing is replaced."""
    if re.search(r"[\r\n]", value):
        raise SlipwayError(f"{where}: '{one_line(value)}' has a line break, which no default of an argument can have")
    if "'" not in value:
        return f"'{value}'" if not re.fullmatch(r"[\w./:@+-]*", value) else value
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'
