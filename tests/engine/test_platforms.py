"""A stack for two platforms: an image for each, and one index, which appears when both are pushed."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from typing import Any

import pytest

from containers.engine.pool import Pool
from containers.engine.relay import pass_on
from containers.registry import client
from tests.engine.project import OFFICIAL, Project
from tests.fakes.docker_relay import Relay

PLATFORMS = ["linux/amd64", "linux/arm64"]
UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
STEP = re.compile(r"[~+] +(\S+:\S+) (\S+) +(?:create|update)")
"""The type and the name of a resource that a preview changes."""


@pytest.fixture
def both(project: Project) -> Project:
    """A chain of three images for two platforms."""
    project.configure(platforms=PLATFORMS, length=3)
    return project


def index(project: Project, image: str) -> dict[str, Any]:
    """Return the index that an image's tag names in the registry."""
    tag = project.outputs()["images"][image]["tag"]
    content: dict[str, Any] = json.loads(project.fetch(f"{project.path}/{image}/manifests/{tag}"))
    return content


def tags(project: Project, image: str) -> list[str]:
    """Return all tags of an image's repository."""
    names: list[str] = json.loads(project.fetch(f"{project.path}/{image}/tags/list"))["tags"]
    return sorted(names)


def changed(preview: str) -> dict[str, str]:
    """Return the resources that a preview changes, by name and type."""
    return {name: kind.rpartition(":")[2] for kind, name in STEP.findall(preview)}


def test_platforms_are_merged_under_one_tag_by_digest(both: Project) -> None:
    both.up()
    outputs = both.outputs()["images"]
    assert [*outputs] == ["link0", "link1", "link2"]
    for image, output in outputs.items():
        entries = index(both, image)["manifests"]
        listed = {
            f"{entry['platform']['os']}/{entry['platform']['architecture']}": entry["digest"] for entry in entries
        }
        assert listed == {platform: part["digest"] for platform, part in output["platforms"].items()}
        assert [*listed] == PLATFORMS
        assert len({*listed.values(), output["digest"]}) == 3
        assert tags(both, image) == sorted([output["tag"], *(part["tag"] for part in output["platforms"].values())])
        for platform, part in output["platforms"].items():
            config = both.config_of(part["ref"])
            assert f"{config['os']}/{config['architecture']}" == platform
            # Each stands on its own platform's parent.
            assert len(config["rootfs"]["diff_ids"]) == int(image[-1]) + 1
    layers = {
        platform: [
            json.loads(both.manifest(outputs[image]["platforms"][platform]["ref"]))["layers"] for image in outputs
        ]
        for platform in PLATFORMS
    }
    for chain in layers.values():
        assert [chain[2][: len(chain[n])] == chain[n] for n in range(3)] == [True] * 3

    assert UNCHANGED.search(both.up().output)

    # An image's budget is that of each platform.
    both.configure(platforms=PLATFORMS, length=3, budgets={"link1": "0.1 kB"})
    over = both.stacks("diff", "t", code=1).splitlines()
    assert [line.split(": ")[:2] for line in over] == [["stack t", "link1-amd64"], ["stack t", "link1-arm64"]]


BY_ARCHITECTURE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS amd64
COPY link0/amd64.txt /link0.txt
FROM ${BASE_IMAGE} AS arm64
COPY link0/arm64.txt /link0.txt
FROM ${TARGETARCH}
"""
"""An image whose platforms have a file each."""


def write_files(project: Project, **files: str) -> None:
    """Write the files of an image whose platforms have one each."""
    project.write("dockerfiles/link0/Dockerfile", BY_ARCHITECTURE)
    for architecture, text in files.items():
        project.write(f"dockerfiles/link0/{architecture}.txt", f"{text} {project.path}\n")


@pytest.mark.slow
def test_change_of_one_platform_waits_and_leaves_the_other(both: Project) -> None:
    write_files(both, amd64="one", arm64="one")
    both.up()
    before = both.outputs()["images"]

    write_files(both, amd64="one", arm64="two")
    preview = both.preview().output
    steps = changed(preview)
    assert {name: kind for name, kind in steps.items() if kind in {"Image", "ImageVariant"}}.keys() == {
        "link0-arm64",
        "link1-arm64",
        "link2-arm64",
    }, preview
    assert {name for name, kind in steps.items() if kind == "ImageIndex"} == {"link0", "link1", "link2"}, preview
    assert "link0/arm64.txt" in preview
    assert "amd64" not in " ".join(steps), preview

    # While one platform fails, the tags name what they named.
    indexes = {image: tags(both, image) for image in before}
    both.write(
        "dockerfiles/link0/Dockerfile", BY_ARCHITECTURE.replace("COPY link0/arm64", "RUN false\nCOPY link0/arm64")
    )
    failed = both.up(check=False)
    assert failed.returncode != 0
    assert "link0-arm64" in failed.output
    assert "Traceback" not in failed.output
    assert {image: tags(both, image) for image in before} == indexes

    write_files(both, amd64="one", arm64="two")
    both.up()
    after = both.outputs()["images"]
    for image in before:
        old, new = (output[image]["platforms"] for output in (before, after))
        assert old["linux/amd64"] == new["linux/amd64"]
        assert old["linux/arm64"]["digest"] != new["linux/arm64"]["digest"]
        assert before[image]["tag"] != after[image]["tag"]
        assert before[image]["digest"] != after[image]["digest"]


@pytest.mark.slow
def test_platforms_without_push_are_not_merged(both: Project) -> None:
    both.configure(platforms=PLATFORMS, length=2, publish=False)
    both.up()
    for output in both.outputs()["images"].values():
        assert output["merged"] is False
        assert {*output} == {"merged", "tag", "platforms"}
        assert len({part["digest"] for part in output["platforms"].values()}) == 2
    assert not both.published("link0")


@pytest.mark.slow
def test_index_edited_by_hand_is_mended_after_refresh(both: Project) -> None:
    both.configure(platforms=PLATFORMS)
    both.up()
    output = both.outputs()["images"]["link0"]
    part = output["platforms"]["linux/arm64"]["ref"]
    client.tag(part, output["tag"], None)
    assert "manifests" not in index(both, "link0")

    both.refresh()
    assert changed(both.preview().output) == {"link0": "ImageIndex"}
    both.up()
    assert both.outputs()["images"]["link0"] == output
    assert len(index(both, "link0")["manifests"]) == 2
    assert UNCHANGED.search(both.up().output)


@pytest.mark.slow
def test_platform_added_and_removed_moves_no_tag(project: Project) -> None:
    project.up()
    alone = project.outputs()["images"]["link0"]

    project.configure(platforms=PLATFORMS)
    project.up()
    merged = project.outputs()["images"]["link0"]
    assert merged["tag"] != alone["tag"]
    assert merged["platforms"]["linux/amd64"]["digest"] == alone["digest"]

    project.configure(platforms=["linux/arm64"])
    project.up()
    assert project.outputs()["images"]["link0"]["digest"] == merged["platforms"]["linux/arm64"]["digest"]
    for output in (alone, merged):
        assert client.digest(f"{project.registry}/{project.path}/link0:{output['tag']}") == output["digest"]


class Foreign(Relay):
    """An engine that starts no program for arm64, whatever this machine emulates."""

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        first = near.recv(65536)
        if re.match(rb"POST \S+/start HTTP", first):
            with near, far:
                body = b'{"message": "exec /probe: exec format error"}'
                near.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        with suppress(OSError):
            far.sendall(first)
        pass_on(near, far)


def test_engine_of_another_platform_is_refused_at_once(both: Project) -> None:
    both.write("dockerfiles/link2/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN true\n")
    with Foreign(os.environ["DOCKER_HOST"]) as relay:
        both.configure(platforms=PLATFORMS, length=3, engines={"linux/arm64": relay.host})
        refused = both.up(check=False)
    assert refused.returncode != 0
    assert (
        f"slipway:engines: 'linux/arm64': the Docker engine at {relay.host} cannot run its programs; it runs "
        "linux/amd64: name an engine of that platform in slipway:engines, or "
    ) in " ".join(refused.output.split())
    assert "link0" not in refused.output
    assert "Traceback" not in refused.output
    assert not both.published("link0")


@pytest.mark.slow
@pytest.mark.skipif(OFFICIAL, reason="it asks the engine at a preview")
def test_engine_that_is_gone_costs_its_build_and_no_preview(project: Project) -> None:
    engine = os.environ["DOCKER_HOST"]
    with Relay(engine) as first, Relay(engine) as second:
        pool = [first.host, second.host]
        project.configure(platforms=PLATFORMS, length=3, engines={"linux/amd64": pool})
        project.up()
        links = [f"link{number}" for number in range(3)]
        built = [Pool("linux/amd64", pool, links).order(link)[0] for link in links]
        assert {relay.host for relay in (first, second) if relay.builds} == {*built}
        before = project.outputs()["images"]

        # Neither the engines nor their order show.
        for engines in (
            {},
            {"linux/amd64": pool[::-1]},
            {"linux/amd64": engine, "linux/arm64": "ssh://nowhere.invalid"},
        ):
            project.configure(platforms=PLATFORMS, length=3, engines=engines)
            steps = changed(project.preview().output)
            assert steps in ({}, {"engine-amd64": "docker"}, {"engine-arm64": "docker"}), steps

        project.configure(platforms=PLATFORMS, length=3, engines={"linux/amd64": pool})
        gone, left = (first, second) if built[0] == first.host else (second, first)
        gone.__exit__(None, None, None)
        builds = left.builds
        project.write("dockerfiles/link0/file.txt", f"other {project.path}\n")
        assert f"slipway:engines.linux/amd64: {gone.host}: " in project.up().output
        assert left.builds > builds
        after = project.outputs()["images"]
        assert after.keys() == before.keys()
        assert len(index(project, "link0")["manifests"]) == 2
