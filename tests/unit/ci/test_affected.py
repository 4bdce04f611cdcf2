"""Which stacks a push publishes though nothing in them has changed."""

from __future__ import annotations

from typing import Any

import pytest

from ci import published_branch, repository
from ci.verbs import affected
from stacks import graph, plan

REGISTRY = {"kind": "generic", "repository": "r.example/ml"}


@pytest.mark.parametrize("elsewhere", [0, -1], ids=["first", "last"])
def test_stack_with_one_image_elsewhere_is_published_anew(elsewhere: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = graph.unlocked({"flavor": "base", "cuda": "13.0.2", "registry": REGISTRY}, "stack one")
    names = [spec.name for spec in stack.specs]
    refs = {name: f"r.example/ml/{name}@sha256:0" for name in names}
    refs[names[elsewhere]] = f"other.example/x/{names[elsewhere]}@sha256:0"
    urn = "urn:pulumi:t::slipway::slipway:image:ImageVariant::"
    resources: list[dict[str, Any]] = [
        {"urn": f"{urn}{name}", "type": "slipway:image:ImageVariant", "outputs": {"ref": ref}}
        for name, ref in refs.items()
    ]
    published = {"commit": "a" * 40, "outputs": {}, "resources": resources}
    monkeypatch.setattr(affected, "stack_names", lambda: ["one"])
    monkeypatch.setattr(plan, "resolve", lambda _: (stack.config, stack.specs))
    monkeypatch.setattr(published_branch, "stack", lambda *_: published)
    monkeypatch.setattr(repository, "follows", lambda *_: True)
    reasons: list[str] = []
    assert dict(affected._to_publish({}, "b" * 40, reasons)) == {"one": names}
    assert reasons == ["one: not published at r.example/ml yet"]
