"""Tags that would stand for two things are found, and those that cannot are not reported."""

from __future__ import annotations

from typing import Any

from stacks import flavors
from stacks.checks.collisions import StackImages, collisions, shared_repositories
from stacks.spec import Packages, parents_first
from tests.helpers.contents import checkout_fingerprints
from tests.helpers.every import every


def built(stack: str, flavor: str = "base", repository: str = "r.example/ml", **values: Any) -> StackImages:
    # A CUDA that has wheels of all three.
    config = flavors.load({"flavor": flavor, "cuda": "13.0.2", "torch": {"version": "2.14.1"}, **values}, stack)
    return StackImages(stack, repository, parents_first(flavors.flavor(flavor).images(config)))


def test_stacks_equal_or_with_unequal_tags_do_not_collide() -> None:
    assert collisions([built("a"), built("b"), built("c", "nccl", nccl="2.28.9-1"), built("d", cuda="12.9.1")]) == []


def test_stacks_of_different_repositories_do_not_collide() -> None:
    assert collisions([built("a"), built("b", repository="r.example/other", archList="9.0")]) == []


@every(
    "values, line",
    [
        (
            {"archList": "9.0+PTX"},
            (
                "stacks a and b: torch, torch-extras would have equal tags in r.example/ml but differ in "
                "torch ARCH_LIST ('8.0 8.9 9.0 10.0 12.0+PTX' and '9.0+PTX'), flash-attention-wheel ARCH_LIST "
                "('8.0 9.0 10.0 12.0' and '9.0'); set slipway:tagSuffix in one of them"
            ),
        ),
        (
            {"extras": {"deepspeed": "0.19.5"}},
            (
                "stacks a and b: torch-extras would have equal tags in r.example/ml but differ in "
                "deepspeed-wheel VERSION ('0.19.7' and '0.19.5'); set slipway:tagSuffix in one of them"
            ),
        ),
        (
            {"extras": {"apex": False}},
            (
                "stacks a and b: torch-extras would have equal tags in r.example/ml but differ in torch-extras "
                "APEX_WHEEL_IMAGE ('apex-wheel' and none), "
            ),
        ),
        (
            {"torch": {"source": "wheel"}},
            "stacks a and b: torch, torch-extras would have equal tags in r.example/ml but",
        ),
        (
            {"platform": "linux/arm64"},
            "stacks a and b: torch, torch-extras would have equal tags in r.example/ml but di",
        ),
    ],
)
def test_collision_of_tags_is_resolved_by_a_suffix(values: dict[str, Any], line: str) -> None:
    (reported,) = collisions([built("a"), built("b", **values)])
    assert reported.startswith(line)
    assert collisions([built("a"), built("b", **values, tagSuffix="other")]) == []


@every(
    "change, line",
    [
        ({"environment": {"A": "b"}}, "torch environment.A (none and 'b')"),
        ({"context": "images/b"}, "torch dockerfile ('dockerfiles/torch/Dockerfile' and 'images/b/torch/Dockerfile')"),
        ({"packages": Packages(requirements=("a",), pythons=(), files={"u": "0"})}, "torch packages (none and "),
    ],
)
def test_collision_is_of_all_that_an_image_is_made_of(change: dict[str, Any], line: str) -> None:
    one, other = built("a"), built("b")
    specs = [spec.model_copy(update=change) if spec.name == "torch" else spec for spec in other.specs]
    (reported,) = collisions([one, other._replace(specs=specs)])
    assert line in reported


@every("one, other", [("r.example/ml", "R.Example:443/ml"), ("docker.io/a", "registry-1.docker.io/a")])
def test_other_name_of_a_registry_is_the_same_registry(one: str, other: str) -> None:
    assert collisions([built("a", repository=one), built("b", repository=other, archList="9.0")])


def test_products_of_stacks_with_own_suffix_are_shared() -> None:
    one = built("a", "nccl", nccl="2.28.9-1")
    other = built("b", "nccl", nccl="2.28.9-1", extras={"deepspeed": "0.19.5"}, tagSuffix="other")
    before, after = checkout_fingerprints(one.specs), checkout_fingerprints(other.specs)
    assert {name for name in before if before[name] != after[name]} == {
        *("deepspeed-source", "deepspeed-wheel", "torch-extras"),
    }


def test_repository_created_by_two_stacks_is_reported() -> None:
    assert shared_repositories({"a": {"r/x"}, "b": {"r/y"}, "c": set()}) == []
    (line,) = shared_repositories({"a": {"r/x", "r/y"}, "b": {"r/y"}})
    assert line.startswith("stacks a and b: both create the repository r/y; say ")
    (line,) = shared_repositories({"a": {"r/x", "r/y", "r/z"}, "b": {"r/y", "r/z"}})
    assert line == (
        "stacks a and b: both create the repository r/y and 1 more; say slipway:registry.create: false in one of them, "
        "or give it another repository"
    )
