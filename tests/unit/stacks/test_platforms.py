"""A stack for several platforms: an image of each, what they share, and the tag that names them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.platform_name import architecture
from stacks import graph, plan, platforms, tags
from stacks.config.stack_file import read_stack
from stacks.differences import platform_parts
from stacks.identity.fingerprint import published_fingerprints
from stacks.plan import Plan
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line

AMD64, ARM64 = "linux/amd64", "linux/arm64"
BOTH = [AMD64, ARM64]


def spec(name: str, platform: str, **values: Any) -> ImageSpec:
    fields = {"dockerfile": f"{name}/Dockerfile", "description": name, "licenses": "MIT"}
    return ImageSpec(**{"name": name, "platform": platform, "suffix": Suffix(variant="x"), **fields, **values})


def specs(platform: str) -> list[ImageSpec]:
    """Return a source, a wheel of it, and an image with the wheel."""
    return [
        spec("source", AMD64, product=True),
        spec("wheel", platform, product=True, parents={"SOURCE": Sibling(image="source")}),
        spec("image", platform, parents={"WHEEL": Sibling(image="wheel"), "BASE_IMAGE": Outside(reference="scratch")}),
    ]


def stack(**values: Any) -> Plan:
    return plan.make("local", {"flavor": "local", "torch": {"version": "2.14.1"}, **values}, search=False)


def test_merged_images_share_what_no_platform_changes() -> None:
    merged = platforms.merged({platform: specs(platform) for platform in BOTH})
    assert [(each.name, each.published_name, each.is_part, each.siblings) for each in merged] == [
        ("source", "source", False, []),
        ("wheel-amd64", "wheel", False, ["source"]),
        ("image-amd64", "image", True, ["wheel-amd64"]),
        ("wheel-arm64", "wheel", False, ["source"]),
        ("image-arm64", "image", True, ["wheel-arm64"]),
    ]
    assert len({each.labels.get("org.opencontainers.image.title") for each in merged if not each.product}) == 1


def test_product_of_a_platform_s_parent_is_not_shared() -> None:
    def chain(platform: str) -> list[ImageSpec]:
        tool = spec("tool", AMD64, product=True, parents={"BASE_IMAGE": Sibling(image="wheel")})
        return [*specs(platform)[:2], tool]

    merged = platforms.merged({platform: chain(platform) for platform in BOTH})
    assert [each.name for each in merged].count("source") == 1
    assert {each.name for each in merged} >= {"tool-amd64", "wheel-amd64", "wheel-arm64"}


def test_tags_that_differ_by_platform_are_refused() -> None:
    line = refusal_line(
        platforms.merged,
        {
            p: [spec("torch", p, suffix=Suffix(variant="x", cuda=cuda))]
            for p, cuda in ((AMD64, "13.0"), (ARM64, "12.9"))
        },
    )
    assert (
        "one tag names torch on all platforms, and it would end in x-cuda13.0 on linux/amd64 and in x-cuda12.9" in line
    )


def test_plan_of_platforms_has_one_tag_and_parts_by_content() -> None:
    planned = stack(platforms=BOTH)
    amd64, arm64 = planned.images
    assert [image.spec.name for image in planned.images] == ["torch-amd64", "torch-arm64"]
    assert amd64.repository == arm64.repository
    assert amd64.index_tag == arm64.index_tag
    assert planned.references == {"torch": f"{amd64.repository}:{amd64.index_tag}"}
    for image, machine in ((amd64, "amd64"), (arm64, "arm64")):
        assert image.tag.startswith(f"{machine}--x")
        assert tags.parse(image.tag)[1] == image.spec.suffix
        assert image.contents["platform"] == f"linux/{machine}"
    assert [*planned.indexes] == ["torch"]


def test_part_of_one_platform_is_what_that_platform_builds_alone() -> None:
    planned = stack(platforms=BOTH)
    for image in planned.images:
        (alone,) = stack(platform=image.spec.platform).images
        assert alone.index_tag is None
        assert (image.args, image.content.label_args) == (alone.args, alone.content.label_args)
    (one,) = stack(platforms=[ARM64]).images
    assert one == alone


def test_index_changes_with_each_of_its_platforms() -> None:
    contents = [image.content for image in stack(platforms=BOTH).images]
    whole = published_fingerprints(contents)
    assert whole.keys() == {"torch"}
    assert whole == published_fingerprints(contents[::-1])
    for changed in (0, 1):
        files = {**contents[changed].files, "torch/new": "0" * 64}
        other = [
            type(each)(
                each.spec, each.labels, each.dockerfile, files if place == changed else each.files, each.arguments
            )
            for place, each in enumerate(contents)
        ]
        assert published_fingerprints(other) != whole


def test_sources_of_a_family_are_built_once_for_both() -> None:
    resolved = graph.locked({"flavor": "base", "cuda": "12.9.1", "platforms": BOTH}, "x")
    alone = graph.locked({"flavor": "base", "cuda": "12.9.1"}, "x")
    names = [each.name for each in resolved.specs]
    sources = [each.name for each in alone.specs if each.name.endswith("-source")]
    assert sources
    assert {name for name in names if name.endswith("-source")} == {*sources}
    assert len(names) == 2 * len(alone.specs) - len(sources)


@every(
    "values, line",
    [
        (
            {"platforms": ["linux/arm64/v8"]},
            "images of linux/arm64 are for all its variants here: expected linux/arm64",
        ),
        ({"platform": "linux/arm64/v8"}, "images of linux/arm64 are for all its variants here: expected linux/arm64"),
        ({"platforms": [AMD64, "linux/riscv64"]}, "platforms.1: 'linux/riscv64': input should be 'linux/amd64'"),
        (
            {"platforms": [AMD64, AMD64]},
            "slipway:platforms: '[linux/amd64, linux/amd64]': one of them is repeated; remove it",
        ),
        ({"platforms": []}, "slipway:platforms: '[]': names no platform: name one, or leave the key out"),
        ({"platforms": ARM64}, "slipway:platforms: 'linux/arm64': expected a list"),
        (
            {"engines": {"linux/amd64/v3": "ssh://a"}},
            "slipway:engines.linux/amd64/v3: 'linux/amd64/v3': images of linux/amd64 are for all its variants here",
        ),
    ],
)
def test_unknown_platform_is_refused_in_one_line(values: Mapping[str, Any], line: str) -> None:
    assert line in refusal_line(graph.locked, {"flavor": "local", **values}, "x")


def test_warnings_of_each_platform_are_the_stacks() -> None:
    values = read_stack("nccl-cu132")
    about = "slipway:nccl: NVIDIA's apt archive may not have 2.30.4-1+cuda13.2 for arm64; the build fails without it"
    for platforms_, times in (([AMD64], 0), ([ARM64], 1), (BOTH, 1)):
        assert graph.unlocked({**values, "platforms": platforms_}, "x").warnings.count(about) == times


@every("stack", ["base-cu132-multi", "nccl-cu132-multi"])
def test_stack_of_both_has_what_its_twin_has(stack: str) -> None:
    """For arm64 too: nothing is left out there."""
    twin = {spec.name for spec in plan.resolve(stack.removesuffix("-multi"))[1]}
    config, specs = plan.resolve(stack)
    assert config.platforms == tuple(BOTH)
    for platform in BOTH:
        own = {spec.name.removesuffix(f"-{architecture(platform)}") for spec in specs if spec.platform == platform}
        assert own | {spec.name for spec in specs if spec.repository is None} == twin


def test_stack_for_gb200_is_for_arm64() -> None:
    config, (spec,) = plan.resolve("megatron-gb200")
    assert (config.platform, spec.platform) == (ARM64, ARM64)
    assert spec.args["DOCA_MACHINE"] == "arm64-sbsa"
    assert spec.args["ARCH_LIST"] == "10.0"
    assert not spec.args["TOPOLOGY_NAME"]


def test_key_that_one_platform_lacks_names_the_platform() -> None:
    line = refusal_line(graph.locked, {"flavor": "megatron", "platforms": BOTH}, "x")
    assert line.startswith("x: linux/arm64: slipway:platform: 'linux/arm64' is not the platform of aks-ndv5 ")


def test_platform_and_platforms_together_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / "Pulumi.t.yaml").write_text(
        f"config:\n  slipway:flavor: local\n  slipway:platform: {AMD64}\n  slipway:platforms: [{ARM64}]\n"
    )
    assert refusal_line(plan.resolve, "t", tmp_path) == (
        "stack t: slipway:platform is for one platform, and slipway:platforms for several: leave one out"
    )


def test_part_s_tag_is_no_longer_than_a_tag_may_be() -> None:
    assert tags.of_part(ARM64, "x" * 121) == f"arm64--{'x' * 121}"
    with pytest.raises(SlipwayError, match="129 characters, at most 128 are allowed; shorten"):
        tags.of_part(ARM64, "x" * 122)
    for prefix in ("amd64--", "arm64--"):
        with pytest.raises(ValueError, match=prefix):
            tags.check_extra(f"{prefix}latest")


def test_outputs_of_an_index_are_those_of_its_platforms() -> None:
    part = {"ref": "r@sha256:1", "tag": "arm64--x"}
    images: dict[str, dict[str, Any]] = {
        "torch": {"ref": "r@sha256:2", "platforms": {ARM64: part}},
        "tool": {"ref": "r@sha256:3"},
    }
    assert platform_parts(images) == {"torch-arm64": part, "tool": {"ref": "r@sha256:3"}}
