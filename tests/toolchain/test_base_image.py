"""The bootstrapped base image, in a real engine and a real registry."""

import subprocess

import pytest

from tests.toolchain.clone import Clone
from toolchain.parts import base_image, docker_engine, docker_registry
from toolchain.parts.part import Part, remember


@pytest.mark.slow
def test_base_image_is_the_same_on_two_machines(clones: tuple[Clone, Clone], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_image, "_pull", lambda _environment: "not tried")
    digests = set()
    for clone in clones:
        host = docker_engine.get(clone.checkout).env["DOCKER_HOST"]
        address = docker_registry.get(clone.checkout).env["SLIPWAY_REGISTRY"]
        part = base_image.get(clone.checkout)
        assert part.used == f"{address}/docker.io/library/debian:bookworm-slim"
        assert base_image.find(clone.checkout) == part
        words = ["docker", "-H", host, "image", "inspect", "--format", "{{index .RepoDigests 0}}", part.used]
        reference = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        digests.add(reference.partition("@")[2])
        words = ["docker", "-H", host, "run", "--rm", "--network", "none", part.used, "cat", "/etc/debian_version"]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("12.")
        assert not list((clone.checkout.cache).iterdir())
    assert len(digests) == 1


def test_mirrored_base_image_is_not_bootstrapped(clone: Clone) -> None:
    clone.env["SLIPWAY_MIRRORS"] = '{"images": {"docker.io": "mirror.invalid/hub"}}'
    part = clone.get("base_image")
    assert (part["used"], part["env"]) == ("debian:bookworm-slim by SLIPWAY_MIRRORS", {})


def test_base_image_gone_from_registry_is_missing(clones: tuple[Clone, Clone]) -> None:
    clone = clones[0].checkout
    docker_engine.get(clone)
    address = docker_registry.get(clone).env["SLIPWAY_REGISTRY"]
    used = f"{address}/docker.io/library/debian:bookworm-slim"
    remember(clone, Part(base_image.NAME, used, "y", env={"SLIPWAY_MIRRORS": "{}"}))
    assert base_image.find(clone) is None
