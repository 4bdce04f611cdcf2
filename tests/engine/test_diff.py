"""``slipway diff STACK``: what Pulumi's state and the registry have, beside what would be built now."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.engine.project import DOCKERFILE, MANIFESTS, Project
from tests.helpers import registry_api


def diff(project: Project, *words: str, code: int = 0, **environment: str) -> str:
    """Run it in the project; return what it printed, or, where it is to fail, what it said of why."""
    return project.stacks("diff", *words, code=code, **environment)


def as_json(project: Project, *words: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(diff(project, "t", *words, "--json"))
    return {image["name"]: image for image in report["images"]}


def changes(image: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    return {change["what"]: (change["before"], change["after"]) for change in image["changes"]}


def test_diff_of_unpublished_stack_is_all_new(project: Project) -> None:
    project.configure(length=2)
    report = as_json(project)
    assert {name: image["state"] for name, image in report.items()} == {"link0": "new", "link1": "new"}
    assert report["link1"]["parents"] == ["link0"]


def test_diff_compares_new_build_with_published_images(project: Project) -> None:
    project.configure(length=2)
    project.write("dockerfiles/link1/Dockerfile", DOCKERFILE.format(number=1) + "COPY link1/*.txt /texts/\n")
    project.up()
    dockerfile = project.root / "dockerfiles/link0/Dockerfile"
    dockerfile.write_text("# a comment\n" + dockerfile.read_text())
    project.write("dockerfiles/link0/new.txt", "nothing reads it\n")
    assert {image["state"] for image in as_json(project).values()} == {"unchanged"}

    project.configure(length=2, word="two")
    project.write("dockerfiles/link1/new.txt", "new\n")
    report = as_json(project)
    assert changes(report["link0"])["args WORD"] == ("one", "two")
    assert changes(report["link1"])["files link1/new.txt"][0] is None
    before, after = changes(report["link1"])["parents BASE_IMAGE"]
    assert before is not None
    assert after == report["link0"]["planned"] != before
    assert report["link1"]["content"] is None
    assert list(as_json(project, "link1")) == ["link1"]

    text = diff(project, "t")
    assert re.search(r"^link0: changed$", text, re.MULTILINE)
    assert re.search(r"^ +~ +args WORD +one +two$", text, re.MULTILINE)
    assert "not in the registry yet" in text
    assert project.outputs()["images"]["link0"]["ref"]
    assert UNCHANGED_IMAGES.search(project.pulumi("stack", "-s", "t").output)  # it only asks


UNCHANGED_IMAGES = re.compile(r"docker:index/image:Image +link0")


def test_diff_of_images_in_registry_compares_them(deployed: Project) -> None:
    deployed.configure(word="two")
    deployed.up()
    deployed.configure(word="one")
    content = as_json(deployed)["link0"]["content"]
    assert [(file["path"], file["change"]) for file in content["files"]] == [
        ("/link0-one.txt", "added"),
        ("/link0-two.txt", "removed"),
    ]
    assert all(file["certain"] for file in content["files"])
    markdown = diff(deployed, "t", "--markdown")
    assert "| `+` | `/link0-one.txt` |" in markdown
    assert diff(deployed, "t", "--html").startswith("<!DOCTYPE html>")


def test_diff_over_its_budget_is_one_line(project: Project) -> None:
    project.configure(budgets={"link0": "1 GB"})
    project.up()
    diff(project, "t")
    project.configure(budgets={"link0": "0.1 kB"})
    line = diff(project, "t", code=1)
    assert re.fullmatch(
        r"stack t: link0: \d+ B compressed is over its budget of 100 B \(slipway:budgets\): \S+\n", line
    )


def test_diff_of_moved_base_is_reported_without_building(project: Project) -> None:
    project.up()
    one = project.outputs()["images"]["link0"]["ref"]
    project.configure(word="two")
    project.up()
    other = project.outputs()["images"]["link0"]["ref"]

    def move(ref: str) -> None:
        url = f"{project.registry}/{project.path}/link0/manifests/base"
        content = project.manifest(ref)
        media_type = json.loads(content)["mediaType"]
        assert media_type in MANIFESTS
        registry_api.send("PUT", url, content, {"Content-Type": media_type}).raise_for_status()

    move(one)
    project.configure(word="three", base=f"{project.registry}/{project.path}/link0:base")
    project.up()
    assert as_json(project)["link0"]["base"] is None
    move(other)
    report = as_json(project)["link0"]
    assert report["base"].startswith(f"{project.registry}/{project.path}/link0:base has moved to {other[-71:]}")
    assert report["state"] == "unchanged"


def test_diff_mistakes_are_one_line(deployed: Project) -> None:
    assert diff(deployed, "u", code=1).startswith("there is no stack 'u'")
    line = diff(deployed, "t", "link", code=1)
    assert line == "stack t builds no image 'link' (did you mean 'link0'?); it builds: link0\n"
    line = diff(deployed, "t", code=1, PATH="/nonexistent")
    assert line.startswith("pulumi cannot be run: ")
    assert diff(deployed, "t", code=1, PULUMI_BACKEND_URL="file:///nonexistent/state").startswith(
        "stack t: pulumi cannot read the published outputs: error: "
    )
    deployed.configure(budgets={"link9": "1 GB"})
    assert diff(deployed, "t", code=1).startswith("stack t: slipway:budgets: the stack builds no image 'link9'")
    deployed.configure(budgets={"link0": "1"})
    assert diff(deployed, "t", code=1) == (
        "stack t: slipway:budgets.link0: '1': expected a size with its unit, such as 3.5 GB or 800 MiB\n"
    )
    deployed.configure(registry={"kind": "local", "address": "127.0.0.1:9", "path": deployed.path}, word="two")
    assert "request to 127.0.0.1:9 failed: " in diff(deployed, "t", code=1)


def test_diff_of_stack_without_publish_compares_plans(project: Project) -> None:
    project.configure(publish=False)
    project.up()
    project.configure(publish=False, word="two")
    report = as_json(project)["link0"]
    assert changes(report)["args WORD"] == ("one", "two")
    assert report["size"] is None
