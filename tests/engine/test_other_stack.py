"""An image of one's own on an image that another stack publishes."""

from __future__ import annotations

import json
import re

from tests.engine.project import Project


def base_of_trainer(project: Project) -> str:
    """The argument with which the image was built on its parent."""
    state = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)["deployment"]["resources"]
    (built,) = (each for each in state if each["type"] == "docker:index/image:Image" and "trainer" in each["urn"])
    base: str = built["inputs"]["build"]["args"]["BASE_IMAGE"]
    return base


def test_own_image_stands_on_what_another_stack_publishes(project: Project) -> None:
    """It is refused before that, has its layers after, and follows a change of it, which is named."""
    other = (project.root / "stacks/Pulumi.t.yaml").read_text().replace(project.path, f"{project.path}/base")
    project.write("stacks/Pulumi.base.yaml", other)
    project.write("trainer/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY run /run\n")
    project.write("trainer/run", "one\n")
    project.configure(images=[{"name": "trainer", "dockerfile": "trainer/Dockerfile", "on": "base/link0"}])
    refused = project.up(check=False)
    assert refused.returncode
    assert re.search(
        rf"base/link0: {project.registry}/{project.path}/base/link0:\S+ is not in the registry, as stack base would "
        "publish it: run `slipway up base` first",
        refused.output,
    ), refused.output
    assert not project.published("link0")

    project.pulumi("stack", "init", "base", "--no-select")
    project.pulumi("up", "-s", "base", "--yes", "--skip-preview")
    project.up()
    before = project.outputs()["images"]["trainer"]
    parent = json.loads(project.pulumi("stack", "output", "-s", "base", "--json").stdout)["images"]["link0"]
    layers = [json.loads(project.manifest(each["ref"]))["layers"] for each in (parent, before)]
    assert layers[1][: len(layers[0])] == layers[0]
    assert len(layers[1]) == len(layers[0]) + 1
    assert base_of_trainer(project) == parent["ref"], "the parent is pulled by its tag, which may move"
    assert "verifiedParents" not in project.outputs(), "no stack signs"
    assert re.search(r"Resources:\n\s+\d+ unchanged", project.preview("--expect-no-changes").output)

    salted = (project.root / "stacks/Pulumi.base.yaml").read_text()
    project.write("stacks/Pulumi.base.yaml", salted.replace("config:\n", "config:\n  slipway:word: two\n"))
    preview = project.preview().output
    assert re.search(r'~ BASE_IMAGE *: "[^"]+/base/link0:[^"]+" => "[^"]+/base/link0:[^"]+"', preview), preview
    assert "trainer/Dockerfile" not in preview
