"""Which stacks a push publishes though nothing in them has changed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ci import published_branch, repository
from ci.verbs import affected
from stacks import graph, plan
from stacks.spec import Elsewhere
from tests.helpers.every import every

REGISTRY = {"kind": "generic", "repository": "r.example/ml"}


STACK = graph.unlocked({"flavor": "base", "cuda": "13.0.2", "registry": REGISTRY}, "stack one")
NAMES = [spec.name for spec in STACK.specs]


def to_publish(
    monkeypatch: pytest.MonkeyPatch, outputs: dict[str, dict[str, str]], *, follows: bool
) -> tuple[dict[str, Sequence[str]], list[str]]:
    """Return what is published of a stack in which nothing changed, and why.

    `outputs` are those of the published images, and `follows` says whether they are of a commit before the change's base.
    """
    urn = "urn:pulumi:t::slipway::slipway:image:ImageVariant::"
    resources: list[dict[str, Any]] = [
        {"urn": f"{urn}{name}", "type": "slipway:image:ImageVariant", "outputs": each} for name, each in outputs.items()
    ]
    published = {"commit": "a" * 40, "outputs": {}, "resources": resources}
    monkeypatch.setattr(affected, "stack_names", lambda: ["one"])
    monkeypatch.setattr(plan, "resolve", lambda _: (STACK.config, STACK.specs))
    monkeypatch.setattr(published_branch, "stack", lambda *_: published)
    monkeypatch.setattr(repository, "follows", lambda *_: follows)
    reasons: list[str] = []
    return dict(affected._to_publish({}, "b" * 40, reasons)), reasons


@every("elsewhere", [0, -1])
def test_stack_with_one_image_elsewhere_is_published_anew(elsewhere: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {name: {"ref": f"r.example/ml/{name}@sha256:0"} for name in NAMES}
    outputs[NAMES[elsewhere]]["ref"] = f"other.example/x/{NAMES[elsewhere]}@sha256:0"
    stacks, reasons = to_publish(monkeypatch, outputs, follows=True)
    assert stacks == {"one": NAMES}
    assert reasons == ["one: not published at r.example/ml yet"]


def test_reverted_stack_is_published_anew_by_its_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was published from a commit after the base: another stack of that push had failed."""
    now = [SimpleNamespace(spec=spec, tag=f"{spec.name}-1") for spec in STACK.specs]
    monkeypatch.setattr(plan, "make", lambda _: SimpleNamespace(images=now))
    outputs = {name: {"ref": f"r.example/ml/{name}@sha256:0", "tag": f"{name}-1"} for name in NAMES}
    assert to_publish(monkeypatch, outputs, follows=False) == ({}, [])
    outputs[NAMES[0]]["tag"] = f"{NAMES[0]}-2"
    assert to_publish(monkeypatch, outputs, follows=True) == ({}, [])
    stacks, reasons = to_publish(monkeypatch, outputs, follows=False)
    assert stacks == {"one": [NAMES[0]]}
    assert reasons == [f"one: published with other tags: {NAMES[0]}"]


def test_stack_comes_after_those_that_it_stands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of stacks that stand on none keep their order, and run beside each other."""
    on = {"app": "middle", "middle": "torch", "other": "", "torch": ""}
    specs = {
        stack: [SimpleNamespace(parents={"A": Elsewhere(stack=parent, image="x")} if parent else {})]
        for stack, parent in on.items()
    }
    monkeypatch.setattr(plan, "resolve", lambda stack: (None, specs[stack]))
    ordered, chained = affected.parents_first(on)
    assert chained
    assert [stack for stack in ordered if stack != "other"] == ["torch", "middle", "app"]
    assert sorted(ordered) == sorted(on)
    assert affected.parents_first(["torch", "app", "other"]) == (["torch", "app", "other"], False)
