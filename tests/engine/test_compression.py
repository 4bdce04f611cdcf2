"""A stack with `slipway:compression: zstd` through the real Pulumi, engine and registry."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.engine.project import Project

ZSTD = {"kind": "zstd", "level": 3}
EMBEDDED = os.environ.get("SLIPWAY_DOCKER_PROVIDER") != "official"
UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")


def suffixes(project: Project) -> dict[str, set[str]]:
    """Return the compressions of each image's layers, by the ends of their media types."""
    images = project.outputs()["images"]
    return {
        name: {layer["mediaType"].rpartition(".")[2] for layer in json.loads(project.manifest(image["ref"]))["layers"]}
        for name, image in images.items()
    }


def test_official_provider_is_refused_at_preview(project: Project) -> None:
    project.configure(compression=ZSTD)
    for run in (project.preview, project.up):
        done = run(check=False, SLIPWAY_DOCKER_PROVIDER="official")
        assert done.returncode != 0
        assert "slipway:compression: the official docker provider cannot compress layers with zstd" in done.output
        assert "Traceback" not in done.output
    assert not project.published("link0")


@pytest.mark.skipif(not EMBEDDED, reason="it is refused")
def test_chain_of_zstd_is_exact_and_unchanged_again(project: Project) -> None:
    """The tag has the level, and each child has its parent's layers, by digest."""
    project.configure(length=3, compression=ZSTD)
    project.up()
    images = project.outputs()["images"]
    assert suffixes(project) == {name: {"tar+zstd"} for name in images}
    assert all(image["tag"].endswith("-chain-zstd3") for image in images.values())
    child, parent = (json.loads(project.manifest(images[name]["ref"])) for name in ("link2", "link1"))
    assert child["layers"][: len(parent["layers"])] == parent["layers"]
    assert UNCHANGED.search(project.up().output)
    assert project.outputs()["images"] == images
    project.preview("--expect-no-changes")


@pytest.mark.skipif(not EMBEDDED, reason="it is refused")
def test_changed_compression_is_pushed_under_another_tag(project: Project) -> None:
    """A preview says so, and what was published stays. Without the key the first digests come back."""
    project.configure(length=2)
    project.up()
    before = project.outputs()["images"]
    project.configure(length=2, compression=ZSTD)
    preview = project.preview().output
    assert re.search(r'~ tag *: "[^"]+-chain" *=> "[^"]+-chain-zstd3"', preview), preview
    project.up()
    after = project.outputs()["images"]
    assert all(before[name]["digest"] != after[name]["digest"] for name in before)
    assert all(project.manifest(image["ref"]) for image in before.values())
    project.configure(length=2)
    project.up()
    assert project.outputs()["images"] == before
