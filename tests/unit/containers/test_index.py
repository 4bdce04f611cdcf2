"""An index is made of pushed images, pushed once by its digest, and then tagged."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.image import registry_image
from containers.registry import index
from containers.registry.client import IMAGES, INDEXES
from tests.fakes.registry import INDEX, Registry
from tests.helpers.refusals import refusal_line

AMD64, ARM64 = "linux/amd64", "linux/arm64"


@pytest.fixture
def parts(registry: Registry) -> dict[str, str]:
    """Return an image for each platform, by digest."""
    return {
        platform: registry.image(f"a/torch:{architecture}", [architecture.encode()], platform=("linux", architecture))
        for platform, architecture in ((ARM64, "arm64"), (AMD64, "amd64"))
    }


def test_index_is_the_same_in_any_order_of_parts(parts: dict[str, str]) -> None:
    merged = index.of(parts, None)
    assert merged == index.of(dict(reversed(parts.items())), None)
    content = json.loads(merged.body)
    assert content["mediaType"] == merged.media_type == INDEX
    assert [entry["platform"] for entry in content["manifests"]] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux"},
    ]
    assert [entry["digest"] for entry in content["manifests"]] == [
        parts[platform].partition("@")[2] for platform in (AMD64, ARM64)
    ]


def test_index_of_docker_images_is_docker_s_list(registry: Registry, parts: dict[str, str]) -> None:
    for reference in parts.values():
        digest = reference.partition("@")[2]
        _, body = registry.manifests[digest]
        content = {**json.loads(body), "mediaType": IMAGES[1]}
        registry.manifest("a/torch:x", IMAGES[1], content)
    docker = {
        platform: f"{registry.address}/a/torch@{digest}"
        for digest, (media_type, body) in registry.manifests.items()
        if media_type == IMAGES[1]
        for platform in parts
        if json.loads(body)["config"]["digest"]
        == json.loads(registry.manifests[parts[platform].partition("@")[2]][1])["config"]["digest"]
    }
    assert docker.keys() == parts.keys()
    assert index.of(docker, None).media_type == INDEXES[1]
    assert index.of({**docker, AMD64: parts[AMD64]}, None).media_type == INDEXES[0]


def test_index_is_pushed_by_digest_once_and_then_tagged(registry: Registry, parts: dict[str, str]) -> None:
    merged = index.of(parts, None)

    def pushes() -> list[str]:
        return [request.split()[1].rpartition("/")[2] for request in registry.requests if request.startswith("PUT")]

    name = f"{registry.address}/a/torch"
    index.push(merged, f"{name}:1", None)
    index.push(merged, f"{name}:1", None)
    assert pushes() == [merged.digest, "1"]
    index.push(merged, f"{name}:2", None)
    assert pushes() == [merged.digest, "1", "2"]


def test_index_keeps_an_engine_s_attestations(registry: Registry, parts: dict[str, str]) -> None:
    attestation = {"digest": "sha256:" + "b" * 64, "platform": {"os": "unknown", "architecture": "unknown"}}
    entries = json.loads(index.of({ARM64: parts[ARM64]}, None).body)["manifests"]
    pushed = registry.manifest("a/torch:containerd", INDEX, {"manifests": [*entries, attestation]})
    merged = index.of({**parts, ARM64: f"{registry.address}/a/torch@{pushed}"}, None)
    assert json.loads(merged.body)["manifests"][1:] == [*entries, attestation]


def test_part_for_another_platform_is_refused(parts: dict[str, str]) -> None:
    line = refusal_line(index.of, {AMD64: parts[AMD64], ARM64: parts[AMD64]}, None)
    assert line.endswith(
        ": the engine built an image for linux/amd64, not for linux/arm64; a parent may be for linux/amd64 alone, or a "
        "FROM in its Dockerfile names a platform"
    )


def test_part_that_the_registry_deleted_is_named(registry: Registry, parts: dict[str, str]) -> None:
    del registry.manifests[parts[ARM64].partition("@")[2]]
    line = refusal_line(index.of, parts, None)
    assert line.startswith(f"{parts[ARM64]}: the registry no longer has the image for linux/arm64; ")
    assert line.endswith(
        " To build it again: `pulumi stack --show-urns` has the URN of the docker.Image torch-arm64, and of "
        "torch-arm64-push where the stack has one; then `pulumi state taint 'URN'` of each, and an update"
    )


@pytest.mark.parametrize("status", [400, 404, 415])
def test_registry_without_indexes_keeps_its_tag(registry: Registry, parts: dict[str, str], status: int) -> None:
    registry.unknown[INDEX] = status
    line = refusal_line(index.push, index.of(parts, None), f"{registry.address}/a/torch:1", None)
    assert "the registry does not take an index" in line
    assert "a/torch:1" not in registry.digests


@pytest.mark.parametrize("status", [400, 412])
def test_tag_that_must_not_move_is_named_as_the_cause(registry: Registry, parts: dict[str, str], status: int) -> None:
    """The index is taken: what is refused is another one under the same tag."""
    name = f"{registry.address}/a/torch:1"
    index.push(index.of({AMD64: parts[AMD64]}, None), name, None)
    before = registry.digests["a/torch:1"]
    registry.kept["a/torch:1"] = status
    merged = index.of(parts, None)
    assert refusal_line(index.push, merged, name, None) == (
        f"{name}: the registry does not let the tag move, which names another index; delete it there, or give "
        f"slipway:tagSuffix ({status})"
    )
    assert registry.digests["a/torch:1"] == before
    assert merged.digest in registry.manifests


@pytest.mark.parametrize(("stated", "refused"), [(None, False), (0, False), (1, True), (99_999, True), ("x", True)])
def test_manifest_of_another_size_than_stated_is_refused(
    registry: Registry, parts: dict[str, str], stated: Any, *, refused: bool
) -> None:
    """As containerd refuses it, and takes one of which its index states nothing."""
    (entry,) = json.loads(index.of({ARM64: parts[ARM64]}, None).body)["manifests"]
    registry.manifest("a/torch:both", INDEX, {"manifests": [{**entry, "size": stated}]})
    name = f"{registry.address}/a/torch:both"
    for fetched in (registry_image.fetch, registry_image.fetch_each):
        with pytest.raises(SlipwayError, match="and its index states") if refused else nullcontext():
            assert fetched(name)
    registry.manifest("a/torch:both", INDEX, {"manifests": [entry]})
    assert registry_image.fetch(name).digest == entry["digest"]
