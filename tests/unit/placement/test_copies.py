"""Products of a stack that pushes nothing, on engines of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.diff.stack_diff import diff
from components.engines import start
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.stack_file import read_stack
from stacks.placement.copies import with_copies
from stacks.plan import Plan, PlannedImage
from stacks.spec import Sibling
from tests.fakes.pulumi_mocks import planned, run
from tests.helpers.contents import content
from tests.helpers.every import every
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


@every("values", [CLUSTER, {"buildOn": "runners", "runners": EC2}, {"engines": {ARM64: "ssh://arm"}}])
def test_unpushed_plan_has_products_on_each_engine(values: dict[str, Any]) -> None:
    before = made(**values)
    after = with_copies(before)
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


@every(
    "stack, values",
    [
        ("base-cu132-multi", {**CLUSTER, "publish": True}),
        ("base-cu132-multi", {}),
        ("base-cu132-multi", {"engines": dict.fromkeys(PLATFORMS, "ssh://both")}),
        ("base-cu132", {"buildOn": "runners", "runners": CPU}),
        ("runners-ec2", {}),
    ],
)
def test_plan_of_one_engine_or_with_a_push_is_as_it_was(stack: str, values: dict[str, Any]) -> None:
    of = made(stack, **values)
    assert with_copies(of) == of


def small(*images: PlannedImage, **values: Any) -> Plan:
    """Return the plan of some images that pushes nothing; by default arm64's are on an engine of their own."""
    given = {"flavor": "local", "platforms": PLATFORMS, "engines": {ARM64: "ssh://arm"}, "publish": False, **values}
    return Plan("t", flavors.load(given, "stack t"), images)


def placed(of: Plan) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the platform and the parents of what is built, by name."""
    return {image.spec.name: (image.spec.platform, image.siblings) for image in with_copies(of).images}


@every(
    "engines, copied",
    [
        ({AMD64: ["ssh://a", "ssh://b"], ARM64: ["ssh://a", "ssh://b"]}, True),
        ({AMD64: ["ssh://a"], ARM64: ["ssh://a"]}, False),
    ],
)
def test_list_of_engines_is_one_engine_only_if_it_has_one(engines: dict[str, list[str]], copied: bool) -> None:
    """Of several, each platform's pool chooses its own."""
    of = small(
        planned("source", product=True),
        *(planned(f"x-{name[6:]}", platform=name, index="x", SOURCE="source") for name in PLATFORMS),
        engines=engines,
    )
    assert placed(of)["x-arm64"][1] == {"SOURCE": "source-arm64" if copied else "source"}


def test_product_that_its_engine_does_not_need_moves() -> None:
    """What only arm64 is made of is built there alone, and so is what only that is made of."""
    of = small(
        planned("git", product=True),
        planned("tool", product=True, GIT="git"),
        planned("both", product=True, GIT="git"),
        planned("unused", product=True),
        planned("x-amd64", platform=AMD64, index="x", BOTH="both"),
        planned("x-arm64", platform=ARM64, index="x", BOTH="both", TOOL="tool"),
    )
    assert placed(of) == {
        "git": (AMD64, {}),
        "git-arm64": (ARM64, {}),
        "tool": (ARM64, {"GIT": "git-arm64"}),
        "both": (AMD64, {"GIT": "git"}),
        "both-arm64": (ARM64, {"GIT": "git-arm64"}),
        "unused": (AMD64, {}),
        "x-amd64": (AMD64, {"BOTH": "both"}),
        "x-arm64": (ARM64, {"BOTH": "both-arm64", "TOOL": "tool"}),
    }
    assert with_copies(with_copies(of)) == with_copies(of)


def test_products_of_one_platform_elsewhere_are_not_built_twice() -> None:
    before = made("base-cu132", platform=ARM64, engines={ARM64: "ssh://arm"})
    assert {image.spec.platform for image in before.images} == {AMD64, ARM64}
    after = with_copies(before)
    assert [image.spec.name for image in after.images] == [image.spec.name for image in before.images]
    assert {image.spec.platform for image in after.images} == {ARM64}


def test_checks_that_read_a_product_have_that_of_their_engine() -> None:
    """Here nothing but the checks of arm64's image reads it there."""
    files = {"x/checks/1": "a" * 64}
    image = planned("x-arm64", platform=ARM64, index="x", checks=files)
    assert image.content.checks
    parents = {**image.content.checks.spec.parents, "SOURCE": Sibling(image="source")}
    checks = content(image.content.checks.spec.model_copy(update={"parents": parents}), files)
    of = small(
        planned("source", product=True, checks={"source/checks/1": "a" * 64}),
        planned("x-amd64", platform=AMD64, index="x", SOURCE="source"),
        replace(image, content=replace(image.content, checks=checks)),
    )
    after = {each.spec.name: each.content.checks for each in with_copies(of).images}
    assert {name: each.siblings for name, each in after.items() if each} == {
        "source": {"CHECKED_IMAGE": "source"},
        "source-arm64": {"CHECKED_IMAGE": "source-arm64"},
        "x-arm64": {"CHECKED_IMAGE": "x-arm64", "SOURCE": "source-arm64"},
    }


@every("stack, values", [("base-cu132-multi", {}), ("base-cu132", {"platform": ARM64})])
def test_outputs_and_diff_know_no_copy(stack: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(stack, engines={ARM64: "ssh://arm"}, **values)
    published = run(of=of)[1]["outputs"]
    assert [image.spec.name for image in of.images if image.spec.product] == [*published["products"]]
    assert {image.spec.name for image in of.images} == published["plan"].keys() == published["planFiles"].keys()
    monkeypatch.setattr(plan, "make", lambda *_, **__: of)
    report = diff(of.stack, Path(), before=published)
    assert report.removed == ()
    assert {image.state for image in report.images} == {"unchanged"}


def test_copy_that_runs_programs_is_checked_on_its_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The images for arm64 themselves only copy files."""
    monkeypatch.setattr("containers.engine.engine_platforms.runnable_platforms", lambda *_, **__: {AMD64: "native"})
    source = planned("source", product=True)
    runs = replace(source, content=replace(source.content, dockerfile="FROM scratch\nRUN make\n"))
    for product, refused in ((source, False), (runs, True)):
        of = small(
            product, *(planned(f"x-{name[6:]}", platform=name, index="x", SOURCE="source") for name in PLATFORMS)
        )
        if refused:
            with pytest.raises(SlipwayError, match=r"^slipway:engines: 'linux/arm64': the Docker engine at ssh://arm"):
                start(with_copies(of), tmp_path)
        else:
            start(with_copies(of), tmp_path)
