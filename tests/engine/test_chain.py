"""The main job through the real engine: create, no change, change, failure, destroy, parents and children."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from containers.registry import credentials
from tests.engine.project import DOCKERFILE, OFFICIAL, Project

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")

FILES = re.compile(r"([+-]) [0-9a-f]{12}  (.+)")
"""A file of a context that a preview adds or removes: the mark and the file's name."""


def test_image_is_pushed_and_second_up_changes_nothing(project: Project) -> None:
    project.up()
    image = project.outputs()["images"]["link0"]
    assert re.fullmatch(rf"{project.registry}/{project.path}/link0@sha256:[0-9a-f]{{64}}", image["ref"])
    assert image["ref"].endswith(image["digest"])
    assert f"sha256:{hashlib.sha256(project.manifest(image['ref'])).hexdigest()}" == image["digest"]

    again = project.up()
    assert UNCHANGED.search(again.output), again.output
    assert project.outputs()["images"]["link0"] == image


def test_chain_is_exact_by_digest_and_follows_its_parent(project: Project) -> None:
    project.configure(length=3)
    project.up()
    before = project.outputs()["images"]
    child = json.loads(project.manifest(before["link2"]["ref"]))
    parent = json.loads(project.manifest(before["link1"]["ref"]))
    assert child["layers"][: len(parent["layers"])] == parent["layers"]

    project.write("dockerfiles/link0/file.txt", "other\n")
    preview = project.preview().output
    assert "link0/file.txt" in preview
    assert re.search(r'~ BASE_IMAGE *: "[^"]+/link0:[^"]+" => "[^"]+/link0:[^"]+"', preview), preview
    for name in ("link0", "link1", "link2"):
        assert re.search(rf"{name} +update", preview), preview
    project.up()
    after = project.outputs()["images"]
    assert all(before[name]["digest"] != after[name]["digest"] for name in before)


def test_chain_unpublished_is_built_and_not_pushed(project: Project) -> None:
    project.configure(length=3, publish=False)
    project.up()
    images = project.outputs()["images"]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", image["ref"]) for image in images.values())
    assert UNCHANGED.search(project.up().output)
    project.write("dockerfiles/link0/file.txt", "other\n")
    project.up()
    after = project.outputs()["images"]
    assert all(images[name]["digest"] != after[name]["digest"] for name in images)
    assert not any(project.published(name) for name in images)
    project.configure(length=3)
    project.up()
    assert all(project.published(name) for name in images)


def test_preview_of_argument_has_old_and_new_value_alone(deployed: Project) -> None:
    deployed.configure(word="two")
    preview = deployed.preview().output
    assert re.search(r'~ WORD *: *"one" => "two"', preview), preview
    assert re.findall(r"[~+-] (\S+) *: \"", preview) == ["tag", "WORD", "tag"], preview
    detailed = deployed.preview("--diff").output
    assert re.search(r'WORD *: *"one" => "two"', detailed), detailed
    assert re.search(r'~ tag *: ".*" => ".*"', detailed), detailed


def test_preview_of_changed_file_names_it(deployed: Project) -> None:
    deployed.write("dockerfiles/link0/file.txt", "other\n")
    preview = deployed.preview().output
    old, new = re.findall(r"[+-] ([0-9a-f]{12})  link0/file\.txt", preview)
    assert old != new
    assert FILES.findall(preview) == [("-", "link0/file.txt"), ("+", "link0/file.txt")], preview
    assert re.findall(r"[~+-] (\S+) *: \"", preview) == ["tag", "tag"], preview


def test_preview_of_new_and_removed_file_names_it(project: Project) -> None:
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE.format(number=0) + "COPY link0/*.txt /texts/\n")
    project.write("dockerfiles/link0/old.txt", "old\n")
    project.up()
    project.write("dockerfiles/link0/new.txt", "new\n")
    assert FILES.findall(project.preview().output) == [("+", "link0/new.txt")]
    (project.root / "dockerfiles/link0/new.txt").unlink()
    (project.root / "dockerfiles/link0/old.txt").unlink()
    assert FILES.findall(project.preview().output) == [("-", "link0/old.txt")]


def test_preview_of_changed_instruction_names_its_dockerfile(deployed: Project) -> None:
    deployed.write("dockerfiles/link0/Dockerfile", DOCKERFILE.format(number=0) + "ENV A=b\n")
    preview = deployed.preview().output
    assert FILES.findall(preview) == [("-", "link0/Dockerfile"), ("+", "link0/Dockerfile")], preview
    assert re.findall(r"[~+-] (\S.*?) *: *\"", preview) == ["tag", "tag"], preview


def test_changed_comment_and_spacing_change_nothing(project: Project) -> None:
    project.configure(length=2)
    text = DOCKERFILE.format(number=0)
    project.write("dockerfiles/link0/Dockerfile", f"# first\n{text}")
    project.up()
    project.write("dockerfiles/link0/Dockerfile", "\n# second\n" + text.replace("COPY ", "# third\nCOPY \\\n  "))
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)


def test_instruction_outside_the_target_changes_nothing(deployed: Project) -> None:
    unreached = "ARG BASE_IMAGE\nFROM scratch AS unreached\nCOPY link0/none /\n"
    deployed.write("dockerfiles/link0/Dockerfile", unreached + DOCKERFILE.format(number=0).partition("\n")[2])
    assert UNCHANGED.search(deployed.preview("--expect-no-changes").output)


def test_changed_credentials_are_no_change(project: Project) -> None:
    project.configure(registry={"kind": "generic", "repository": f"{project.registry}/{project.path}"})
    variables = "SLIPWAY_REGISTRY_USERNAME", "SLIPWAY_REGISTRY_PASSWORD"
    login = credentials.of_machine(project.registry)
    given = (login.username, login.password) if login else ("me", "one")
    project.environment |= dict(zip(variables, given, strict=True))
    project.up()
    project.environment |= dict(zip(variables, ("you", "other"), strict=True))
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)


def test_unread_file_changes_nothing(deployed: Project) -> None:
    deployed.write("dockerfiles/link0/README.md", "about\n")
    deployed.write("dockerfiles/link0/new.txt", "beside what is read\n")
    deployed.write("dockerfiles/other/file.txt", "elsewhere\n")
    assert UNCHANGED.search(deployed.preview("--expect-no-changes").output)


def test_plan_is_known_at_first_preview(project: Project) -> None:
    project.configure(length=2)
    preview = project.preview().output
    assert re.search(r'WORD *: "one"', preview), preview
    assert re.search(r'platform *: "linux/amd64"', preview), preview
    assert 'link1: "2 files' in preview, preview
    assert re.search(r'BASE_IMAGE *: "[^"]+/link0:[^"]+"', preview), preview
    plan = preview[preview.index("plan") :]
    assert "[unknown]" not in plan, preview


def test_failed_build_quotes_its_step_and_next_up_finishes(project: Project) -> None:
    dockerfile = project.root / "dockerfiles/link0/Dockerfile"
    good = dockerfile.read_text()
    base = "debian:bookworm-slim"
    project.configure(base=base)
    dockerfile.write_text(good + "RUN echo the reason is here && exit 7\n")
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "exit code: 7" in failed.output
    if not OFFICIAL:
        assert "RUN echo the reason is here" in failed.output
        assert "the reason is here" in failed.output.replace("RUN echo the reason is here", "")
    assert "Traceback" not in failed.output
    dockerfile.write_text(good)
    project.up()
    assert project.outputs()["images"]["link0"]["digest"].startswith("sha256:")


def test_missing_file_is_refused_before_any_build(project: Project) -> None:
    project.configure(length=2)
    project.write("dockerfiles/link1/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY link1/none /\n")
    line = "dockerfiles/link1/Dockerfile:3: COPY: link1/none: the context has no such file; see the ignore file too"
    for failed in (project.preview(check=False), project.up(check=False)):
        assert failed.returncode != 0
        assert re.search(rf"^ *error: {re.escape(line)}$", failed.output, re.MULTILINE), failed.output
        assert "Traceback" not in failed.output
    assert not project.published("link0")


def test_destroy_leaves_no_resource(project: Project) -> None:
    project.up()
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    state = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)
    assert not state["deployment"].get("resources")


@pytest.mark.parametrize(
    ("yaml", "line"),
    [
        ("slipway:lenght: 2", "stack t: config: unknown key 'lenght' (did you mean 'length'?)"),
        ("slipway:length: none", "stack t: slipway:length: 'none': "),
        ("slipway:word: 3.10", "stacks/Pulumi.t.yaml:4: slipway:word: YAML reads the unquoted 3.10 as a number"),
        ("slipway:publish: perhaps", "configuration key 'slipway:publish' must be of type 'boolean'"),
    ],
)
def test_config_mistake_is_one_line(project: Project, yaml: str, line: str) -> None:
    path = project.root / "stacks/Pulumi.t.yaml"
    path.write_text(path.read_text().replace("\nencryptionsalt", f"\n  {yaml}\nencryptionsalt"))
    failed = project.preview(check=False)
    assert failed.returncode != 0
    assert line in failed.output, failed.output
    assert "Traceback" not in failed.output


def test_value_with_any_characters_stays_text(project: Project) -> None:
    word = "$(id) `id` \"x\" 'y' ; rm -rf / | & * ~ ünïcode 漢字 back\\slash two\nlines"
    project.write("dockerfiles/link0/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG WORD\nLABEL word=$WORD\n")
    project.configure(word=word)
    project.up()
    config = project.config_of(project.outputs()["images"]["link0"]["ref"])
    assert config["config"]["Labels"]["word"] == word
