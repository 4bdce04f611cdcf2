"""Products of a stack that pushes nothing, on engines of their own."""

from __future__ import annotations

from typing import Any

import pytest

from components.engines.kept_products import with_kept_products
from stacks import plan
from stacks.config.stack_file import read_stack
from stacks.plan import Plan
from tests.unit.runners.test_ec2 import RUNNERS

AMD64, ARM64 = PLATFORMS = ["linux/amd64", "linux/arm64"]
GITHUB = {"url": "https://github.com/acme", "secret": "github"}
BUILD: dict[str, Any] = {"nodeSelector": {"acme.example/pool": "builds"}}
ARM: dict[str, Any] = {"nodeSelector": {"acme.example/pool": "builds-arm"}}
CPU: dict[str, Any] = {"kind": "kubernetes", "github": GITHUB, "build": BUILD, "daemon": False}
EC2: dict[str, Any] = {
    **RUNNERS,
    "build": {"instanceType": "c7i.4xlarge", "platforms": {ARM64: {"instanceType": "c8g.4xlarge"}}},
}
CLUSTER: dict[str, Any] = {"buildOn": "runners", "runners": {**CPU, "build": {**BUILD, "platforms": {ARM64: ARM}}}}


def made(stack: str = "base-cu132-multi", **values: Any) -> Plan:
    """Return the plan of a stack that pushes nothing."""
    registry = {"kind": "local", "address": "r.example:5000"}
    return plan.make(stack, {**read_stack(stack), "registry": registry, "publish": False, **values}, search=False)


@pytest.mark.parametrize(
    "values",
    [CLUSTER, {"buildOn": "runners", "runners": EC2}, {"engines": {ARM64: "ssh://arm"}}],
    ids=["cluster", "ec2", "engine"],
)
def test_unpushed_plan_has_products_on_each_engine(values: dict[str, Any]) -> None:
    before = made(**values)
    after = with_kept_products(before)
    shared = {image.spec.name: image for image in before.images if image.spec.product and image.spec.repository is None}
    copies = {
        image.spec.name: image
        for image in after.images
        if image.spec.name not in {one.spec.name for one in before.images}
    }
    assert "torch-source" in shared
    assert copies.keys() == {f"{name}-arm64" for name in shared}
    for name, image in shared.items():
        copy = copies[f"{name}-arm64"]
        assert (copy.reference, copy.fingerprint, copy.args) == (image.reference, image.fingerprint, image.args)
        assert copy.content.folder == image.content.folder
        assert (image.spec.platform, copy.spec.platform) == (AMD64, ARM64)
        assert (copy.spec.published_name, copy.spec.is_part) == (name, False)
    # Each image has what it is made of on its own engine, and before it.
    seen: set[str] = set()
    platforms = {image.spec.name: image.spec.platform for image in after.images}
    for image in after.images:
        of_checks = {*image.content.checks.siblings.values()} - {image.spec.name} if image.content.checks else set()
        for parent in {*image.siblings.values()} | of_checks:
            assert parent in seen, image.spec.name
            assert platforms[parent] == image.spec.platform, image.spec.name
        seen.add(image.spec.name)
    # All else is as it was.
    kept = {image.spec.name: image for image in after.images}
    assert after.indexes.keys() == before.indexes.keys()
    for image in before.images:
        assert kept[image.spec.name].contents == image.contents
        if image.spec.platform == AMD64:
            assert kept[image.spec.name] == image


@pytest.mark.parametrize(
    ("stack", "values"),
    [
        ("base-cu132-multi", {**CLUSTER, "publish": True}),
        ("base-cu132-multi", {}),
        ("base-cu132-multi", {"engines": dict.fromkeys(PLATFORMS, "ssh://both")}),
        ("base-cu132", {"buildOn": "runners", "runners": CPU}),
        ("runners-ec2", {}),
    ],
    ids=["pushed", "this machine", "one engine", "one platform", "no image"],
)
def test_plan_of_one_engine_or_with_a_push_is_as_it_was(stack: str, values: dict[str, Any]) -> None:
    of = made(stack, **values)
    assert with_kept_products(of) == of
