"""What a preview and an update say that a node must pull."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.helpers.every import every
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.pulumi_run.published_layers import PublishedLayers, forecasts, pulls

BASE, APP, WHOLE = {"sha256:b1": 30_000_000}, {"sha256:a1": 500_000_000, "sha256:a2": 250_000_000}, 2_000
REGISTRY = {
    "r/base@sha256:1": BASE,
    "r/base:t1": BASE,
    "r/app@sha256:1": {**BASE, **APP},
    "r/app@sha256:2": {**BASE, "sha256:a1": 500_000_000, "sha256:a3": 125_000_000},
    "debian:12": {"sha256:d1": 28_000_000},
}


def lookup(reference: str) -> PublishedLayers:
    if reference not in REGISTRY:
        raise ToolchainError("no such manifest")
    return PublishedLayers(REGISTRY[reference], WHOLE)


def outputs(planned: Mapping[str, Any], tag: str = "t1", **images: Any) -> dict[str, Any]:
    plan = {
        "base": {"args": {"BASE_IMAGE": "debian:12"}, "tag": tag},
        "app": {"parents": {"BASE_IMAGE": f"r/base:{tag}"}, **planned},
    }
    return {"images": images, "plan": plan, "planFiles": {"app": "1 files\n"}}


PUBLISHED: dict[str, Any] = {"base": {"ref": "r/base@sha256:1"}, "app": {"ref": "r/app@sha256:1"}}
OTHERS = "layers, 750 MB, 6.0 s at 1 Gbit/s, it pulls those that the build changes"


@every(
    "after, lines",
    [
        (outputs({"args": {"V": "1"}}), []),
        (
            outputs({"args": {"V": "2"}}),
            [
                (
                    "app: a node that has the published image keeps 1 of its 3 layers (30 MB) for certain; of the others, "
                    f"as published 2 {OTHERS}"
                ),
            ],
        ),
        (
            # The new parent is not built yet: what its own parent leaves it stays, and here that is nothing.
            outputs({"args": {"V": "1"}}, tag="t2"),
            [
                (
                    "base: only the build shows which of its layers a node with the published image keeps; "
                    "at the published sizes it pulls at most 1 layer, 30 MB, 0.2 s at 1 Gbit/s"
                ),
                (
                    "app: only the build shows which of its layers a node with the published image keeps; "
                    "at the published sizes it pulls at most 3 layers, 780 MB, 6.2 s at 1 Gbit/s"
                ),
            ],
        ),
    ],
)
def test_preview_says_which_layers_certainly_stay(after: dict[str, Any], lines: list[str]) -> None:
    found = [*forecasts(outputs({"args": {"V": "1"}}, **PUBLISHED), after, lookup)]
    assert [str(each) for each in found] == lines
    for each in found:
        told = each.as_json()
        kept = f"keeps {told['kept']['layers']} of its {told['layers']} layers"
        assert (kept in str(each)) is bool(each.kept)
        assert (told["layers"], told["most"]["size"]) == (
            told["kept"]["layers"] + told["most"]["layers"],
            each.most.size,
        )


@every("ref", ["sha256:1", "r/gone@sha256:1"])
def test_preview_of_unknown_layers_says_nothing(ref: str) -> None:
    before = outputs({"args": {"V": "1"}}, app={"ref": ref})
    assert not [*forecasts(before, outputs({"args": {"V": "2"}}), lookup)]


@every(
    "before, after, lines",
    [
        ("r/app@sha256:1", "r/app@sha256:1", []),
        ("", "r/app@sha256:2", []),
        ("sha256:1", "sha256:2", []),
        ("r/gone@sha256:1", "r/app@sha256:2", []),
        (
            "r/app@sha256:1",
            "r/app@sha256:2",
            ["  a node that has the image of before pulls 1 layer, 125 MB, 1.0 s at 1 Gbit/s, without unpacking"],
        ),
    ],
)
def test_update_says_what_a_node_pulls(before: str, after: str, lines: list[str]) -> None:
    assert [*pulls({"images": {"app": {"ref": before}}}, "app", after, lookup)] == lines
