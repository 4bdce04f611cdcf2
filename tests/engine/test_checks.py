"""The checks of an image are a gate: they run on what is published, again where they change, and move no tag."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ci import pulumi_stack
from stacks.tags import UNCHECKED
from tests.engine.project import OFFICIAL, Project
from tests.helpers.elf_writer import LOADER, elf
from tests.images.engine import Image, base_image, forget

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
STEP = re.compile(r"[~+] +\S+:\S+ (\S+) +(?:create|update)")
"""The name of a resource that a preview changes."""
FILES = re.compile(r"([+-]) [0-9a-f]{12}  (.+)")
"""A file that a preview adds or removes: the mark and the file's name."""
DOCKERFILE = """ARG BASE_IMAGE
ARG CHECKED_IMAGE=installed
FROM ${BASE_IMAGE} AS installed
RUN : PATH && cat /proc/sys/kernel/random/uuid > /made
FROM ${CHECKED_IMAGE} AS checks
RUN --mount=type=bind,source=link0/checks,target=/mnt sh /mnt/10-made
FROM installed
ARG WORD
COPY link0/file.txt /${WORD}.txt
"""
"""An image whose content tells each build from another."""
CHECK = "dockerfiles/link0/checks/10-made"
PASSING = "cat /made; test -s /made\n"
FAILING = "echo no good; exit 3\n"
REASON = "exit code: 3" if OFFICIAL else "no good"
"""The official provider does not quote what a failed step has printed."""


@pytest.fixture
def checked(project: Project) -> Project:
    """A chain of two images, of which the first has a check."""
    project.write("dockerfiles/link0/Dockerfile", DOCKERFILE.replace("PATH", project.path))
    project.write(CHECK, PASSING)
    base_image()
    project.configure(base="debian:bookworm-slim", length=2)
    return project


def outputs(project: Project) -> dict[str, Any]:
    """Return the stack's outputs that name an image or its content."""
    every = project.outputs()
    return {key: every[key] for key in ("images", "plan", "planFiles")}


def tags(project: Project, image: str) -> list[str]:
    """Return the tags in the registry that an image got after its checks."""
    if not project.published(image):
        return []
    names = json.loads(project.fetch(f"{project.path}/{image}/tags/list"))["tags"]
    return sorted(name for name in names if not name.startswith(UNCHECKED))


def fail(project: Project) -> str:
    """Run an update that the check stops; return which build the check ran on."""
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert REASON in failed.output.replace("echo no good", "")
    assert "Traceback" not in failed.output
    if not project.published("link0"):
        return ""
    names = json.loads(project.fetch(f"{project.path}/link0/tags/list"))["tags"]
    tag = next(name for name in names if name.startswith(UNCHECKED))
    return Image(f"{project.registry}/{project.path}/link0:{tag}").run("cat", "/made").strip()


def built(project: Project) -> str:
    """Return which build of the first image is published."""
    return Image(project.outputs()["images"]["link0"]["ref"]).run("cat", "/made").strip()


def test_changed_check_runs_again_and_moves_no_image(checked: Project) -> None:
    checked.up()
    before, names = outputs(checked), tags(checked, "link0")
    assert UNCHANGED.search(checked.up().output)

    checked.write(CHECK, "test -s /made && test -s /etc/passwd\n")
    preview = checked.preview().output
    assert {*STEP.findall(preview)} == {"link0-checks"}, preview
    assert FILES.findall(preview) == [("-", "link0/checks/10-made"), ("+", "link0/checks/10-made")], preview
    assert re.findall(r"~ (\w+) *: {", preview) == ["checkFiles"], preview
    checked.up()
    assert outputs(checked) == before
    assert UNCHANGED.search(checked.preview("--expect-no-changes").output)

    checked.write(CHECK, FAILING)
    fail(checked)
    assert (outputs(checked), tags(checked, "link0")) == (before, names)
    assert not checked.published("link0_checks")


def test_check_runs_on_the_published_image_alone(checked: Project) -> None:
    checked.up()
    first = built(checked)
    forget(re.escape(checked.path), 0)
    checked.write(CHECK, f"grep {first} /made\n")
    checked.up()

    # Another image is built, and that is what the checks run on.
    checked.write("dockerfiles/link0/file.txt", "other\n")
    checked.write(CHECK, f"cat /made; ! grep -q {first} /made\n")
    checked.up()
    assert built(checked) != first


def test_failing_check_stops_image_and_child_until_mended(checked: Project) -> None:
    checked.write(CHECK, FAILING)
    first = fail(checked)
    assert (tags(checked, "link0"), tags(checked, "link1")) == ([], [])
    assert "images" not in checked.outputs()

    # A retry on an engine without the steps: what failed is checked again, not something that is built anew.
    forget(re.escape(checked.path), 0)
    assert fail(checked) == first
    checked.write(CHECK, f"grep {first} /made\n")
    checked.up()
    assert built(checked) == first
    assert [len(tags(checked, name)) for name in ("link0", "link1")] == [1, 1]

    before = [tags(checked, name) for name in ("link0", "link1")]
    checked.write("dockerfiles/link0/file.txt", "other\n")
    checked.write(CHECK, FAILING)
    for _ in range(2):
        fail(checked)
        assert [tags(checked, name) for name in ("link0", "link1")] == before


@pytest.mark.slow
def test_image_that_is_published_later_is_checked_then(checked: Project) -> None:
    checked.configure(base="debian:bookworm-slim", length=2, publish=False)
    checked.up()
    before = outputs(checked)
    checked.write(CHECK, FAILING)
    fail(checked)
    checked.write(CHECK, "test -s /made && true\n")
    checked.up()
    assert outputs(checked) == before
    assert not checked.published("link0")

    forget(re.escape(checked.path), 0)
    checked.write(CHECK, FAILING)
    checked.configure(base="debian:bookworm-slim", length=2)
    pushed = fail(checked)
    assert tags(checked, "link0") == []
    checked.write(CHECK, f"grep {pushed} /made\n")
    checked.up()
    assert built(checked) == pushed


def test_new_checks_leave_digest_and_child(checked: Project) -> None:
    text = (checked.root / "dockerfiles/link0/Dockerfile").read_text()
    start, end = text.index("FROM ${CHECKED_IMAGE}"), text.index("FROM installed\nARG WORD")
    checked.write("dockerfiles/link0/Dockerfile", text[:start] + text[end:])
    checked.up()
    before = outputs(checked)
    checked.write("dockerfiles/link0/Dockerfile", text)
    checked.up()
    assert outputs(checked) == before


def test_image_without_a_library_gets_no_tag(checked: Project) -> None:
    program = elf(needed=["libgone.so.1"], interpreter=LOADER)
    (checked.root / "dockerfiles/link0/program").write_bytes(program)
    text = (checked.root / "dockerfiles/link0/Dockerfile").read_text()
    checked.write("dockerfiles/link0/Dockerfile", f"{text}COPY --chmod=755 link0/program /opt/program\n")
    excepted = {"files": "/opt/*", "missing": "libgone.so.*", "reason": "the host mounts it"}
    keys: dict[str, Any] = {"base": "debian:bookworm-slim", "length": 2}
    # As in a pull request: nothing is pushed.
    checked.configure(**keys, publish=False)
    failed = checked.up(check=False)
    assert failed.returncode != 0
    assert re.search(r"link0:\S+: ends the update because of a fault", failed.output), failed.output
    assert re.search(r"^ +/opt/program: missing libgone.so.1: not in the image$", failed.output, re.MULTILINE)
    assert "Traceback" not in failed.output
    assert "images" not in checked.outputs()
    checked.configure(**keys, publish=False, inspection={"exceptions": [excepted]})
    checked.up()
    checked.configure(**keys, publish=False)
    assert UNCHANGED.search(checked.preview("--expect-no-changes").output)

    checked.configure(**keys)
    failed = checked.up(check=False)
    assert failed.returncode != 0
    assert re.search(r"link0@sha256:\w{64}: not tagged because of a fault", failed.output), failed.output
    assert re.search(r"^ +/opt/program: missing libgone.so.1: not in the image$", failed.output, re.MULTILINE), (
        failed.output
    )
    assert "Traceback" not in failed.output
    assert (tags(checked, "link0"), tags(checked, "link1")) == ([], [])

    checked.configure(**keys, inspection={"exceptions": [excepted]})
    checked.up()
    assert [len(tags(checked, name)) for name in ("link0", "link1")] == [1, 1]
    checked.configure(**keys)
    assert UNCHANGED.search(checked.preview("--expect-no-changes").output)


def test_image_whose_checks_are_no_target_is_refused(checked: Project) -> None:
    checked.up()
    before = tags(checked, "link0")
    checked.write("dockerfiles/link0/file.txt", "other\n")
    checked.write(CHECK, FAILING)
    targets = [word for name in ("link0", "link0-tag") for word in ("--target", f"**::{name}")]
    refused = checked.pulumi("up", "-s", "t", "--yes", "--skip-preview", *targets, check=False)
    assert re.search(
        r"link0@sha256:\w{64}: not tagged \S+-chain, because the last checks were those of sha256:\w{64}; "
        "name the image's checks among the targets, or none",
        refused.output,
    ), refused.output
    assert "Traceback" not in refused.output
    assert tags(checked, "link0") == before


def test_targets_of_a_job_include_checks(checked: Project) -> None:
    """As `python -m ci publish --image` and `python -m ci preview` run Pulumi."""
    checked.pulumi("up", "-s", "t", "--yes", "--skip-preview", *pulumi_stack._only(["link0"]))
    assert [len(tags(checked, name)) for name in ("link0", "link1")] == [1, 0]
    checked.up()
    checked.write(CHECK, FAILING)
    words = ["up", "-s", "t", "--yes", "--skip-preview", *pulumi_stack._only(["link0-checks"])]
    assert REASON in checked.pulumi(*words, check=False).output.replace("echo no good", "")
    checked.write(CHECK, "test -s /made && true\n")
    checked.pulumi(*words)
    assert UNCHANGED.search(checked.preview("--expect-no-changes").output)
