"""The workflows' own lines, run: a push, a fork's pull request, a branch, a shallow clone, a build, a night."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stacks.config.stack_file import ROOT
from tests.engine.project import FLAVOR
from tests.fakes.github.actions import Actions, Event, Run
from tests.fakes.github.rest_api import GitHub, serve
from tests.helpers import registry_api
from tests.images.engine import base_image, pushed, remove
from tests.images.test_start import PYTHON
from tests.images.test_warm import LEAVES
from tests.workflows.repository import Repository

FAILING = 'ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN ["/none"]\n'
NOTHING_TO_DO = {"affected stacks": "success", "publish": "skipped", "branch published": "success"}

PLATFORMS = ["linux/amd64", "linux/arm64"]

TWO_PUBLISHED = {
    "affected stacks": "success",
    "two / build / caller": "success",
    "two / build / native": "skipped",
    "two / build / up": "success",
    "two / attest": "skipped",
    "branch published": "success",
}
"""The jobs of a publication of the stack `two` alone."""


@dataclass
class World:
    """A repository on GitHub, with a backend of its own; ``first`` is the run of its first push, which publishes all."""

    folder: Path
    repository: Repository
    first: Run
    event: Event

    def actions(self, api: str = "") -> Actions:
        variables = {"PULUMI_BACKEND_URL": (self.folder / "backend").as_uri()}
        actions = Actions(self.folder / "actions", self.repository.remote, variables, api)
        actions.secrets = {"PULUMI_CONFIG_PASSPHRASE": "of the tests"}
        return actions

    def registry(self, path: str) -> Any:
        address = re.search(r'"address": "([^"]+)"', (self.repository.root / "stacks/Pulumi.one.yaml").read_text())
        assert address
        return json.loads(registry_api.fetch(f"{address[1]}/{self.repository.path}/{path}"))

    def tags(self) -> list[str]:
        """Return all that was ever pushed."""
        images = ("one/link0", "one/link1", "two/link0")
        return sorted(f"{image}:{tag}" for image in images for tag in self.registry(f"{image}/tags/list")["tags"])

    def published_state(self, stack: str) -> Any:
        """Return what the branch ``published`` says of a stack."""
        return json.loads(self.repository.published(f"stacks/{stack}.json"))

    def upto(self) -> str:
        """Return the commit up to which all is published."""
        return self.repository.published("commit").strip()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("published")
    for name in ("backend", "actions"):
        (folder / name).mkdir()
    repository = Repository(folder)
    world = World(folder, repository, Run([], folder), repository.push("first"))
    world.first = world.actions().run("publish.yml", world.event)
    return world


@pytest.fixture
def world(published: World, tmp_path: Path) -> World:
    """What is as it was after the first push, and may be changed."""
    folder = tmp_path / "world"
    for name in ("backend", "remote.git", "work"):
        shutil.copytree(published.folder / name, folder / name, symlinks=True)
    (folder / "actions").mkdir()
    repository = Repository.again(folder, published.repository.path)
    return World(folder, repository, published.first, published.event)


@pytest.fixture
def github() -> Iterator[GitHub]:
    with serve() as served:
        yield served


def test_push_publishes_each_stack_on_its_own_runners(published: World) -> None:
    first = published.first
    assert first.results == {
        "affected stacks": "success", "one / build / caller": "success", "one / build / native": "skipped", "one / build / up": "success", "one / attest": "skipped", "two / build / caller": "success", "two / build / native": "skipped", "two / build / up": "success", "two / attest": "skipped", "branch published": "success",
    }, first.log  # fmt: skip
    assert first.job("one / build / up").runs_on == ["ubuntu-24.04"]
    assert first.job("two / build / up").runs_on == ["self-hosted", "builders"]
    assert published.upto() == published.event.sha
    for stack, images in {"one": {"link0", "link1"}, "two": {"link0"}}.items():
        outputs = published.published_state(stack)["outputs"]
        assert set(outputs["images"]) == set(outputs["plan"]) == images
        for name, image in outputs["images"].items():
            assert image["tag"] in published.registry(f"{stack}/{name}/tags/list")["tags"]
            assert f"`{image['ref']}`<br>`{image['tag']}`" in first.job(f"{stack} / build / up").summary
            assert published.event.sha[:7] in image["tag"]


def test_public_state_has_no_credentials_or_paths(published: World) -> None:
    for stack in ("one", "two"):
        text = published.repository.published(f"stacks/{stack}.json")
        for hidden in ("of the tests", 'registry"', "secret", "encrypt", "password", str(published.folder), "skipPush"):
            assert hidden not in text


def test_push_without_image_changes_publishes_nothing(world: World) -> None:
    world.repository.write("README.md", "about\n")
    event = world.repository.push()
    run = world.actions().run("publish.yml", event)
    assert run.results == NOTHING_TO_DO, run.log
    assert world.upto() == event.sha


@pytest.mark.slow
def test_stack_with_new_repository_is_published_there(world: World) -> None:
    yaml = world.repository.root / "stacks/Pulumi.two.yaml"
    yaml.write_text(yaml.read_text().replace(f"{world.repository.path}/two", f"{world.repository.path}/new"))
    run = world.actions().run("publish.yml", world.repository.push())
    assert run.results == TWO_PUBLISHED, run.log
    assert "two: not published at " in run.job("affected stacks").log
    assert f"{world.repository.path}/new/link0@" in world.published_state("two")["outputs"]["images"]["link0"]["ref"]


def test_stack_without_registry_is_never_published(world: World) -> None:
    world.repository.write("stacks/Pulumi.three.yaml", "config:\n  slipway:flavor: chain\n  slipway:tagSuffix: three\n")
    run = world.actions().run("publish.yml", world.repository.push())
    assert run.results == NOTHING_TO_DO, run.log
    assert "three: not published, because of slipway:registry or slipway:publish" in run.job("affected stacks").summary


def test_failed_stack_is_published_by_next_push(world: World) -> None:
    world.repository.write("dockerfiles/link1/Dockerfile", FAILING)
    world.repository.configure("two", word="three")
    event = world.repository.push("one cannot be built, two is another")
    failed = world.actions().run("publish.yml", event)
    assert failed.results == {
        "affected stacks": "success", "one / build / caller": "success", "one / build / native": "skipped", "one / build / up": "failure", "one / attest": "skipped", "two / build / caller": "success", "two / build / native": "skipped", "two / build / up": "success", "two / attest": "skipped", "branch published": "success",
    }, failed.log  # fmt: skip
    assert world.upto() == world.event.sha
    assert world.published_state("one")["commit"] == world.event.sha
    assert world.published_state("two")["commit"] == event.sha
    assert world.published_state("two")["outputs"]["plan"]["link0"]["args"]["WORD"] == "three"
    mended = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY link1/file.txt /mended.txt\n"
    world.repository.write("dockerfiles/link1/Dockerfile", mended)
    event = world.repository.push("one can be built")
    run = world.actions().run("publish.yml", event)
    assert run.job("one / build / up").result == run.job("two / build / up").result == "success", run.log
    assert "unchanged" in run.job("two / build / up").log
    assert world.upto() == event.sha


def test_missing_file_ends_run_before_any_build(world: World) -> None:
    before = world.tags()
    world.repository.write("dockerfiles/link1/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY link1/none /\n")
    world.repository.configure("two", word="three")
    run = world.actions().run("publish.yml", world.repository.push("one cannot be planned, two is another"))
    assert run.job("affected stacks").result == "failure", run.log
    assert set(run.results.values()) == {"failure", "skipped"}
    line = run.job("affected stacks").log.splitlines()[-1]
    assert line.endswith(
        "dockerfiles/link1/Dockerfile:3: COPY: link1/none: the context has no such file; see the ignore file too"
    )
    assert world.tags() == before
    assert world.upto() == world.event.sha


@pytest.mark.slow
def test_reverted_change_is_reverted_in_publication(world: World) -> None:
    before = world.published_state("two")["outputs"]["images"]["link0"]
    kept = (world.repository.root / "dockerfiles/link1/Dockerfile").read_text()
    world.repository.write("dockerfiles/link1/Dockerfile", FAILING)
    world.repository.configure("two", word="three", runsOn=["self-hosted", "builders"])
    failed = world.actions().run("publish.yml", world.repository.push("one cannot be built, two is another"))
    assert failed.results == {
        "affected stacks": "success", "one / build / caller": "success", "one / build / native": "skipped", "one / build / up": "failure", "one / attest": "skipped", "two / build / caller": "success", "two / build / native": "skipped", "two / build / up": "success", "two / attest": "skipped", "branch published": "success",
    }, failed.log  # fmt: skip
    assert world.published_state("two")["outputs"]["images"]["link0"]["digest"] != before["digest"]
    world.repository.write("dockerfiles/link1/Dockerfile", kept)
    world.repository.configure("two", word="two", runsOn=["self-hosted", "builders"])
    event = world.repository.push("both are as they were")
    run = world.actions().run("publish.yml", event)
    assert run.job("two / build / up").result == "success", run.log
    assert "two: published with other tags: link0" in run.job("affected stacks").summary
    assert world.published_state("two")["commit"] == world.upto() == event.sha
    assert world.published_state("two")["outputs"]["plan"]["link0"]["args"]["WORD"] == "two"
    again = world.actions().run("publish.yml", event)
    assert again.results == NOTHING_TO_DO, again.log


@pytest.mark.slow
def test_run_of_older_commit_keeps_later_publication(world: World) -> None:
    world.repository.configure("two", word="three")
    older = world.repository.push("older")
    world.repository.configure("two", word="four")
    later = world.repository.push("later")
    run = world.actions().run("publish.yml", later)
    assert run.results == TWO_PUBLISHED, run.log
    run = world.actions().run("build.yml", older, inputs={"folder": "link0", "build-args": "WORD=three"})
    assert run.results == {
        "resolve": "success",
        "link0 / build / caller": "success",
        "link0 / build / native": "skipped",
        "link0 / build / up": "failure",
        "link0 / attest": "skipped",
    }, run.log
    assert (
        f"stack two: the last update was from {later.sha[:7]}, a later commit than {older.sha[:7]}; "
        "start the workflow `publish` on the current main"
    ) in run.job("link0 / build / up").log.splitlines()
    assert world.actions().run("publish.yml", older).results["affected stacks"] == "success"
    assert world.published_state("two")["outputs"]["plan"]["link0"]["args"]["WORD"] == "four"
    assert world.upto() == later.sha


@pytest.mark.slow
def test_removed_image_is_previewed_and_deleted(world: World) -> None:
    world.repository.configure("one")
    request = world.repository.pull_request()
    run = world.actions().run("preview.yml", request)
    assert run.results == {"affected stacks": "success", "one": "success"}, run.log
    report = (run.artifacts / "report-one/one.txt").read_text()
    assert re.search(r"^link1: removed$", report, re.MULTILINE), report
    assert re.search(r"- .*link1 +delete", report), report
    assert "link0 " not in report
    world.repository.git("merge", "-q", "--ff-only", request.sha)
    event = world.repository.push()
    run = world.actions().run("publish.yml", event)
    assert run.results == {
        "affected stacks": "success",
        "one / build / caller": "success",
        "one / build / native": "skipped",
        "one / build / up": "success",
        "one / attest": "skipped",
        "branch published": "success",
    }, run.log
    assert set(world.published_state("one")["outputs"]["images"]) == {"link0"}
    assert world.upto() == event.sha


def test_preview_of_fork_builds_changes_and_pushes_nothing(world: World, github: GitHub) -> None:
    before = world.tags()
    world.repository.write("dockerfiles/link1/file.txt", "of the fork\n")
    event = world.repository.pull_request()
    actions = world.actions()
    actions.secrets = {}
    actions.variables = {}
    run = actions.run("preview.yml", event)
    assert run.results == {"affected stacks": "success", "one": "success"}, run.log
    assert run.job("one").runs_on == "ubuntu-24.04"
    report = (run.artifacts / "report-one/one.txt").read_text()
    assert re.search(r"- [0-9a-f]{12}  link1/file\.txt\n +\+ [0-9a-f]{12}  link1/file\.txt", report), report
    assert re.search(r"link1 +update \[diff: ~files,tag\]", report), report
    assert re.search(r"^link1: changed$", report, re.MULTILINE), report
    assert re.search(r"~  files link1/file\.txt +[0-9a-f]{12} +[0-9a-f]{12}$", report, re.MULTILINE), report
    assert re.search(r"size +[\d.]+ k?B compressed, as published", report), report
    assert "### `link1: changed`" in run.job("one").summary
    assert "link0 " not in report
    assert not re.search(r"Image\W+link0\b", run.job("one").log), run.job("one").log
    assert world.tags() == before

    github.open(7, "somebody", "feature/x", event.payload["pull_request"]["head"]["sha"])
    of = {
        "id": 1, "conclusion": "success", "event": "pull_request", "html_url": "https://github.com/acme/slipway/runs/1",
        "head_branch": "feature/x", "head_sha": event.payload["pull_request"]["head"]["sha"],
        "head_repository": {"full_name": "somebody/slipway", "owner": {"login": "somebody"}},
    }  # fmt: skip
    ended = Event("workflow_run", "refs/heads/main", world.event.sha, {"workflow_run": of})
    for result in ("commented", "comment updated"):
        commented = world.actions(github.address).run("comment.yml", ended, artifacts=run.artifacts)
        assert commented.results == {"comment": "success"}, commented.log
        assert f"pull request 7: {result}" in commented.log
    (comment,) = github.comments[7]
    assert report.strip() in comment["body"]


@contextmanager
def to_warm(world: World, dockerfile: str, name: str) -> Iterator[Event]:
    """Have a script for a stack whose image, with Python, is published; yield the commit of both."""
    base = pushed(dockerfile, name)
    world.repository.configure("one", length=1, base=base.tag, warm={"script": "warm/leaves.py", "size": "4 MB"})
    world.repository.write("warm/leaves.py", LEAVES)
    event = world.repository.push("an image with python3")
    try:
        assert world.actions().run("publish.yml", event).job("branch published").result == "success"
        yield event
    finally:
        remove(base)


def warm_tag(world: World, before: Iterable[str]) -> str:
    """Return the one tag that is new: that of the published image with a warm layer."""
    (tag,) = set(world.tags()) - set(before)
    image = world.published_state("one")["outputs"]["images"]["link0"]
    assert re.fullmatch(rf"one/link0:{re.escape(image['tag'])}-warm-[0-9a-f]{{8}}", tag), tag
    return tag


def warmed(world: World, event: Event, *, pods: bool = False) -> Run:
    """Return a run of ``warm.yml`` on a commit of main."""
    inputs = {"stack": "one", "image": "link0", "runner": '["self-hosted", "gpu"]', "pods": pods}
    return world.actions().run("warm.yml", Event("workflow_dispatch", event.ref, event.sha), inputs=inputs)


def with_driver(world: World, device: str) -> None:
    """Let the repository's code take another file for that of NVIDIA's driver."""
    code = ROOT / "cli/startup/measurement.py"
    text = code.read_text()
    assert text.count('Path("/dev/nvidiactl")') == 1
    world.repository.write(str(code.relative_to(ROOT)), text.replace("/dev/nvidiactl", device))


def engine_with_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in of the docker client on PATH that gives no GPUs; return the file with what it was asked for."""
    client, asked = shutil.which("docker"), folder / "asked"
    program = folder / "programs/docker"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/bash
words=()
while [ $# -gt 0 ]; do
  if [ "$1" = --gpus ]; then
    echo "$2" >> {asked}
    shift
  else
    words+=("$1")
  fi
  shift
done
exec {client} "${{words[@]}}"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return asked


def test_warm_on_a_machine_without_gpu_is_one_line(world: World) -> None:
    with_driver(world, "/dev/no-such-device")
    up = warmed(world, world.repository.push()).job("one / build / up")
    assert up.result == "failure"
    (line,) = (line for line in up.log.splitlines() if "stack one: " in line)
    assert "this machine has no driver of NVIDIA's GPUs, and a warm layer is for those that it is made on: " in line


def test_warm_without_a_script_is_one_line(world: World) -> None:
    with_driver(world, "/dev/null")
    run = warmed(world, world.repository.push())
    up = run.job("one / build / up")
    assert (up.runs_on, up.result) == (["self-hosted", "gpu"], "failure"), run.log
    assert "stack one: slipway:warm is not set: {script: warm/steps.py} names what to run" in up.log, up.log
    assert run.job("one / attest").result == "skipped"


@pytest.mark.slow
def test_warm_pushes_the_published_image_with_caches(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = engine_with_gpus(tmp_path, monkeypatch)
    with_driver(world, "/dev/null")
    with to_warm(world, PYTHON.format(base=base_image()), "warm-job") as event:
        before = world.tags()
        run = warmed(world, event)
        assert run.job("one / build / up").result == "success", run.log
        assert set(asked.read_text().split()) == {"all"}
        tag = warm_tag(world, before)
        assert tag.partition(":")[2] in run.job("one / build / up").summary
        assert world.published_state("one")["commit"] == event.sha, "it records nothing"
        again = warmed(world, event)
        assert "is there already" in again.job("one / build / up").log, again.log
        assert set(world.tags()) == {*before, tag}


def with_gpu(world: World) -> None:
    """Let the repository's code take this machine for one with a GPU."""
    hook = ROOT / "cli/warm/warm_hook.py"
    text, line = hook.read_text(), "    return [*_host(), "
    assert text.count(line) == 1
    own = text.replace(line, '    return ["gpu NVIDIA H100 80GB HBM3", "driver 580", ')
    world.repository.write(str(hook.relative_to(ROOT)), own)


@pytest.mark.slow
def test_warm_in_a_pod_pushes_the_image_with_caches(world: World) -> None:
    with_gpu(world)
    with to_warm(world, PYTHON.format(base=base_image()) + "USER 1234:55\n", "warm-pod") as event:
        before = world.tags()
        run = warmed(world, event, pods=True)
        assert run.job("one / build / up").result == "success", run.log
        assert run.job("caches").runs_on == ["self-hosted", "gpu"]
        assert run.job("one / build / up").runs_on == ["ubuntu-24.04"]
        assert run.job("caches").permissions == {"packages": "read"}
        tag = warm_tag(world, before)
        again = warmed(world, event, pods=True)
        assert "is there already" in again.job("one / build / up").log, again.log
        world.repository.write("warm/leaves.py", "raise SystemExit('no such kernel')\n")
        failed = warmed(world, world.repository.push("a script that fails"), pods=True)
        assert "no such kernel" in failed.job("caches").log
        assert (failed.job("caches").result, failed.job("warm").result) == ("failure", "skipped")
        assert set(world.tags()) == {*before, tag}


@pytest.mark.slow
def test_preview_begins_with_images_over_their_budget(world: World) -> None:
    world.repository.configure("one", length=2, budgets={"link0": "0.1 kB"})
    world.repository.write("dockerfiles/link1/file.txt", "of the fork\n")
    run = world.actions().run("preview.yml", world.repository.pull_request())
    assert run.job("one").result == "success", run.log
    message = r"\Astack one: link0: [\d.]+ k?B compressed is over its budget of 100 B \(slipway:budgets\): "
    assert re.search(message, (run.artifacts / "report-one/one.txt").read_text())
    assert re.search(r"Image\W+link1\b", run.job("one").log), run.job("one").log


def test_preview_of_fork_uses_published_products(world: World) -> None:
    world.repository.write(
        "stacks/flavors/chain.py", FLAVOR.replace('args={"WORD"', 'product=number == 0, args={"WORD"')
    )
    world.repository.configure("two", length=2)
    event = world.repository.push("link0 is a product")
    run = world.actions().run("publish.yml", event)
    assert run.job("branch published").result == "success", run.log
    assert world.upto() == event.sha
    world.repository.write("dockerfiles/link1/file.txt", "of the fork\n")
    actions = world.actions()
    actions.secrets = {}
    run = actions.run("preview.yml", world.repository.pull_request())
    assert run.results == {"affected stacks": "success", "one": "success", "two": "success"}, run.log
    assert re.search(r"^link1: changed$", (run.artifacts / "report-one/one.txt").read_text(), re.MULTILINE)


def test_preview_dispatched_on_branch_publishes_nothing(world: World) -> None:
    before = world.tags()
    world.repository.configure("two", word="three")
    event = world.repository.push("another word", branch="fix/y")
    run = world.actions().run("preview.yml", Event("workflow_dispatch", event.ref, event.sha))
    assert run.results == {"affected stacks": "success", "two": "success"}, run.log
    assert re.search(r'~ WORD *: *"two" => "three"', (run.artifacts / "report-two/two.txt").read_text())
    assert world.tags() == before
    assert world.upto() == world.event.sha


@pytest.mark.parametrize("name", ["publish.yml", "preview.yml"])
def test_shallow_clone_is_one_line_with_advice(world: World, name: str) -> None:
    event = world.event
    if name == "preview.yml":
        world.repository.write("dockerfiles/link1/file.txt", "of the fork\n")
        event = world.repository.pull_request()
    run = world.actions().run(name, event, depth=1)
    assert run.job("affected stacks").result == "failure"
    assert set(run.results.values()) == {"failure", "skipped"}
    line = run.job("affected stacks").log.splitlines()[-1]
    assert line.endswith("the clone is shallow: set `fetch-depth: 0` of actions/checkout")


def test_build_workflow_builds_one_image(world: World) -> None:
    world.repository.write("dockerfiles/link0/file.txt", "other\n")
    world.repository.configure("one", length=2, extraTags=["latest"])
    event = world.repository.push()
    inputs = {"folder": "dockerfiles/link0", "image-name": "link0", "build-args": "WORD=one\n", "tag-suffix": "chain"}
    run = world.actions().run("build.yml", event, inputs=inputs)
    assert run.results == {
        "resolve": "success",
        "link0 / build / caller": "success",
        "link0 / build / native": "skipped",
        "link0 / build / up": "success",
        "link0 / attest": "skipped",
    }, run.log
    outputs = run.job("link0 / build / up").outputs
    assert outputs["tag"] == f"{event.sha[:7]}-chain"
    assert outputs["tag"] in world.registry("one/link0/tags/list")["tags"]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", outputs["digest"])
    assert "latest" in world.registry("one/link0/tags/list")["tags"]
    assert not {outputs["tag"], "latest"} & set(world.registry("one/link1/tags/list")["tags"])
    wrong = world.actions().run("build.yml", event, inputs={"folder": "link0", "build-args": "WORD=six"})
    assert wrong.results == {"resolve": "failure", "up": "skipped"}
    assert "no image matches; the folder has: one link0 (chain), two link0 (chain)" in wrong.log


@pytest.mark.slow
def test_platforms_are_built_natively_and_then_merged(world: World) -> None:
    world.repository.configure("one", length=2, platforms=PLATFORMS)
    event = world.repository.push()
    run = world.actions().run("publish.yml", event)
    names = [
        "affected stacks",
        *(f"one / build / {job}" for job in ("caller", *PLATFORMS, "up")),
        "branch published",
    ]
    assert run.results == {**dict.fromkeys(names, "success"), "one / attest": "skipped"}, run.log
    for platform, runner in zip(PLATFORMS, ("ubuntu-24.04", "ubuntu-24.04-arm"), strict=True):
        job = run.job(f"one / build / {platform}")
        assert job.runs_on == [runner]
        architecture = platform.split("/")[1]
        assert re.findall(r"\| (\S+) \| `", job.summary) == [f"link{number}-{architecture}" for number in range(2)]
    images = world.published_state("one")["outputs"]["images"]
    merged = run.job("one / build / up").log
    assert re.findall(r"\+ +\S*ImageIndex", merged)
    assert not re.findall(r"[+~] +docker:index:Image", merged), merged
    for name, image in images.items():
        assert f"| {name} | `{image['ref']}`" in run.job("one / build / up").summary
        assert [*image["platforms"]] == PLATFORMS

    # One image of it, by the name of its index.
    world.repository.write("dockerfiles/link0/file.txt", "other\n")
    event = world.repository.push()
    inputs = {"folder": "link0", "tag-suffix": "chain", "image-name": "link0", "build-args": "WORD=one"}
    build = world.actions().run("build.yml", event, inputs=inputs)
    assert {*build.results.values()} == {"success"}, build.log
    outputs = build.job("link0 / build / up").outputs
    assert outputs["tag"] == f"{event.sha[:7]}-chain"
    assert outputs["tag"] in world.registry("one/link0/tags/list")["tags"]
    assert outputs["tag"] not in world.registry("one/link1/tags/list")["tags"]

    failing = 'FROM ${BASE_IMAGE} AS amd64\nFROM ${BASE_IMAGE} AS arm64\nRUN ["/none"]\nFROM ${TARGETARCH}\n'
    world.repository.write("dockerfiles/link1/Dockerfile", f"ARG BASE_IMAGE\n{failing}")
    event = world.repository.push()
    run = world.actions().run("publish.yml", event)
    assert run.results["one / linux/amd64"] == "success", run.log
    assert run.results["one / linux/arm64"] == "failure"
    assert run.results["one / build / up"] == "skipped"
    assert not [tag for tag in world.registry("one/link1/tags/list")["tags"] if tag.startswith(event.sha[:7])]


def test_nightly_proposes_new_parents_and_scans_images(world: World, github: GitHub) -> None:
    monday = Event("schedule", "refs/heads/main", world.event.sha, {"schedule": "30 4 * * 1"})
    run = world.actions(github.address).run("nightly.yml", monday)
    idle = {name for name, result in run.results.items() if result == "skipped"}
    assert idle == {"mended", "reservations"}  # no package to mend; no variable names a role for reservations
    assert all(result == "success" for name, result in run.results.items() if name not in idle), run.log
    assert "shard: engine\n" in run.job("tests engine").log
    assert "--hypothesis-profile=night" in (run.artifacts / "durations-engine/tests.xml").read_text()
    assert run.job("fuzz").log.endswith("fuzz: tonight, 3600 s\n")
    assert run.job("tables").log.endswith("nothing changed\n")
    (pull,) = github.pulls.values()
    assert pull["head"]["label"] == "acme:parents"
    assert github.dispatched == [("preview.yml", {"ref": "parents"})]
    world.repository.git("fetch", "-q", "origin", "parents")
    changed = world.repository.git("diff", "--name-only", "main", "FETCH_HEAD")
    assert changed == "stacks/lock.toml"
    assert re.search(
        r'^refresh = "\d{4}-\d\d-\d\d"$', world.repository.git("show", "FETCH_HEAD:stacks/lock.toml"), re.MULTILINE
    )
    proposed = world.repository.git("rev-parse", "FETCH_HEAD")
    tuesday = Event("schedule", "refs/heads/main", world.event.sha, {"schedule": "30 4 * * 0,2-6"})
    actions = world.actions(github.address)
    actions.vulnerable = True
    again = actions.run("nightly.yml", tuesday)
    assert {job.name for job in again.jobs if job.result == "failure"} == {
        job.name for job in again.jobs if job.scanned
    }
    for name in ("parents", "mended packages"):  # the refresh of today is proposed already
        assert "pull request 1: unchanged" in again.job(name).log
    assert len(github.pulls) == len(github.dispatched) == 1
    world.repository.git("fetch", "-q", "origin", "parents")
    assert world.repository.git("rev-parse", "FETCH_HEAD") == proposed
    scanned = {given["image"] for job in run.jobs for given in job.scanned}
    images = [image for stack in ("one", "two") for image in world.published_state(stack)["outputs"]["images"].values()]
    assert scanned == {f"registry:{image['ref']}" for image in images}
