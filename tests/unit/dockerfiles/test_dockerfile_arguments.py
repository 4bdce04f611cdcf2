"""Each stage of a Dockerfile declares the arguments that its own steps read, once, and no other; and starts as root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from stacks.config.stack_file import ROOT
from stacks.plan import MIRROR_ARGS
from stacks.spec import CHECKED_ARG, CONTEXT
from tests.helpers.every import every

FOLDER = ROOT / CONTEXT
DOCKERFILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/Dockerfile"))
CHECKED = re.compile(rf"^ARG {CHECKED_ARG}=(\S+)$", re.MULTILINE)
"""The stage whose image the checks try; a stack gives them the finished one."""
NAME = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
OUTSIDE = re.compile(r"\$\{\w+\}")
MOUNT = re.compile(r"--mount=type=bind,(\S+)")
PLACE = re.compile(r"/(?:srv|mnt|media)[\w./-]*")
SIBLING = re.compile(r"""\$\(dirname "\$0"\)/([\w./-]*)|\$here/([\w./-]*)""")

ELSEWHERE = {
    # Of pip's indexes, torch's is for the stages that take torch from one.
    ("torch/Dockerfile", "python"): {"TORCH_INDEX_URL"},
    ("wheels/Dockerfile", "builder"): {"TORCH_INDEX_URL"},
    # What stays behind is not upgraded.
    ("universal/Dockerfile", "micromamba"): {"REFRESH"},
}
"""What scripts name that a stage starts, in a part that it does not use."""

AGAIN = {("efa/Dockerfile", "ofi-nccl"): {"OFI_NCCL_TAG"}}
"""What a stage declares although a stage below it does: it decides what is fetched of git. Each stage begins with the ENV
of the outside image, which would win over that of the stage below (moby/buildkit v0.26, dockerfile2llb/convert.go,
`dispatchStages`), so that nobody knew before the build."""

MIRRORS = {*MIRROR_ARGS} - {"TORCH_INDEX_URL"}
"""What a Dockerfile takes as soon as a script of its steps reads it: what it does not take, a stack sets in vain."""

NONCES = {"CLEAN"}
"""What nothing needs to read: another value than before is enough for a step not to come from the cache."""

Places = dict[str, list[Path]]
"""What lies at a path of a container or a stage: the files or folders of the context that are mounted or copied there."""


def code(text: str) -> str:
    """Return a script or a Dockerfile without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@dataclass
class Stage:
    """A stage: its instructions but the first, and the stage or image that it stands on."""

    parent: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def copied(self) -> Places:
        """Return what a stage takes from the context, by the folder that it goes to, ``""`` for the root."""
        places: Places = {}
        for kind, rest in self.steps:
            if kind == "COPY" and "--from" not in rest:
                *sources, folder = rest.split()
                paths = [FOLDER / re.sub(r"\$\{\w+\}", "", source) for source in sources]
                places.setdefault(folder.rstrip("/"), []).extend(paths)
        return places


def stages(dockerfile: str) -> dict[str, Stage]:
    """Return the stages by name, the last one by the name that it has or ``""``."""
    by_name: dict[str, Stage] = {}
    for line in code((FOLDER / dockerfile).read_text()).replace("\\\n", " ").splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "FROM":
            parent, _, name = re.sub(r"^--platform=\S+ ", "", rest).partition(" AS ")
            stage = by_name[name] = Stage(parent)
        elif by_name and kind:
            stage.steps.append((kind, rest))
    return by_name


def lineage(by_name: dict[str, Stage], name: str) -> list[Stage]:
    """Return a stage's ancestors, the oldest first: none where the parent's name holds an argument.

    A stage inherits its parent's arguments: https://docs.docker.com/build/building/variables/#scoping.
    """
    parent = by_name[name].parent
    return [*lineage(by_name, parent), by_name[parent]] if parent in by_name else []


def environment(by_name: dict[str, Stage], name: str, dockerfile: str) -> set[str]:
    """Return the variables that a stage has from the stages or the image of this Dockerfile that it stands on."""
    parent = by_name[name].parent
    if parent == f"${{{CHECKED_ARG}}}":
        parent = CHECKED.findall((FOLDER / dockerfile).read_text())[0]
    older = [*lineage(by_name, parent), by_name[parent]] if parent in by_name else []
    steps = [step for stage in (*older, by_name[name]) for step in stage.steps]
    return {rest.partition("=")[0] for kind, rest in steps if kind == "ENV"}


def mounts(by_name: dict[str, Stage], step: str) -> Places:
    """Return what a step mounts of the context, directly or by way of a stage that only collects files."""
    places: Places = {}
    for options in MOUNT.findall(step):
        given = dict(option.partition("=")[::2] for option in options.split(","))
        source = given.get("source", "").strip("/")
        if "from" not in given:
            places[given["target"]] = [FOLDER / source]
        elif given["from"] in by_name:
            line = [*lineage(by_name, given["from"]), by_name[given["from"]]]
            for stage in line if line[0].parent == "scratch" else []:
                for folder, paths in stage.copied().items():
                    places.setdefault(given["target"] + folder, []).extend(paths)
    return places


def files(places: Places, place: str) -> Iterator[Path]:
    """Yield the files of the context that a path in the container names; of a folder all."""
    for target, tops in places.items():
        if place != target and not place.startswith(f"{target}/"):
            continue
        rest = PurePosixPath(place).relative_to(target)
        for top in tops:
            # COPY takes a file by its name, and what is in a folder without the folder's name.
            path = top / rest if top.is_dir() else top if str(rest) in {".", top.name} else top / rest
            if path.is_file():
                yield path
            elif path.is_dir():
                yield from (each for each in path.rglob("*") if each.is_file())


@cache
def text(path: Path) -> str:
    return code(path.read_text())


def started(places: Places, step: str) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the files that a step starts or reads, directly or by way of others, each with those that it names itself."""
    visited: set[Path] = set()
    waiting = [file for place in PLACE.findall(step) for file in files(places, place.rstrip("/"))]
    while waiting:
        if (path := waiting.pop()) in visited:
            continue
        visited.add(path)
        named = [file for place in PLACE.findall(text(path)) for file in files(places, place.rstrip("/"))]
        for near in SIBLING.findall(text(path)):
            sibling = path.parent / "".join(near)
            named += [sibling] if sibling.is_file() else [each for each in sibling.rglob("*") if each.is_file()]
        yield path, named
        waiting += named


def read(by_name: dict[str, Stage], step: str) -> set[str]:
    """Return the names in a step and in all the scripts that it starts."""
    command = MOUNT.sub("", step)
    scripts = started(mounts(by_name, step), command)
    return {*NAME.findall(command), *(name for path, _ in scripts for name in NAME.findall(text(path)))}


def declared(steps: list[tuple[str, str]]) -> list[str]:
    return [rest.partition("=")[0] for kind, rest in steps if kind == "ARG"]


def used(by_name: dict[str, Stage], kind: str, rest: str) -> set[str]:
    return read(by_name, rest) if kind == "RUN" else set(NAME.findall(rest)) if kind != "ARG" else set()


@every("dockerfile", DOCKERFILES)
def test_step_reads_only_arguments_of_its_stage(dockerfile: str) -> None:
    by_name = stages(dockerfile)
    every = {name for stage in by_name.values() for name in declared(stage.steps)} | MIRRORS
    for name, stage in by_name.items():
        have = {argument for older in lineage(by_name, name) for argument in declared(older.steps)}
        # What is set for all of an image, or by the image outside on which a stage stands, needs no declaration.
        have |= environment(by_name, name, dockerfile)
        for kind, rest in stage.steps:
            if kind == "ARG":
                have.add(rest.partition("=")[0])
            missing = used(by_name, kind, rest) & every - have - ELSEWHERE.get((dockerfile, name), set())
            assert not missing, f"{dockerfile}: stage {name}: {kind} {rest[:80]} reads {sorted(missing)}"


@every("dockerfile", DOCKERFILES)
def test_stage_declares_no_unused_or_inherited_argument(dockerfile: str) -> None:
    by_name = stages(dockerfile)
    for name, stage in by_name.items():
        have = {argument for older in lineage(by_name, name) for argument in declared(older.steps)}
        again = have & set(declared(stage.steps))
        assert again == AGAIN.get((dockerfile, name), set()), (
            f"{dockerfile}: stage {name} has {sorted(again)} from the stage that it stands on"
        )
        below = [each for other, each in by_name.items() if stage in (each, *lineage(by_name, other))]
        for argument in declared(stage.steps):
            readers = [1 for each in below for kind, rest in each.steps if argument in used(by_name, kind, rest)]
            assert readers or argument in NONCES, f"{dockerfile}: stage {name}: nothing reads {argument}"


@every("dockerfile", DOCKERFILES)
def test_stage_on_outside_image_runs_as_root_after_nonce(dockerfile: str) -> None:
    """Whoever the image runs as; and a step that the cache has would be the parent of steps that it has."""
    by_name = stages(dockerfile)
    nonces = NONCES & {name for stage in by_name.values() for name in declared(stage.steps)}
    for name, stage in by_name.items():
        line = [*lineage(by_name, name), stage]
        steps = [step for each in line for step in each.steps]
        kinds = [kind for kind, _ in steps]
        # Checks run as the user of the image that they try.
        if not OUTSIDE.fullmatch(line[0].parent) or CHECKED_ARG in line[0].parent or "RUN" not in kinds:
            continue
        before = steps[: kinds.index("RUN")]
        users = [rest for kind, rest in before if kind == "USER"]
        assert users[-1:] == ["0:0"], (
            f"{dockerfile}: stage {name} runs as {users[-1] if users else 'whom its parent names'}: write USER 0:0 above its "
            "first RUN"
        )
        assert nonces <= {*declared(before)}, f"{dockerfile}: stage {name} lacks {sorted(nonces)} before its first step"


@every("dockerfile", DOCKERFILES)
def test_step_has_each_script_that_it_starts(dockerfile: str) -> None:
    """A stage that copies some of the shared scripts has those that they start too."""
    by_name = stages(dockerfile)
    steps = [rest for stage in by_name.values() for kind, rest in stage.steps if kind == "RUN"]
    for step in steps:
        places, command = mounts(by_name, step), MOUNT.sub("", step)
        present = {file for place in places for file in files(places, place)}
        tops = tuple(f"/{PurePosixPath(place).parts[1]}/" for place in places)
        scripts = list(started(places, command))
        assert not {file for _, named in scripts for file in named} - present, step
        for code_of in (command, *(text(path) for path, _ in scripts)):
            named = [place.rstrip("./") for place in PLACE.findall(code_of) if place.startswith(tops)]
            absent = [place for place in named if place + "/" not in tops and not [*files(places, place)]]
            assert not absent, f"{dockerfile}: {command} lacks {absent}"
