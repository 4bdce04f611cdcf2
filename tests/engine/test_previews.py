"""What a plain preview says of every stack that there is, for every kind of change: exactly what differs, and why."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from containers.dockerfile.context import Folder
from containers.registry.reference import Reference
from stacks import lock, plan
from stacks.config.stack_file import ROOT, read_stack, stack_names
from stacks.config.values import is_commit
from stacks.identity.content import CheckoutContents
from stacks.identity.git_sources import own_commit
from stacks.plan import Plan
from stacks.spec import CONTEXT, Outside
from tests.helpers import pulumi_cli
from tests.helpers.program_copy import copy_folders

QUICK = ("base-cu121", "nccl-cu121", "efa", "aks-megatron", "universal-cu132")
"""A stack of each flavor but `local`: each change of each stack by itself is slow together."""
VALUES: dict[str, dict[str, Any]] = {
    "local": {"torch": {"version": "2.14.0"}},
    "base": {"maxJobs": "3"},
    "nccl": {"maxJobs": "3"},
    "efa": {"maxJobs": "3"},
    "megatron": {"launcher": {"version": "24.09"}},
    "universal": {"maxJobs": "3"},
}
"""A key of each flavor with another value, which becomes an argument of some image."""
_INSPECTS = 'props.get("exceptions") is not None'
_HAS_TAG = "client.Repository(name, login).visible_digest() == image.digest"
STACKS = [
    name
    for name, values in ((name, read_stack(name)) for name in stack_names())
    if values["flavor"] != "runners" and len(values.get("platforms", ())) <= 1
]
"""Stacks with images. An index of several platforms needs what its parts were pushed as: see test_platforms.py.

They are told by their YAML, as each worker of pytest collects them, and a plan of every stack takes most of a second."""


class Project:
    """A copy of this project's stacks, with a state of its own, in which nothing is built."""

    def __init__(self, root: Path, stack: str) -> None:
        self.root, self.stack = root, stack
        copy_folders(root, "cli", "components", "containers", "dockerfiles", "scaler", "stacks")
        for file in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(ROOT / file, root / file)
        pulumi_cli.write_pip(root)
        tag = root / "components/supply_chain/checked_tag.py"
        text = tag.read_text()
        assert _HAS_TAG in text
        assert _INSPECTS in text
        tag.write_text(
            text.replace(_HAS_TAG, "True").replace(_INSPECTS, "False")
        )  # nothing is pushed that could be inspected and tagged
        lock.path(root).unlink(missing_ok=True)
        (root / ".slipway").mkdir()
        (root / ".slipway/venv").symlink_to(sys.prefix)
        plugin = root / "plugins/pulumi-resource-docker"
        plugin.parent.mkdir()
        plugin.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m tests.fakes.docker_provider "$@"\n'
        )
        plugin.chmod(0o755)
        self.environment = pulumi_cli.environment(
            root / ".slipway", PATH=f"{plugin.parent}{os.pathsep}{os.environ['PATH']}"
        )
        self.pulumi("stack", "init", stack)

    def pulumi(self, *words: str) -> str:
        """Run Pulumi, which must succeed; return what it printed."""
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.root, env=self.environment, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return pulumi_cli.plain(done.stdout)

    def plan(self) -> Plan:
        return plan.make(self.stack, root=self.root)

    def configure(self, **values: Any) -> None:
        """Give keys of the stack other values."""
        path = self.root / f"stacks/Pulumi.{self.stack}.yaml"
        lines = path.read_text().splitlines()
        for key, value in values.items():
            lines = [line for line in lines if not line.startswith(f"  slipway:{key}:")]
            lines.insert(lines.index("config:") + 1, f"  slipway:{key}: {json.dumps(value)}")
        path.write_text("\n".join(lines) + "\n")

    def lock(self, digit: str) -> None:
        """Lock the parents that others publish to a digest, and the tags of sources to a commit."""
        images, config = self.plan().images, self.plan().config
        parents = [parent for image in images for parent in image.spec.parents.values()]
        names = {str(Reference.of(config.pulled(it.reference)).in_full) for it in parents if isinstance(it, Outside)}
        sources = [source for image in images for source in image.content.sources if not own_commit(source)]
        commits = {
            lock.source_key(source, config.mirrors): f"{ref if is_commit(ref) else ''}{digit * 40}"[:40]
            for source, ref in ((source, source.partition(" ")[2]) for source in sources)
        }
        lock.write(self.root, dict.fromkeys(names, f"sha256:{digit * 64}") | commits)


def whole_folder(project: Project) -> Path:
    """Return the first folder of several files that a build of the stack reads whole; where it can, an image's own."""
    context = project.root / CONTEXT
    for image in project.plan().images:
        folder = Path(image.spec.dockerfile).parent
        paths = sorted(map(Path, image.content.files), key=lambda path: folder not in path.parents)
        folders = Counter(path.parent for path in paths)
        probes = {folder: context / folder / "probe.txt" for folder, files in folders.items() if files > 1}
        for probe in probes.values():
            probe.touch()
        read = CheckoutContents(lambda _: Folder(context)).of(image.spec).files
        for probe in probes.values():
            probe.unlink()
        if whole := [folder for folder in probes if f"{folder}/probe.txt" in read]:
            return context / whole[0]
    raise AssertionError(f"no build of {project.stack} reads a folder of several files whole")


def removable(project: Project) -> Path:
    return min(path for path in whole_folder(project).iterdir() if path.is_file())


def argument(project: Project) -> None:
    project.configure(**VALUES[project.plan().config.flavor])


def added(project: Project) -> None:
    (whole_folder(project) / "new.txt").write_text("new\n")


def changed(project: Project) -> None:
    file = removable(project)
    file.write_text(file.read_text() + "\n")


def removed(project: Project) -> None:
    removable(project).unlink()


def instruction(project: Project) -> None:
    file = project.root / CONTEXT / project.plan().images[0].spec.dockerfile
    file.write_text(re.sub("^FROM .*$", r"\g<0>\nENV NEW=new", file.read_text(), flags=re.MULTILINE))


def unread(project: Project) -> None:
    """Change what no build reads: comments and spaces of all Dockerfiles, READMEs, and a new folder."""
    for file in {project.root / CONTEXT / image.spec.dockerfile for image in project.plan().images}:
        text = re.sub("^(RUN|ARG) ", r"# a third\n\1  ", file.read_text(), flags=re.MULTILINE)
        file.write_text(f"# another comment\n\n{text}")
        (file.parent / "README.md").write_text("new\n")
    (project.root / CONTEXT / "new").mkdir()
    (project.root / CONTEXT / "new/new.txt").write_text("new\n")


def moved(project: Project) -> None:
    project.lock("b")


def tag(project: Project) -> None:
    project.configure(tagSuffix="other")


Change = Callable[[Project], None]
KINDS: tuple[Change, ...] = (argument, added, changed, removed, instruction, moved, tag)


def single_values(contents: Mapping[str, Any], *way: str) -> dict[tuple[str, ...], Any]:
    """Return the single values of what an image is made of, by the keys that lead to each."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in contents.items():
        found |= single_values(value, *way, key) if isinstance(value, Mapping) else {(*way, key): value}
    return found


def differences(before: Plan, after: Plan) -> dict[str, list[tuple[tuple[str, ...], Any, Any]]]:
    """Return, by image, what differs in what it is made of."""
    old, new = ({image.spec.name: single_values(image.contents) for image in each.images} for each in (before, after))
    ways = {name: [(way, old[name].get(way), new[name].get(way)) for way in {**new[name], **old[name]}] for name in old}
    changed = {name: [one for one in those if one[1] != one[2]] for name, those in ways.items()}
    return {name: those for name, those in changed.items() if those}


def lines(ways: dict[str, list[tuple[tuple[str, ...], Any, Any]]]) -> Iterator[str]:
    """Yield a pattern for each single value that differs, as Pulumi prints it."""
    for those in ways.values():
        for way, old, new in those:
            if way[0] == "files":
                yield from (rf"- {old}  {re.escape(way[1])}" for _ in [old] if old)
                yield from (rf"\+ {new}  {re.escape(way[1])}" for _ in [new] if new)
                continue
            mark = "+" if old is None else "-" if new is None else "~"
            values = " => ".join(json.dumps(value) for value in (old, new) if value is not None)
            yield rf"{re.escape(mark)} {re.escape(way[-1])} *: {re.escape(values)}"


def at_once(project: Project) -> None:
    """Change all that can be changed together."""
    for kind in KINDS:
        if kind is not removed:
            kind(project)


def cases() -> Iterator[ParameterSet]:
    """Yield each stack with each change by itself, and one of each flavor with all at once."""
    for stack in STACKS:
        yield pytest.param(stack, KINDS, id=stack, marks=() if stack == "local" else pytest.mark.slow)
    for stack in QUICK:
        yield pytest.param(stack, (at_once,), id=f"{stack}-at_once")


def test_quick_stacks_cover_every_flavor() -> None:
    resolved = {name: plan.resolve(name) for name in stack_names()}
    assert [name for name, (config, specs) in resolved.items() if specs and len(config.platforms) <= 1] == STACKS
    assert {resolved[name][0].flavor for name in STACKS} == {"local", *(resolved[name][0].flavor for name in QUICK)}


@pytest.mark.parametrize(("stack", "kinds"), list(cases()))
def test_preview_of_changes_lists_each_image_and_reason(stack: str, kinds: tuple[Change, ...], tmp_path: Path) -> None:
    project = Project(tmp_path / "project", stack)
    project.lock("a")
    project.pulumi("up", "-s", stack, "--yes", "--skip-preview")
    before, kept = project.plan(), tmp_path / "kept"
    for name in ("stacks", "dockerfiles"):
        shutil.copytree(project.root / name, kept / name)
    for kind in kinds:
        kind(project)
        after = project.plan()
        expected = differences(before, after)
        assert expected, kind.__name__
        output = project.pulumi("preview", "-s", stack)
        updated = re.findall(r"slipway:image:\S+ +(\S+) +update \[diff: ([^\]]+)\]", output)
        assert {name: set(re.findall(r"\w+", keys)) for name, keys in updated} == {
            name: {way[0] for way, _, _ in those} for name, those in expected.items()
        }, f"{kind.__name__}: {output}"
        for pattern in lines(expected):
            assert re.search(pattern, output), f"{kind.__name__}: {pattern}\n{output}"
        for image in after.images:  # a child says which of its parents it follows
            follows = {
                key
                for key, parent in image.siblings.items()
                if "tag" in dict.fromkeys(w[0] for w, _, _ in expected.get(parent, []))
            }
            parents = {way[1] for way, _, _ in expected.get(image.spec.name, []) if way[0] == "parents"}
            assert parents == follows, f"{kind.__name__}: {image.spec.name}"
        for name in ("stacks", "dockerfiles"):
            shutil.rmtree(project.root / name)
            shutil.copytree(kept / name, project.root / name)
    unread(project)
    assert re.search(r"Resources:\n\s+\d+ unchanged", project.pulumi("preview", "-s", stack))


def test_preview_of_three_changes_prints_these_lines(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "local")
    project.configure(torch={"version": "2.14.1"})
    project.lock("a")
    project.pulumi("up", "-s", "local", "--yes", "--skip-preview")
    project.configure(torch={"version": "2.14.0"})
    (project.root / "dockerfiles/torch/python/new.txt").write_text("new\n")
    project.lock("b")
    outputs = project.pulumi("preview", "-s", "local").partition("\nOutputs:\n")[2].partition("\nResources:\n")[0]
    for pattern, text in (
        (r"x[0-9a-f]{8}-", "x-"),
        (r'"\S*debian:', '"debian:'),
        (r"\d+ files", "N files"),
        (r" +", " "),
    ):
        outputs = re.sub(pattern, text, outputs)
    assert [line.strip() for line in outputs.splitlines() if re.match(r" ?[-+~] ", line)] == [
        "~ images : {",
        "~ torch: {",
        '~ tag: "x-local-torch2.14.1-vision0.29.2-audio2.11.0-zstd4" => "x-local-torch2.14.0-vision0.29.2-audio2.11.0-zstd4"',
        "~ plan : {",
        "~ torch: {",
        "~ args : {",
        f'~ BASE_IMAGE : "debian:bookworm-slim@sha256:{"a" * 64}" => "debian:bookworm-slim@sha256:{"b" * 64}"',
        '~ TORCH_VERSION : "2.14.1" => "2.14.0"',
        "~ labels : {",
        '~ LABEL_VERSION : "local-torch2.14.1-vision0.29.2-audio2.11.0" => "local-torch2.14.0-vision0.29.2-audio2.11.0"',
        '~ tag : "x-local-torch2.14.1-vision0.29.2-audio2.11.0-zstd4" => "x-local-torch2.14.0-vision0.29.2-audio2.11.0-zstd4"',
        "~ planFiles : {",
        "~ torch:",
        "- N files",
        "+ N files",
        "+ 7e1e987f96f1 torch/python/new.txt",
    ]


def test_preview_of_unknown_version_warns(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "nccl-cu132")
    project.configure(nccl="2.32.3-1")
    output = project.pulumi("preview", "-s", "nccl-cu132")
    assert "warning: slipway:nccl: NVIDIA's apt archive may not have 2.32.3-1+cuda13.2;" in output


def test_plain_up_unchanged_lists_no_file(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "local")
    up = ("up", "-s", "local", "--yes", "--skip-preview")
    project.pulumi(*up)
    (image,) = project.plan().images
    output = project.pulumi(*up)
    assert f'torch: "{len(image.content.listing)} files\\n\\n\\n..."' in output
    assert not [path for path in image.content.listing if path in output]


def test_plain_preview_of_older_state_has_no_update(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "local")
    deployment = project.root / "components/deployment.py"
    text = deployment.read_text()
    today = 'files[image.spec.name] = file_list(contents[image.spec.name].pop("files"))'
    assert today in text
    older = text.replace(today, 'files[image.spec.dockerfile] = contents[image.spec.name].pop("files")')
    deployment.write_text(older)
    project.pulumi("up", "-s", "local", "--yes", "--skip-preview")
    deployment.write_text(text)
    assert re.search(r"Resources:\n\s+7 unchanged", project.pulumi("preview", "-s", "local"))
