"""What ECR expires by the policy of a repository, by the rules that its user guide documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.registry.ecr_registry import ATTACHED, lifecycle
from stacks.tags import KEEP
from tests.helpers.every import every

Rule = Mapping[str, Any]


@dataclass
class Manifest:
    """What a repository holds: its tags, and the names of the manifests that it names."""

    name: str
    tags: set[str] = field(default_factory=set)
    names: tuple[str, ...] = ()


def identified(rule: Rule, manifest: Manifest) -> bool:
    """Return whether a rule identifies a manifest."""
    selection = rule["selection"]
    if selection["tagStatus"] == "untagged":
        return not manifest.tags
    prefixes = selection.get("tagPrefixList", [])
    return all(any(tag.startswith(prefix) for tag in manifest.tags) for prefix in prefixes)


def expired(policy: Mapping[str, Any], manifests: list[Manifest]) -> set[str]:
    """Return what one evaluation expires of ``manifests``, the oldest first ("Lifecycle policy evaluation rules")."""
    names = {name for manifest in manifests for name in manifest.names}
    taken: set[str] = set()
    result: set[str] = set()
    for rule in sorted(policy["rules"], key=lambda rule: rule["rulePriority"]):
        matching = [manifest.name for manifest in manifests if identified(rule, manifest)]
        marked = matching[: -rule["selection"]["countNumber"]]
        result |= {name for name in marked if name not in taken and name not in names}
        taken |= {*matching}
    return result


def evaluate(policy: Mapping[str, Any], manifests: list[Manifest]) -> list[Manifest]:
    """Return what is left after the evaluations of many days."""
    while gone := expired(policy, manifests):
        manifests = [manifest for manifest in manifests if manifest.name not in gone]
    return manifests


def test_evaluation_of_guides_example_is_the_guides() -> None:
    """Examples of lifecycle policies, "Filtering on all images", example B, without the rule by age."""
    manifests = [Manifest("A", {"alpha-1", "beta-1"}), Manifest("C", {"alpha-2"}), Manifest("D", {"g"}), Manifest("E")]

    def rule(priority: int, **selection: Any) -> Rule:
        return {"rulePriority": priority, "selection": {"countNumber": 1, **selection}}

    rules = [rule(1, tagStatus="tagged", tagPrefixList=["alpha"]), rule(3, tagStatus="any")]
    assert expired({"rules": rules}, manifests) == {"A", "D"}


def single(number: int) -> Iterator[Manifest]:
    yield Manifest(f"image{number}", {f"{number:07}-base"})


def both(number: int) -> Iterator[Manifest]:
    """The images of two platforms and their index; the image of amd64 is a new one every tenth time."""
    parts = (f"amd64-{number // 10}", f"arm64-{number}")
    for part in parts:
        yield Manifest(part, {f"{part.replace('-', '--x')}-base"})
    yield Manifest(f"image{number}", {f"{number:07}-base"}, parts)


def signed(version: Callable[[int], Iterator[Manifest]]) -> Callable[[int], Iterator[Manifest]]:
    """Return versions in which each image has a signature and two attestations, and an index a signature."""

    def pushed(number: int) -> Iterator[Manifest]:
        manifests = [*version(number)]
        yield from manifests
        for manifest in manifests:
            tag = f"{ATTACHED}{manifest.name}"
            yield Manifest(f"{manifest.name}.sig", {f"{tag}.sig"})
            if not manifest.names:
                yield Manifest(f"{manifest.name}.sbom")
                yield Manifest(f"{manifest.name}.att", {f"{tag}.att"})

    return pushed


@every("version, manifests", [(single, 1), (both, 3), (signed(single), 4), (signed(both), 10)])
def test_lifecycle_keeps_newest_images_whole(version: Callable[[int], Iterator[Manifest]], manifests: int) -> None:
    """60 versions, of which another stack exports the third. Each evaluation meets what the one before left."""
    policy = lifecycle(5, manifests, signed=manifests > 3)
    left: list[Manifest] = []
    for number in range(60):
        for manifest in version(number):
            if manifest.name not in {old.name for old in left}:
                left.append(manifest)
        for manifest in left:
            manifest.tags.discard(f"{KEEP}this")
        image = next(manifest for manifest in left if manifest.name == f"image{number}")
        image.tags |= {f"{KEEP}this", *([f"{KEEP}other"] if number == 3 else [])}
        left = evaluate(policy, left)

    left = [manifest for manifest in left if not manifest.tags or not max(manifest.tags).startswith(ATTACHED)]
    names = {manifest.name for manifest in left if not manifest.name.endswith(".sbom")}
    images = [manifest for manifest in left if manifest.name.startswith("image") and manifest.name in names]
    assert {f"image{number}" for number in (3, *range(55, 60))} <= names
    # Shared images of a platform leave room for some more versions.
    assert len(images) <= 3 * 5
    assert names == {image.name for image in images} | {name for image in images for name in image.names}


@every("keeps", [True, False])
def test_warm_image_stays_while_its_image_is_exported(keeps: bool) -> None:
    """A stack exports and warms its third version, and others push 60 more, of which each third one is warmed."""
    policy = lifecycle(5, 2)
    left: list[Manifest] = []
    for number in range(60):
        left += single(number)
        if number == 3:
            left[-1].tags.add(f"{KEEP}other")
            left.append(Manifest("warm3", {"0000003-base-warm-k", *([f"{KEEP}other-nccl-warm"] if keeps else [])}))
        elif number % 3 == 0:
            left.append(Manifest(f"warm{number}", {f"{number:07}-base-warm-k"}))
        left = evaluate(policy, left)
        names = {manifest.name for manifest in left}
        # The warm image of a version comes after it, and goes after it.
        assert {f"warm{each}" for each in range(0, number + 1, 3) if f"image{each}" in names and each != 3} <= names
    assert "image3" in names
    assert ("warm3" in names) is keeps
