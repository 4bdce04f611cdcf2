"""A stack with `slipway:compression: zstd` through the real Pulumi, engine and registry."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from ci import pulumi_stack
from containers.evidence import cosign
from tests.engine.project import OFFICIAL, Project
from tests.engine.test_checks import CHECK, DOCKERFILE, PASSING
from tests.engine.test_signing import BASE, Keys, keys, programs
from tests.helpers import gpu_reports
from tests.images.engine import base_image, docker

__all__ = ["keys", "programs"]

ZSTD = {"kind": "zstd", "level": 3}
UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")


def suffixes(project: Project) -> dict[str, set[str]]:
    """Return the compressions of each image's layers, by the ends of their media types."""
    images = project.outputs()["images"]
    return {
        name: {layer["mediaType"].rpartition(".")[2] for layer in json.loads(project.manifest(image["ref"]))["layers"]}
        for name, image in images.items()
    }


def test_official_providers_images_have_the_same_digests(project: Project) -> None:
    """It has no compression: a step of the stack pushes what it built, and nothing is left to do for the other one."""
    project.configure(length=2, compression=ZSTD)
    official = partial(project.up, SLIPWAY_DOCKER_PROVIDER="official")
    assert "CompressedPush link1-push created" in official().output
    images = project.outputs()["images"]
    assert suffixes(project) == {name: {"tar+zstd"} for name in images}
    assert UNCHANGED.search(official().output)
    project.configure(length=2, compression=ZSTD, word="another")
    targets = pulumi_stack._only([*images])  # as a job has them
    project.pulumi("up", "-s", "t", "--yes", "--skip-preview", *targets, SLIPWAY_DOCKER_PROVIDER="official")
    changed = project.outputs()["images"]
    assert all(changed[name]["digest"] != images[name]["digest"] for name in images)
    if not OFFICIAL:
        project.up(SLIPWAY_DOCKER_PROVIDER="embedded")
    assert project.outputs()["images"] == changed


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


PYTHON = """FROM installed AS python
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-minimal libpython3-stdlib
FROM python
"""
"""In place of the last stage's parent: `slipway start` measures by the image's Python."""


@pytest.mark.slow
def test_life_of_zstd_image_is_that_of_any_other(project: Project, keys: Keys, tmp_path: Path) -> None:
    """What reads the layers of a published image reads those of zstd: the gate, signatures, evidence, `inspect`, `start`, `diff`."""
    base_image()
    head, _, tail = DOCKERFILE.replace("PATH", project.path).rpartition("FROM installed\n")
    project.write("dockerfiles/link0/Dockerfile", head + PYTHON + tail)
    project.write(CHECK, PASSING)
    stack = {
        "base": BASE,
        "compression": ZSTD,
        "signing": keys.signing(sbom=False),
        "promotion": {"tags": ["stable"], "gpuChecks": {"profile": "eks-p5", "gpus": 2}},
    }
    project.configure(**stack)
    project.up()
    outputs = project.outputs()
    ref, signed = outputs["images"]["link0"]["ref"], outputs["signed"]["link0"]
    assert suffixes(project) == {"link0": {"tar+zstd"}}
    assert signed["loading"] == {"attestation": cosign.attached(ref, "att"), "result": "PASSED"}
    assert UNCHANGED.search(project.preview("--expect-no-changes").output)
    verified = project.stacks("verify", "t")
    for line in (r"signature   public key", r"loading     everything loads: \d{3,}"):
        assert re.search(rf"^  {line}", verified, re.MULTILINE), verified
    assert "no fault" in project.stacks("inspect", ref)

    now = datetime.now(UTC).isoformat()
    report = tmp_path / "report.json"
    report.write_text(gpu_reports.text("good", image=ref, started=now, finished=now))
    project.stacks("evidence", "t", "link0", str(report))
    promoted = project.stacks("promote", "t", "link0", "stable")
    assert f"/link0:stable names {ref.partition('@')[2]}; before: nothing" in promoted
    assert project.fetch(f"{project.path}/link0/manifests/stable") == project.manifest(ref)

    # Of an engine that lacks the image.
    ids = docker("image", "inspect", "--format", "{{.Id}}", *project.built()).stdout.split()
    docker("image", "rm", "--force", *{*ids})
    [started] = json.loads(project.stacks("start", ref, "--import", "json", "--json"))
    layers = [layer["digest"] for layer in json.loads(project.manifest(ref))["layers"]]
    assert (started["failed"], started["layers"]) == ("", len(layers))
    assert started["pull"]["download"] > 0

    # A node that has the image pulls what is new alone.
    project.configure(**stack, word="two")
    project.up()
    after = project.outputs()["images"]["link0"]["ref"]
    compared = json.loads(project.stacks("diff", ref, after, "--json"))
    assert compared["reused"] == layers[:-1]
    assert (compared["pull"]["withPublished"]["layers"], compared["pull"]["empty"]["layers"]) == (1, len(layers))
