"""Whoever writes a program of their own publishes what the policy pack does not look at: an image without Slipway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.stack_rules import RULES, Resource

DIGEST = f"@sha256:{'a' * 64}"
MOVING = "ARG BASE_IMAGE=debian:12\nFROM ${BASE_IMAGE} AS a\nFROM a\n"
STAGES = f"FROM golang:1 AS b\nFROM debian{DIGEST}\nCOPY --from=b /x /x\n"
COPIED = f"FROM debian{DIGEST}\nCOPY --from=alpine:3 /x /x\n"
MOUNTED = f"FROM debian{DIGEST}\nRUN --mount=type=bind,from=alpine:3,target=/x true\n"
FRONTEND = f"# syntax=docker/dockerfile:1\nFROM debian{DIGEST}\n"


def urn(kind: str, name: str = "app", parents: str = "") -> str:
    return f"urn:pulumi:t::mine::{parents}{kind}::{name}"


def image(kind: str = "docker:index/image:Image", **props: Any) -> Resource:
    return Resource(kind, urn(kind), "app", props)


def signature(*of: str, parent: str = "") -> Resource:
    kind = "pulumi-python:dynamic/image:Signature"
    return Resource(kind, urn(kind, "s"), "s", {}, parent, frozenset(of))


def violated(*resources: Resource) -> set[str]:
    return {rule.name for rule in RULES for _ in rule.check(resources, {"budgets": {"app": "1 GB"}})}


@pytest.fixture
def context(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    (tmp_path / "Dockerfile").write_text(getattr(request, "param", MOVING))
    return str(tmp_path)


@pytest.mark.parametrize("context", [MOVING, STAGES, COPIED, MOUNTED, FRONTEND], indirect=True)
def test_bare_image_on_a_moving_parent_is_refused(context: str) -> None:
    assert violated(image(build={"context": context})) == {"parents-locked", "images-signed"}
    assert violated(image(build=context)) == {"parents-locked", "images-signed"}
    buildx = image("docker-build:index:Image", context={"location": context}, push=True)
    assert violated(buildx) == {"parents-locked", "images-signed"}
    text = (Path(context) / "Dockerfile").read_text()
    assert "parents-locked" in violated(image("docker-build:index:Image", dockerfile={"inline": text}))


def test_bare_image_takes_its_parent_by_argument(context: str) -> None:
    pinned = {"BASE_IMAGE": f"debian{DIGEST}"}
    assert violated(image(build={"context": context, "args": pinned}, skipPush=True)) == set()
    assert violated(image(build={"context": context, "args": {"BASE_IMAGE": "x:1"}}, skipPush=True)) == {
        "parents-locked"
    }
    assert violated(image(build={"context": context, "args": {"BASE_IMAGE": None}}, skipPush=True)) == set()
    assert violated(image(build=None, skipPush=True)) == set()


@pytest.mark.parametrize(
    "pushed",
    [
        image(build={"context": "x"}),
        image("docker-build:index:Image", push=True),
        image("docker-build:index:Image", exports=[{"registry": {"names": ["r.example/x:1"]}}]),
        image("docker:index/registryImage:RegistryImage", keepRemotely=True),
    ],
)
def test_pushed_image_of_any_provider_needs_a_signature(pushed: Resource) -> None:
    assert "images-signed" in violated(pushed)
    assert "images-signed" in violated(pushed, signature(urn("docker:index/image:Image", "other")))
    assert "images-signed" not in violated(pushed, signature(pushed.urn))


@pytest.mark.parametrize("build", [{"context": "/no/such"}, {"context": "https://git.example/x.git"}])
def test_image_whose_dockerfile_cannot_be_read_is_refused(build: dict[str, Any]) -> None:
    assert "parents-locked" in violated(image(build=build, skipPush=True))


def test_image_beside_slipways_is_judged_by_itself(context: str) -> None:
    """Another image below the same component, or below one that has the name of Slipway's within its own."""
    component = urn("mine:x:Both")
    bare = image(build={"context": context})._replace(parent=component)
    assert violated(bare, signature(parent=component)) == {"parents-locked", "images-signed"}


@pytest.mark.parametrize("wide", ["*", "**", "*-*", "*.*"])
def test_repository_that_excludes_every_tag_is_refused(wide: str) -> None:
    kind = "aws:ecr/repository:Repository"
    props = {"imageTagMutability": "IMMUTABLE_WITH_EXCLUSION"}
    filters = [{"filter": "latest"}, {"filter": wide}]
    assert violated(image(kind, **props, imageTagMutabilityExclusionFilters=filters)) == {"repositories-immutable"}
    assert violated(image(kind, **props, imageTagMutabilityExclusionFilters=filters[:1])) == set()
