"""Each stage of a Dockerfile declares the arguments that its own steps read, once, and no other; and starts as root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from stacks.config.stack_file import ROOT
from stacks.plan import MIRROR_ARGS
from stacks.spec import CONTEXT

FOLDER = ROOT / CONTEXT
DOCKERFILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/Dockerfile"))
NAME = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
OUTSIDE = re.compile(r"\$\{\w+\}")
MOUNT = re.compile(r"--mount=type=bind,(\S+)")
PLACE = re.compile(r"/(?:srv|mnt|media)[\w./-]*")
SIBLING = re.compile(r"""\$\(dirname "\$0"\)/([\w./-]*)|\$here/([\w./-]*)""")

ELSEWHERE = {
    # Of pip's indexes, torch's is for the stages that take torch from one.
    ("torch/Dockerfile", "python"): {"TORCH_INDEX_URL"},
    ("wheels/Dockerfile", "builder"): {"TORCH_INDEX_URL"},
    # A recipe says where a component's source is, and how it is built, which another stage does.
    ("wheels/Dockerfile", "fetched"): {"ARCH_LIST", "DEEPSPEED_OPS", "TRITON_VERSION", "VARIANT"},
    # What stays behind is not upgraded.
    ("universal/Dockerfile", "micromamba"): {"REFRESH"},
}
"""What scripts name that a stage starts, in a part that it does not use."""

MIRRORS = {*MIRROR_ARGS} - {"TORCH_INDEX_URL"}
"""What a Dockerfile takes as soon as a script of its steps reads it: what it does not take, a stack sets in vain."""

NONCES = {"CLEAN"}
"""What nothing needs to read: another value than before is enough for a step not to come from the cache."""

Places = dict[str, list[Path]]
"""What lies at a path of a build container: the files or folders of the context that are mounted or copied there."""


def code(text: str) -> str:
    """Return a script or a Dockerfile without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@dataclass
class Stage:
    """A stage: its instructions but the first, and the stage or image that it stands on."""

    parent: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def copied(self) -> list[Path]:
        """Return what a stage takes from the context."""
        words = [
            word for kind, rest in self.steps if kind == "COPY" and "--from" not in rest for word in rest.split()[:-1]
        ]
        return [FOLDER / re.sub(r"\$\{\w+\}", "", word) for word in words]


def stages(dockerfile: str) -> dict[str, Stage]:
    """Return the stages by name, the last one by the name that it has or ``""``."""
    by_name: dict[str, Stage] = {}
    for line in code((FOLDER / dockerfile).read_text()).replace("\\\n", " ").splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "FROM":
            parent, _, name = rest.partition(" AS ")
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


def mounts(by_name: dict[str, Stage], step: str) -> Places:
    """Return what a step mounts of the context, directly or by way of a stage that only collects files."""
    places: Places = {}
    for options in MOUNT.findall(step):
        given = dict(option.partition("=")[::2] for option in options.split(","))
        source = given.get("source", "").strip("/")
        if "from" not in given:
            places[given["target"]] = [FOLDER / source]
        elif (stage := by_name.get(given["from"])) and stage.parent == "scratch":
            places[given["target"]] = stage.copied()
    return places


def files(places: Places, place: str) -> Iterator[Path]:
    """Yield the files of the context that a path in the container names; of a folder all."""
    for target, tops in places.items():
        if place != target and not place.startswith(f"{target}/"):
            continue
        rest = PurePosixPath(place).relative_to(target)
        for top in tops:
            # COPY takes a file by its name, and what is in a folder without the folder's name.
            path = top / rest if top.is_dir() else top.parent / rest
            if path.is_file():
                yield path
            elif path.is_dir():
                yield from (each for each in path.rglob("*") if each.is_file())


@cache
def text(path: Path) -> str:
    return code(path.read_text())


def read(by_name: dict[str, Stage], step: str) -> set[str]:
    """Return the names in a step and in all the scripts that it starts."""
    places, visited, names = mounts(by_name, step), set[Path](), set(NAME.findall(MOUNT.sub("", step)))
    waiting = [file for place in PLACE.findall(MOUNT.sub("", step)) for file in files(places, place.rstrip("/"))]
    while waiting:
        if (path := waiting.pop()) in visited:
            continue
        visited.add(path)
        names |= set(NAME.findall(text(path)))
        waiting += [file for place in PLACE.findall(text(path)) for file in files(places, place.rstrip("/"))]
        for near in SIBLING.findall(text(path)):
            sibling = path.parent / "".join(near)
            waiting += [sibling] if sibling.is_file() else [each for each in sibling.rglob("*") if each.is_file()]
    return names


def declared(steps: list[tuple[str, str]]) -> list[str]:
    return [rest.partition("=")[0] for kind, rest in steps if kind == "ARG"]


def used(by_name: dict[str, Stage], kind: str, rest: str) -> set[str]:
    return read(by_name, rest) if kind == "RUN" else set(NAME.findall(rest)) if kind != "ARG" else set()


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_step_reads_only_arguments_of_its_stage(dockerfile: str) -> None:
    by_name = stages(dockerfile)
    every = {name for stage in by_name.values() for name in declared(stage.steps)} | MIRRORS
    for name, stage in by_name.items():
        have = {argument for older in lineage(by_name, name) for argument in declared(older.steps)}
        # What is set for all of an image, or by the image outside on which a stage stands, needs no declaration.
        have |= {
            rest.partition("=")[0]
            for older in (*lineage(by_name, name), stage)
            for kind, rest in older.steps
            if kind == "ENV"
        }
        for kind, rest in stage.steps:
            if kind == "ARG":
                have.add(rest.partition("=")[0])
            missing = used(by_name, kind, rest) & every - have - ELSEWHERE.get((dockerfile, name), set())
            assert not missing, f"{dockerfile}: stage {name}: {kind} {rest[:80]} reads {sorted(missing)}"


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_stage_declares_no_unused_or_inherited_argument(dockerfile: str) -> None:
    by_name = stages(dockerfile)
    for name, stage in by_name.items():
        have = {argument for older in lineage(by_name, name) for argument in declared(older.steps)}
        again = have & set(declared(stage.steps))
        assert not again, f"{dockerfile}: stage {name} has {sorted(again)} from the stage that it stands on"
        below = [each for other, each in by_name.items() if stage in (each, *lineage(by_name, other))]
        for argument in declared(stage.steps):
            readers = [1 for each in below for kind, rest in each.steps if argument in used(by_name, kind, rest)]
            assert readers or argument in NONCES, f"{dockerfile}: stage {name}: nothing reads {argument}"


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_stage_on_outside_image_runs_as_root_after_nonce(dockerfile: str) -> None:
    """Whoever the image runs as; and a step that the cache has would be the parent of steps that it has."""
    by_name = stages(dockerfile)
    nonces = NONCES & {name for stage in by_name.values() for name in declared(stage.steps)}
    for name, stage in by_name.items():
        line = [*lineage(by_name, name), stage]
        steps = [step for each in line for step in each.steps]
        kinds = [kind for kind, _ in steps]
        if not OUTSIDE.fullmatch(line[0].parent) or "RUN" not in kinds:
            continue
        before = steps[: kinds.index("RUN")]
        users = [rest for kind, rest in before if kind == "USER"]
        assert users[-1:] == ["0:0"], f"{dockerfile}: stage {name} runs as {users[-1:] or 'whom its parent names'}"
        assert nonces <= {*declared(before)}, f"{dockerfile}: stage {name} lacks {sorted(nonces)} before its first step"
