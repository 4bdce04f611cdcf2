"""Specs and their graph: order, mistakes, labels, fingerprints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec, Outside, Sibling, parents_first
from stacks.tags import Suffix
from tests.helpers.contents import content
from tests.helpers.every import every


def image(name: str, *parents: str, **changes: Any) -> ImageSpec:
    return ImageSpec.model_validate(
        {
            "name": name,
            "dockerfile": f"{name}/Dockerfile",
            "parents": {f"P{i}": Sibling(image=p) for i, p in enumerate(parents)}
            or {"BASE_IMAGE": Outside(reference="b:1")},
            "description": "d",
            "licenses": "MIT",
            "suffix": Suffix(variant="base", torch="2.0.1"),
            **changes,
        }
    )


@given(st.permutations(["a", "b", "c", "d"]))
def test_parents_first_of_any_order_is_the_same(order: list[str]) -> None:
    graph = {"a": image("a"), "b": image("b", "a"), "c": image("c", "a", "b"), "d": image("d", "c")}
    names = [spec.name for spec in parents_first(graph[name] for name in order)]
    assert names == ["a", "b", "c", "d"]


@every(
    "specs, message",
    [
        ([image("a", "nope")], "image 'a' needs 'nope', which the stack does not build; it builds: a"),
        ([image("a"), image("a")], "two images of the stack are named 'a'"),
        ([image("a", "b"), image("b", "a")], "images cannot be each other's parents: "),
    ],
)
def test_parents_first_of_impossible_graph_is_one_line(specs: list[ImageSpec], message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        parents_first(specs)
    assert str(caught.value).startswith(message)


def test_labels_have_versions_and_no_revision() -> None:
    spec = image("a")
    assert spec.labels == {
        "org.opencontainers.image.title": "a",
        "org.opencontainers.image.description": "d",
        "org.opencontainers.image.version": "base-torch2.0.1",
        "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.base.name": "b:1",
    }
    assert spec.label_args["LABEL_BASE_NAME"] == "b:1"
    assert set(spec.label_args.values()) == set(spec.labels.values())


def test_argument_as_value_and_parent_is_refused() -> None:
    with pytest.raises(ValueError, match="BASE_IMAGE: an argument is a parent or a value, not both"):
        image("a", args={"BASE_IMAGE": "x"})


def prints(changed: dict[str, Any], files: dict[str, str] | None = None, dockerfile: str = "") -> dict[str, str]:
    return fingerprints([content(image("a", **changed), files, dockerfile), content(image("b", "a"))])


@every("change", [{"args": {"X": "2"}}, {"platform": "linux/arm64"}])
def test_fingerprint_of_changed_parent_changes_child(change: dict[str, Any]) -> None:
    before, after = prints({}), prints(change)
    assert before["a"] != after["a"]
    assert before["b"] != after["b"]


@every("change", [{"files": {"a/run": "2"}}, {"dockerfile": "FROM debian\n"}])
def test_fingerprint_of_changed_file_changes_image_and_children(change: dict[str, Any]) -> None:
    before, after = prints({}), prints({}, **change)
    assert before == prints({})
    assert before["a"] != after["a"]
    assert before["b"] != after["b"]
