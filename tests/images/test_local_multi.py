"""The `local-multi` stack with a small image in place of torch's: built, merged, pulled by platform and run on both machines.

The machine that is not this one is emulated. `test_emulated.py` has the real torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from containers.engine.engine_platforms import PLATFORMS
from containers.platform_name import architecture
from containers.registry import client, index
from stacks import lock
from stacks.config.fetching.mirrors import MIRRORS_VARIABLE
from stacks.config.stack_file import read_stack
from tests.engine import test_signing as signing
from tests.engine.project import Project
from tests.engine.test_platforms import UNCHANGED, changed
from tests.helpers.program_copy import copy_folders
from tests.images.engine import base_image, docker
from toolchain.checkout import Checkout
from toolchain.machine import apt
from toolchain.parts import base_image as base_image_part
from toolchain.parts import emulation

pytestmark = pytest.mark.slow  # it may first bootstrap a Debian under emulation

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""What a program calls its machine, by platform."""

DOCKERFILE = """ARG BASE_IMAGE
ARG CHECKED_IMAGE=installed
FROM ${BASE_IMAGE} AS installed
RUN uname -m > /machine
FROM ${CHECKED_IMAGE} AS checks
RUN test "$(cat /machine)" = "$(uname -m)"
FROM installed AS final
"""
"""An image that knows the machine that it was built on, with the targets of torch's."""


@dataclass
class Parent:
    """Debian in a repository of a project's own, under one tag for both platforms, and locked."""

    project: Project
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def repository(self) -> str:
        return f"{self.project.registry}/{self.project.path}/debian"

    @property
    def mirrors(self) -> dict[str, Any]:
        """The environment's mirrors, with this in place of Debian."""
        mirrors: dict[str, Any] = json.loads(os.environ.get(MIRRORS_VARIABLE, "{}"))
        images = {**mirrors.get("images", {}), "docker.io/library/debian": self.repository}
        return {**mirrors, "images": images}

    def publish(self, *platforms: str, word: str) -> None:
        """Push images that differ by a word for some of the platforms, move the tag, and lock what it names."""
        for platform in platforms:
            name = f"{self.repository}:{architecture(platform)}"
            words = ["build", f"--platform={platform}", f"--tag={name}", "-"]
            docker(*words, text=f"FROM {base_image()}\nLABEL word={word}\n")
            docker("push", "--quiet", name)
            docker("image", "rm", "--force", name)
            self.parts[platform] = f"{self.repository}@{client.digest(name)}"
        merged, tag = index.of(self.parts, None), f"{self.repository}:bookworm-slim"
        index.push(merged, tag, None)
        digests = {platform: ref.partition("@")[2] for platform, ref in self.parts.items()}
        tables = lock.Tables(platforms={lock.index_key(tag, merged.digest): digests})
        lock.write(self.project.root, {tag: merged.digest}, tables=tables)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the Dockerfiles, on a machine that runs both platforms."""
    checkout = Checkout.here()
    for platform in {*PLATFORMS} - {f"linux/{apt.machine()}"}:
        emulation.get(checkout, platform)
        base_image_part.get_for(checkout, platform)
    project = Project(tmp_path_factory.mktemp("local-multi") / "project")
    copy_folders(project.root, "dockerfiles")
    project.write("dockerfiles/torch/Dockerfile", DOCKERFILE)
    project.add_stack()
    return project


@pytest.fixture(scope="module")
def parent(project: Project) -> Parent:
    """The stack's parent, as it is built on."""
    parent = Parent(project)
    parent.publish(*PLATFORMS, word="first")
    return parent


@pytest.fixture(scope="module")
def stack(project: Project, parent: Parent) -> Project:
    """The project, whose stack is `local-multi`, up. The engine has its images no longer."""
    project.configure(**read_stack("local-multi"), mirrors=parent.mirrors)
    project.up()
    docker("image", "rm", "--force", *project.built())
    return project


def test_index_names_the_image_of_each_platform(stack: Project) -> None:
    output = stack.outputs()["images"]["torch"]
    raw = stack.fetch(f"{stack.path}/torch/manifests/{output['tag']}")
    assert output["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    listed = {
        f"{each['platform']['os']}/{each['platform']['architecture']}": each for each in json.loads(raw)["manifests"]
    }
    assert {platform: each["digest"] for platform, each in listed.items()} == {
        platform: part["digest"] for platform, part in output["platforms"].items()
    }
    assert [*listed] == [*PLATFORMS]
    for platform, part in output["platforms"].items():
        assert listed[platform]["size"] == len(stack.manifest(part["ref"]))
        assert f"linux/{stack.config_of(part['ref'])['architecture']}" == platform


@pytest.mark.parametrize("platform", PLATFORMS)
def test_image_pulled_by_platform_runs_on_its_machine(stack: Project, platform: str) -> None:
    output = stack.outputs()["images"]["torch"]
    name = f"{stack.registry}/{stack.path}/torch:{output['tag']}"
    docker("pull", "--quiet", "--platform", platform, name)
    config = json.loads(stack.manifest(output["platforms"][platform]["ref"]))["config"]["digest"]
    assert docker("image", "inspect", "--format={{.Id}}", name).stdout.strip() == config
    printed = docker("run", "--rm", "--platform", platform, name, "sh", "-c", "cat /machine && uname -m").stdout
    docker("image", "rm", "--force", name)
    assert printed.split() == [MACHINES[platform]] * 2


def test_second_up_changes_nothing(stack: Project) -> None:
    before = stack.outputs()["images"]
    assert UNCHANGED.search(stack.up().output)
    assert stack.outputs()["images"] == before


def test_platforms_are_compared_with_each_other(stack: Project) -> None:
    words = ["diff", "t", "torch", "--platform", "linux/arm64", "--against", "linux/amd64", "--json"]
    compared = json.loads(stack.stacks(*words))
    parts = stack.outputs()["images"]["torch"]["platforms"]
    assert [compared[side]["digest"] for side in ("before", "after")] == [
        parts[platform]["digest"] for platform in PLATFORMS
    ]
    changes = {each["path"]: each["change"] for each in compared["files"]}
    assert changes["/machine"] == "changed"


def test_signing_later_signs_index_and_platforms(stack: Project, parent: Parent, tmp_path: Path) -> None:
    before = stack.outputs()["images"]["torch"]
    stack.environment |= {"PATH": signing.install("cosign"), "COSIGN_PASSWORD": signing.KEY_PASSWORD}
    keys = signing.Keys(tmp_path / "keys")
    stack.configure(**read_stack("local-multi"), mirrors=parent.mirrors, signing=keys.signing(sbom=False))
    stack.up()
    assert stack.outputs()["images"]["torch"] == before
    refs = {before["ref"], *(part["ref"] for part in before["platforms"].values())}
    text = stack.stacks("verify", "t")
    assert {line.partition(": ")[2] for line in text.splitlines() if not line.startswith(" ")} >= refs
    assert text.count("  signature ") == len(refs)


def test_new_parent_of_one_platform_previews_it_alone(stack: Project, parent: Parent) -> None:
    parent.publish("linux/arm64", word="second")
    preview = stack.preview().output
    steps = changed(preview)
    assert "torch-arm64" in steps
    assert "amd64" not in " ".join(steps), preview
    assert stack.stacks("diff", "t", "--platform", "linux/amd64").startswith("torch-amd64: unchanged\n")
    assert stack.stacks("diff", "t", "--platform", "linux/arm64").startswith("torch-arm64: changed\n")
