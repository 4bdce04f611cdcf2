"""What an image is made of: what its build can read, and nothing else.

Those are the instructions of the reached stages, the files in their COPYs and mounts, their declared build arguments,
and its parents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from containers.dockerfile import context, instructions, stages
from containers.dockerfile.context import Context, Folder
from containers.dockerfile.context_files import ContextFiles
from containers.dockerfile.instructions import Dockerfile
from containers.dockerfile.stages import Run
from containers.errors import SlipwayError, one_line
from stacks.identity import git_sources, pip_packages
from stacks.identity.file_texts import CONTEXTS
from stacks.identity.prologue import Prologue
from stacks.spec import (
    CHECKED_ARG,
    CONTEXT,
    USER_ARG,
    Elsewhere,
    ImageSpec,
    Outside,
    Parent,
    Sibling,
    context_path,
    label_args,
    needed_for,
)

_FOLDER_DIGITS: Final = 16
_PARENT: Final = "parent:"
"""What stands before an argument's name where a stage is built on that parent."""

CHECKS: Final = "checks"
"""The stage that tries an image's promises on it. It is a target of its own and no part of the image."""


@dataclass(frozen=True)
class Content:
    """What one image is made of, without its parents' content.

    Attributes:
        spec: the image.
        labels: those of its labels that the build reads, by today's rule.
        dockerfile: the Dockerfile with the reached stages alone.
        files: the SHA-256 of each file and link that these read, in hexadecimal, by its path in the context.
        arguments: the build arguments that they declare, with a default; None if no stage sets one.
        sources: the commit of each git tag or commit that they fetch, by ``owner/name ref``; None for a tag or a
            short commit that the lock lacks.
        prologues: the lines that the build has before a file's own, by the file's path.
        outside: the images and addresses that instructions name themselves, without a digest, checksum or commit.
        images: the arguments with the name of an image below them, or of one to copy from.
        user: whom the image runs as; empty for its parent's user, None where only the build knows.
        checks: the reads of the build of the image's checks, besides the image itself, which is one of its parents;
            None without checks.
        others: the contents of the images of another stack, parents before children, by the argument of the parent
            that is one of them.
    """

    spec: ImageSpec
    labels: Mapping[str, str]
    dockerfile: str
    files: Mapping[str, str]
    arguments: Mapping[str, str | None]
    sources: Mapping[str, str | None] = field(default_factory=dict)
    prologues: Mapping[str, Prologue] = field(default_factory=dict)
    outside: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    user: str | None = ""
    checks: Content | None = None
    others: Mapping[str, Mapping[str, Content]] = field(default_factory=dict)

    def read(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return those of the build arguments that the build reads."""
        return {name: value for name, value in values.items() if name in self.arguments}

    @property
    def runs_programs(self) -> bool:
        """Whether the build, or that of the checks, runs programs of the platform."""
        runs = re.search(r"^RUN\b", self.dockerfile, re.MULTILINE) is not None
        return runs or (self.checks is not None and self.checks.runs_programs)

    @property
    def args(self) -> dict[str, str]:
        """The spec's build arguments that the build reads."""
        return self.read(self.spec.args)

    @property
    def locked_sources(self) -> dict[str, str]:
        """Those of the sources whose commits are the lock's."""
        return git_sources.locked(self.sources)

    @property
    def label_args(self) -> dict[str, str]:
        """The build arguments of the labels."""
        return label_args(self.labels)

    @property
    def parents(self) -> dict[str, Parent]:
        """The parents that the build reads, by build argument."""
        return {name: parent for name, parent in self.spec.parents.items() if name in self.arguments}

    @property
    def siblings(self) -> dict[str, str]:
        """The names of the parents that the same stack builds, by build argument."""
        return {name: parent.image for name, parent in self.parents.items() if isinstance(parent, Sibling)}

    @property
    def facts(self) -> dict[str, Any]:
        """What decides the image, as JSON: files first, then arguments. Those that compare two images read it."""
        return {
            "files": self.listing,
            "args": self.args,
            "parents": {
                name: parent.model_dump(mode="json")
                # Of another stack's parent, its images decide.
                | {image: content.facts for image, content in self.others.get(name, {}).items()}
                for name, parent in self.parents.items()
            },
            "platform": self.spec.platform,
            "labels": dict(self.labels),
            "suffix": self.spec.suffix.model_dump(mode="json"),
        }

    @cached_property
    def folder(self) -> str:
        """The folder that a build is given, relative to the checkout: equal contents have one, and no others.

        With another mirror, equal packages have other addresses: the folder differs, and the image does not.
        """
        elsewhere = [[path, lines] for path, (lines, identity) in self.prologues.items() if lines != identity]
        whole = json.dumps([self.dockerfile, dict(self.files), *elsewhere]).encode()
        return f"{CONTEXTS}/{hashlib.sha256(whole).hexdigest()[:_FOLDER_DIGITS]}"

    @cached_property
    def listing(self) -> dict[str, str]:
        """The files, and the Dockerfile of the reached stages under its own path."""
        return {self.spec.dockerfile: context.digest(self.dockerfile.encode(errors="surrogateescape")), **self.files}


class _Reached(NamedTuple):
    """The reached stages as a Dockerfile and what these read, see :class:`Content`; and the stages' names."""

    dockerfile: str
    files: Mapping[str, str]
    arguments: Mapping[str, str | None]
    sources: Mapping[str, str | None]
    prologues: Mapping[str, Prologue]
    outside: frozenset[str]
    images: frozenset[str]
    user: str | None
    stages: frozenset[str]


def contexts(root: Path) -> Callable[[str], Folder]:
    """Return what gives the build context in a folder of the repository ``root``."""
    return lambda folder: Folder(context_path(folder, root))


class CheckoutContents:
    """The contents of the images of one checkout. Each context and each Dockerfile is read once.

    ``contexts`` returns the build context in a folder of the checkout.
    """

    def __init__(self, contexts: Callable[[str], Context]) -> None:
        self._context = cache(contexts)
        self._dockerfiles: dict[tuple[str, str], Dockerfile] = {}
        self._reached: dict[tuple[object, ...], _Reached] = {}
        self._texts: dict[tuple[str, str], str] = {}

    def of(self, spec: ImageSpec, *, checks: bool = True) -> Content:
        """Return what an image is made of; without ``checks``, it has none of the image's checks.

        Raises SlipwayError: there is no such Dockerfile, its build's reads are not known beforehand, or the context
        lacks one of them.
        """
        content = self._of(spec, spec.labels)
        return replace(content, checks=self._checks(spec, spec.labels)) if checks else content

    def _checks(self, spec: ImageSpec, labels: Mapping[str, str]) -> Content | None:
        """Return what the checks of an image are made of; None if its Dockerfile has none.

        Several products may have one Dockerfile. The checks are those of the image with the stage that they try by
        default.

        Raises SlipwayError: a product's Dockerfile does not say which stage its checks try; or see :meth:`of`.
        """
        dockerfile = self._dockerfile(spec)
        if not stages.is_named(dockerfile, CHECKS):
            return None
        if spec.product:
            tried = stages.default(dockerfile, CHECKED_ARG)
            if tried is not None and not stages.is_named(dockerfile, tried):
                raise instructions.DockerfileError(
                    f"{spec.path}: {CHECKED_ARG} is '{one_line(tried)}' by default, which names no "
                    "stage; name the one that the checks are for"
                )
            if tried is not None and tried.lower() not in self._reach_of(spec, labels).stages:
                return None
        parents = {**spec.parents, CHECKED_ARG: Sibling(image=spec.name)}
        checks = self._of(spec.model_copy(update={"target": CHECKS, "parents": parents}), {})
        # A stage that is only named so checks no finished image.
        return checks if CHECKED_ARG in checks.arguments else None

    def _of(self, spec: ImageSpec, labels: Mapping[str, str]) -> Content:
        reached = self._reach_of(spec, labels)
        read = {
            name: value
            for name, value in labels.items()
            if label_args({name: value}).keys() <= reached.arguments.keys()
        }
        return Content(
            spec,
            read,
            reached.dockerfile,
            reached.files,
            reached.arguments,
            reached.sources,
            reached.prologues,
            reached.outside,
            reached.images,
            reached.user,
        )

    def _reach_of(self, spec: ImageSpec, labels: Mapping[str, str]) -> _Reached:
        # A parent's own name has no effect on which stages are reached. No stage's name has a colon.
        given = {**spec.args, **label_args(labels), **{name: _PARENT + name.lower() for name in spec.parents}}
        packages = spec.packages.files if spec.packages else {}
        pins = frozenset({**spec.commits, **packages}.items())
        variables = tuple(spec.environment.items())
        key = (spec.path, spec.target, spec.platform, frozenset(given.items()), pins, variables)
        if key not in self._reached:  # stacks share sources and wheels
            self._reached[key] = self._reach(spec, given)
        return self._reached[key]

    def _reach(self, spec: ImageSpec, given: Mapping[str, str]) -> _Reached:
        in_context, dockerfile = self._context(spec.context), self._dockerfile(spec)
        packages = spec.packages.files if spec.packages else {}
        reach = stages.reach(dockerfile, spec.target, given, spec.platform)
        folder = ContextFiles(dockerfile, in_context, in_context.paths(spec.dockerfile))
        files = folder.of(reach.sources)
        digests = {file: in_context.digest(file) for file in sorted(files)}
        arguments = {**reach.arguments, **{name: value for name, value in given.items() if name in reach.arguments}}
        # A script may see the value of ENV, which is stronger than ARG.
        arguments |= {
            name: None
            for name, values in reach.environment.items()
            if name in arguments and values != {arguments[name]}
        }
        sources = self._sources(spec, digests, arguments, ((run, folder.of(run.sources)) for run in reach.runs))
        commits = git_sources.locked(sources)
        prologues = {git_sources.SCRIPT: git_sources.prologue(commits)} if commits else {}
        if packages and pip_packages.SCRIPT in digests:
            prologues[pip_packages.SCRIPT] = pip_packages.prologue(packages)
        for file, prologue in prologues.items():
            digests[file] = context.digest(prologue.identity.encode() + in_context.read(file), executable=True)
        named = {_PARENT + name.lower(): name for name in spec.parents}
        outside = frozenset(name for name in reach.outside - {"scratch", *named} if "@sha256:" not in name)
        return _Reached(
            reach.render(given) + _environment(spec, dockerfile.escape),
            digests,
            reach.arguments,
            sources,
            prologues,
            outside,
            frozenset(named[name] for name in reach.outside & named.keys()),
            reach.user,
            reach.stages,
        )

    def _sources(
        self,
        spec: ImageSpec,
        files: Iterable[str],
        arguments: Mapping[str, str | None],
        runs: Iterable[tuple[Run, Set[str]]],
    ) -> dict[str, str | None]:
        """Return what files and steps fetch of git, each with its commit: its own, the lock's, or None.

        ``runs`` has the steps of the build, each with the files that it can run. It is asked only if something fetches.
        """
        if git_sources.SCRIPT not in files:
            return {}
        link = self._context(spec.context).link
        scripts = {file: self._text(spec.context, file) for file in files if link(file) is None}
        steps = [*runs]
        names = {*git_sources.refs(scripts, arguments, _unsure(scripts, arguments, steps))}
        for run, had in steps:
            if git_sources.SCRIPT in had:
                values = {name: run.value(name) for name in arguments}
                names |= {*git_sources.refs({"": git_sources.lines(run.command)}, values)}
        return {name: git_sources.own_commit(name) or spec.commits.get(name) for name in sorted(names)}

    def _text(self, folder: str, path: str) -> str:
        if (folder, path) not in self._texts:
            self._texts[folder, path] = self._context(folder).read(path).decode(errors="replace")
        return self._texts[folder, path]

    def _dockerfile(self, spec: ImageSpec) -> Dockerfile:
        key = spec.context, spec.dockerfile
        if key not in self._dockerfiles:
            self._dockerfiles[key] = instructions.parse(self._context(spec.context).read(spec.dockerfile), spec.path)
        return self._dockerfiles[key]


_OPEN: Final = re.compile(r"\A(?!\s*\[).*[$*?\[`]", re.DOTALL)
"""A command of a shell in which something may stand for the name of a script."""


def _unsure(
    scripts: Mapping[str, str], arguments: Mapping[str, str | None], runs: Iterable[tuple[Run, Set[str]]]
) -> dict[str, set[str]]:
    """Return by script the arguments that it may see with another value.

    An argument is of a stage. In another one the name may be that of an unknown ``ENV`` of the parent image. A script
    belongs to the steps that name it, directly or through another script. A step of a shell may also run it without its
    name, by a variable, a pattern or a command's output. A step that runs it by another name, from a COPY, is missed.
    """
    fetching = [(run, {file: scripts[file] for file in files & scripts.keys()}) for run, files in runs]
    fetching = [(run, had) for run, had in fetching if git_sources.SCRIPT in had]
    named = [git_sources.named(run.command, had) for run, had in fetching]
    unsure = {}
    for file in scripts:
        running = [
            run
            for (run, had), names in zip(fetching, named, strict=True)
            if file in had and (file in names or _OPEN.search(run.command))
        ]
        unsure[file] = {name for name, value in arguments.items() for run in running if run.value(name) != value}
    return unsure


def of_stack(specs: Sequence[ImageSpec], contents: CheckoutContents, *, checks: bool = True) -> dict[str, Content]:
    """Return what each image of a stack is made of, by name; see :meth:`CheckoutContents.of`.

    Raises SlipwayError: see :meth:`CheckoutContents.of`; one line for each mistake.
    """
    mistakes: list[str] = []
    result: dict[str, Content] = {}
    known = _other_stacks(specs, contents)
    for spec in specs:
        try:
            others = {
                argument: {needed.name: known[parent.stack][needed.name] for needed in _needed(parent)}
                for argument, parent in spec.parents.items()
                if isinstance(parent, Elsewhere)
            }
            of = contents.of(_as_parents_user(spec, result, others), checks=checks)
            result[spec.name] = replace(of, others=others)
            _check_own(result[spec.name])
        except SlipwayError as error:
            mistakes.append(str(error))
    if mistakes:
        raise SlipwayError("\n".join(dict.fromkeys(mistakes)))
    return result


def _other_stacks(specs: Sequence[ImageSpec], contents: CheckoutContents) -> dict[str, dict[str, Content]]:
    """Return what the parents of other stacks are made of, by stack: once, however many images stand on them."""
    needed: dict[str, dict[str, ImageSpec]] = {}
    for parent in (parent for spec in specs for parent in spec.parents.values()):
        if isinstance(parent, Elsewhere):
            needed.setdefault(parent.stack, {}).update({spec.name: spec for spec in _needed(parent)})
    return {stack: of_stack([*of.values()], contents, checks=False) for stack, of in needed.items()}


def _needed(parent: Elsewhere) -> list[ImageSpec]:
    """Return a parent of another stack and what it is made of, parents before children."""
    return needed_for(parent.image, parent.specs)


def _environment(spec: ImageSpec, escape: str) -> str:
    """Return the instruction at the end of the last stage with the variables that a stack adds; empty without any."""
    special = re.compile(rf'[$"{re.escape(escape)}]')
    words = [
        f'{name}="{special.sub(lambda match: escape + match[0], value)}"' for name, value in spec.environment.items()
    ]
    return f"ENV {' '.join(words)}\n" if words else ""


def _check_own(content: Content) -> None:
    """Check that the Dockerfile of a user's own image reads the names in its entry.

    Raises SlipwayError: it does not stand on its parent, or does not declare an argument.
    """
    spec = content.spec
    if not spec.own:
        return
    parent = spec.parents["BASE_IMAGE"]
    if "BASE_IMAGE" not in content.images:
        on = parent.image if isinstance(parent, Sibling) else parent.reference
        raise SlipwayError(
            f"{spec.path}: {spec.name} is on {on}, and its last stage does not read that image: write `ARG BASE_IMAGE` "
            "before the first FROM, and `FROM ${BASE_IMAGE}`"
        )
    unread = sorted(spec.args.keys() - content.arguments.keys())
    if unread and spec.context != CONTEXT:
        raise SlipwayError(
            f"{spec.path}: {spec.name}: args: no stage of the build declares {one_line(', '.join(unread))}: write "
            f"`ARG {one_line(unread[0])}` there, or leave it out"
        )


def _as_parents_user(
    spec: ImageSpec, contents: Mapping[str, Content], others: Mapping[str, Mapping[str, Content]]
) -> ImageSpec:
    """Return a spec with its parent's user, if its Dockerfile asks for it.

    ``contents`` has its parents of the stack, and ``others`` those of other stacks.

    An image from outside whose user no Dockerfile here sets runs as root, as images of distributions do.

    Raises SlipwayError: only the build knows whom the parent runs as.
    """
    if USER_ARG not in spec.args:
        return spec
    user: str | None = ""
    parent = spec.parents.get("BASE_IMAGE")
    while not user and parent is not None and not isinstance(parent, Outside):
        contents = others["BASE_IMAGE"] if isinstance(parent, Elsewhere) else contents
        if parent.image not in contents:  # it has a mistake of its own
            break
        content = contents[parent.image]
        others = content.others
        if content.user is None:
            raise SlipwayError(
                f"{content.spec.path}: USER: only the build knows its value, and {spec.name} runs as the same user: "
                "write a number, or an argument with a default"
            )
        user, parent = content.user, content.spec.parents.get("BASE_IMAGE")
    return spec.model_copy(update={"args": {**spec.args, USER_ARG: user or "0:0"}})
