"""One image has one tag over all stacks: after a rename of a stack's file, a move or a copy, in real git histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks import plan
from tests.helpers.sample_repository import BUILD, DOCKERFILE, STACK, Checkout, config, make

OTHER = "stacks/Pulumi.other.yaml"
THIRD = "stacks/Pulumi.third.yaml"
SUFFIXED = "  slipway:tagSuffix: mine\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    sample = make(tmp_path / "repo", program=False)
    sample.git("init", "-q", "-b", "main")
    sample.commit("README.md", "one\n")
    return sample


def test_tag_after_renames_of_the_file_stays(checkout: Checkout) -> None:
    changed = checkout.commit(STACK, config("2.14.0"))
    tag = checkout.tag()
    assert tag.startswith(changed)
    checkout.git("mv", STACK, OTHER)
    assert checkout.tag("other") == tag  # not yet committed
    checkout.git("commit", "-qm", "rename")
    assert checkout.tag("other") == tag
    checkout.commit(OTHER, config("2.14.0", comment="only a comment"))
    checkout.rename(OTHER, THIRD)
    checkout.commit("README.md", "two\n")
    assert checkout.tag("third") == tag


def test_tag_after_rename_and_edit_moves(checkout: Checkout) -> None:
    checkout.git("mv", STACK, OTHER)
    edited = checkout.commit(OTHER, config("2.14.0"))
    assert checkout.revision("other") == edited
    later = checkout.commit(DOCKERFILE, f"{BUILD}ENV A=b\n")
    checkout.rename(OTHER, THIRD)
    assert checkout.revision("third") == later


def test_copy_in_a_second_stack_has_the_same_tag(checkout: Checkout) -> None:
    tag = checkout.tag()
    checkout.write(OTHER, config(comment="a copy"))
    assert checkout.tag("other") == tag  # not yet committed
    checkout.commit(OTHER, config(comment="a copy"))
    assert checkout.tag("other") == checkout.tag() == tag
    changed = checkout.commit(OTHER, config("2.14.0"))
    assert (checkout.revision("other"), checkout.tag()) == (changed, tag)


def test_stack_that_catches_up_has_the_tag_of_the_first(checkout: Checkout) -> None:
    checkout.commit(OTHER, config())
    first = checkout.commit(OTHER, config("2.14.0"))
    second = checkout.commit(STACK, config("2.14.0"))
    assert checkout.revision() == checkout.revision("other") == first != second


def test_image_moved_to_another_stack_keeps_its_tag(checkout: Checkout) -> None:
    """The other stack was there before, with an image of another name alone."""
    image = "  slipway:images: [{name: trainer, dockerfile: trainer/Dockerfile, on: torch}]\n"
    checkout.write("trainer/Dockerfile", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    checkout.write(STACK, config() + image)
    built = checkout.commit(OTHER, config())
    moved = [STACK, config()], [OTHER, config() + image]
    assert plan.make("local", root=checkout.root).image("trainer").tag.startswith(f"{built}-local")
    for path, text in moved:
        checkout.write(path, text)
    checkout.commit("README.md", "two\n")
    assert plan.make("other", root=checkout.root).image("trainer").tag.startswith(f"{built}-local")


def test_rename_on_a_merged_branch_keeps_the_tag(checkout: Checkout) -> None:
    changed = checkout.commit(STACK, config("2.14.0"))
    tag = checkout.tag()
    checkout.git("checkout", "-q", "-b", "side")
    checkout.rename(STACK, OTHER)
    checkout.git("checkout", "-q", "main")
    checkout.commit("README.md", "meanwhile\n")
    checkout.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert checkout.tag("other") == tag
    assert tag.startswith(changed)


def test_tag_under_which_another_image_was_published_is_new(checkout: Checkout) -> None:
    """Two registries may have one tag with two contents, and a stack that is renamed may go to the other registry."""
    checkout.write(OTHER, config("2.14.0") + "  slipway:platform: linux/arm64\n")
    both = checkout.commit(STACK, config("2.14.0"))
    assert checkout.revision() == checkout.revision("other") == both
    checkout.git("rm", "-q", OTHER)
    renamed = checkout.rename(STACK, THIRD)
    assert checkout.revision("third") != both
    assert checkout.revision("third") == renamed


def test_other_suffix_is_another_tag(checkout: Checkout) -> None:
    checkout.git("mv", STACK, OTHER)
    renamed = checkout.commit(OTHER, config() + SUFFIXED)
    assert checkout.revision("other") == renamed


def of_registry(name: str) -> str:
    return f"  slipway:registry: {{kind: generic, repository: r.example/{name}}}\n"


@pytest.mark.parametrize("key", [SUFFIXED, of_registry("mine")])
def test_suffix_or_registry_of_another_image_gives_a_new_tag(key: str, checkout: Checkout) -> None:
    """Two stacks swap it: the last commit published the other one's image under the tag that each would have."""
    yours = key.replace("mine", "yours")
    checkout.write(STACK, config("2.14.0") + "  slipway:environment: {A: b}\n" + key)
    checkout.commit(OTHER, config("2.14.0") + yours)
    published = {stack: reference(checkout, stack) for stack in ("local", "other")}
    checkout.write(STACK, config("2.14.0") + "  slipway:environment: {A: b}\n" + yours)
    checkout.write(OTHER, config("2.14.0") + key)
    for stack in published:  # not yet committed
        assert reference(checkout, stack) not in published.values()
    checkout.commit("README.md", "two\n")
    for stack in published:
        assert reference(checkout, stack) not in published.values()
    swapped = checkout.revision()
    checkout.commit("README.md", "three\n")
    assert checkout.revision() == swapped


def test_kept_commit_counts_for_its_suffix_in_any_stack(checkout: Checkout) -> None:
    """An upgrade wrote it down: a rename keeps the tag, and a swap of suffixes takes no other image's."""
    checkout.commit(STACK, config() + SUFFIXED)
    image = plan.make("local", root=checkout.root).as_json()["published"]["torch"]
    line = f"local torch {image['fingerprint']} 1234567 {image['suffix']} {image['repository']}\n"
    checkout.commit("stacks/commits.txt", " ".join(line.split(" ")[:4]) + "\n")  # of another form
    assert checkout.revision() != "1234567"
    checkout.commit("stacks/commits.txt", line)
    assert checkout.revision() == "1234567"
    checkout.rename(STACK, OTHER)
    assert checkout.revision("other") == "1234567"
    checkout.write(
        "stacks/commits.txt", line + line.replace(image["fingerprint"], "0" * 64).replace("local", "third", 1)
    )
    assert checkout.revision("other") != "1234567"
    checkout.write("stacks/commits.txt", line)
    checkout.commit(OTHER, config() + SUFFIXED.replace("mine", "yours"))
    assert checkout.revision("other") != "1234567"


def test_kept_commit_of_two_registries_is_not_swapped(checkout: Checkout) -> None:
    """An upgrade wrote down both images under one tag; each registry has it for its own."""
    places = [f"  slipway:registry: {{kind: generic, repository: {host}.example/ml}}\n" for host in "ab"]
    checkout.write(STACK, config() + places[0])
    checkout.commit(OTHER, config() + "  slipway:environment: {A: b}\n" + places[1])
    lines = ""
    for stack in ("local", "other"):
        image = plan.make(stack, root=checkout.root).as_json()["published"]["torch"]
        lines += f"{stack} torch {image['fingerprint']} 1234567 {image['suffix']} {image['repository']}\n"
    checkout.commit("stacks/commits.txt", lines)
    assert [checkout.revision(stack) for stack in ("local", "other")] == ["1234567"] * 2
    checkout.write(STACK, config() + places[1])
    checkout.write(OTHER, config() + "  slipway:environment: {A: b}\n" + places[0])
    assert "1234567" not in [checkout.revision(stack) for stack in ("local", "other")]


def reference(checkout: Checkout, stack: str) -> str:
    (image,) = plan.make(stack, root=checkout.root).images
    return image.reference


def test_commit_with_a_stack_that_is_refused_keeps_no_tag(checkout: Checkout) -> None:
    """Nobody can tell whether it had the tag for another image."""
    checkout.write(THIRD, "config:\n  slipway:flavor: unknown\n")
    checkout.commit(STACK, config("2.14.0"))
    checkout.git("rm", "-q", THIRD)
    renamed = checkout.rename(STACK, OTHER)
    assert checkout.revision("other") == renamed
