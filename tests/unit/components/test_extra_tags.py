"""Tags that images get beside their own."""

from __future__ import annotations

import pytest

from ci.verbs.affected import lacking
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.stack_file import read_stack
from tests.fakes.pulumi_mocks import DIGEST, run
from tests.helpers.every import every
from tests.unit.components.test_ecr import ECR, EXTRA_TAG, REPOSITORY


def test_extra_tags_of_published_images_are_planned() -> None:
    recorder, _ = run(extraTags=["latest", "stable"])
    assert {name: (tag["ref"], tag["tag"]) for name, tag in recorder.of_type(EXTRA_TAG).items()} == {
        f"{name}-tag-{tag}": (f"r.example/x/{name}@{DIGEST}", tag)
        for name in ("torch", "extras")
        for tag in ("latest", "stable")
    }


def test_extra_tags_unpublished_or_unset_are_none() -> None:
    assert not run(extraTags=["latest"], publish=False)[0].of_type(EXTRA_TAG)
    assert not run()[0].of_type(EXTRA_TAG)


def test_ecr_with_extra_tags_lets_only_them_move() -> None:
    recorder, _ = run(registry=ECR, extraTags=["latest"])
    filters = recorder.of_type(REPOSITORY)["registry-torch"]["imageTagMutabilityExclusionFilters"]
    assert [each["filter"] for each in filters] == ["keep-*", "*latest"]
    assert sorted(recorder.of_type(EXTRA_TAG)) == ["extras-keep", "extras-tag-latest", "torch-keep", "torch-tag-latest"]


@every("branch", ["main", "topic"])
def test_extra_tags_on_a_branch_have_its_prefix(branch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_BRANCH", branch)
    [image] = plan.make("local", {**read_stack("local"), "extraTags": ["latest"]}).images
    expected = "latest" if branch == "main" else "topic-latest"
    assert image.extra_tags == (expected,)

    # What is published from there lacks none that it has, and is not published anew for ever.
    config = flavors.load({"flavor": "local", "extraTags": ["latest"]}, "stack local")
    requested_tags = plan.extra_tags_of("local", config)
    for there, message in ((expected, ""), ("other-latest", "not tagged as slipway:extraTags requires")):
        assert lacking(config, {"extraTags": {"torch": [f"r.example/x/torch:{there}"]}}, requested_tags) == message


@every(
    "tags, message",
    [
        (
            ["a1b2c3d-base-cuda12.1.1"],
            "slipway:extraTags.0: 'a1b2c3d-base-cuda12.1.1': looks like a tag that never moves",
        ),
        (["keep-mine"], "slipway:extraTags.0: 'keep-mine': tags that begin with"),
        (["unchecked--mine"], "slipway:extraTags.0: 'unchecked--mine': tags that begin with"),
        (["sha256-abc"], "slipway:extraTags.0: 'sha256-abc': tags that begin with"),
        (["la test"], "slipway:extraTags.0: 'la test': expected a tag such as latest"),
        (["latest", "latest"], "slipway:extraTags: '[latest, latest]': one of them is repeated"),
        ("latest", "slipway:extraTags: 'latest': expected a list"),
    ],
)
def test_extra_tags_invalid_are_refused_in_one_line(tags: object, message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        flavors.load({"flavor": "local", "extraTags": tags}, "stack x")
    assert str(caught.value).startswith(f"stack x: {message}")
    assert "\n" not in str(caught.value)


@every("branch, tag", [("keep", "local"), ("sha256", "x"), ("deadbeef", "base-cuda12.1.1"), ("b" * 100, "t" * 60)])
def test_extra_tags_of_a_branch_keep_their_meaning(branch: str, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_BRANCH", branch)
    with pytest.raises(SlipwayError) as caught:
        plan.make("local", {**read_stack("local"), "extraTags": [tag]})
    assert str(caught.value).startswith("stack local: ")
    assert "\n" not in str(caught.value)


def test_ecr_extra_tag_that_matches_images_is_refused() -> None:
    config = {**read_stack("local"), "registry": ECR, "tagSuffix": "mine"}
    with pytest.raises(SlipwayError, match="slipway:extraTags: 'mine': torch's own tag, .*-mine, ends the same"):
        plan.make("local", {**config, "extraTags": ["mine"]})
    assert plan.make("local", {**config, "extraTags": ["latest"]})
    assert plan.make(
        "local", {**config, "registry": {"kind": "ghcr", "repository": "ghcr.io/a/b"}, "extraTags": ["mine"]}
    )
