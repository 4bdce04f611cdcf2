"""The tag of an image that passed its checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from components.supply_chain.checked_tag import TagChecked
from stacks.errors import SlipwayError
from tests.fakes.registry import MANIFEST, Registry, serve, skip_retry_waits


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with one image that has no other tag."""
    skip_retry_waits(monkeypatch)
    with serve() as served:
        served.manifest("a/image:unchecked--x1", MANIFEST, {"layers": []})
        yield served


def inputs(registry: Registry, checked: str | None = None) -> dict[str, Any]:
    digest = str(registry.digests["a/image:unchecked--x1"])
    ref = f"{registry.address}/a/image@{digest}"
    return {"ref": ref, "tag": "x1", "checked": checked or digest.removeprefix("sha256:"), "name": None}


def test_checked_image_gets_its_tag(registry: Registry) -> None:
    created = TagChecked().create(inputs(registry))
    assert created.outs is not None
    assert created.outs["name"] == f"{registry.address}/a/image:x1"
    assert registry.digests["a/image:x1"] == registry.digests["a/image:unchecked--x1"]


def test_tag_of_the_same_image_is_not_set_again(registry: Registry) -> None:
    TagChecked().create(inputs(registry))
    registry.requests.clear()
    TagChecked().create(inputs(registry))
    assert "PUT" not in repr(registry.requests)


def test_image_other_than_the_checked_one_gets_no_tag(registry: Registry) -> None:
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(inputs(registry, "0" * 64))
    assert "\n" not in str(refusal.value)
    assert f"not tagged x1, because the last checks were those of sha256:{'0' * 64}; " in str(refusal.value)
    assert not registry.requests


def test_changed_checks_of_tagged_image_are_no_change(registry: Registry) -> None:
    state = TagChecked().create(inputs(registry)).outs
    assert state is not None
    assert not TagChecked().diff("", state, inputs(registry)).changes
    assert TagChecked().diff("", state, inputs(registry) | {"tag": "x2"}).changes
