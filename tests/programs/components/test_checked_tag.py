"""The tag of an image that passed its checks, and in which everything loads."""

from __future__ import annotations

import pytest

from components.supply_chain.checked_tag import TagChecked
from containers.errors import SlipwayError
from tests.fakes.registry import Registry
from tests.unit.components import test_checked_tag as gate
from tests.unit.components.test_checked_tag import PROGRAM, inspected

registry = gate.registry


def test_image_without_a_library_gets_no_tag(registry: Registry) -> None:
    given = inspected(registry, {"opt/a": PROGRAM, "opt/b": PROGRAM})
    with pytest.raises(SlipwayError) as refusal:
        TagChecked().create(given)
    lines = str(refusal.value).split("\n")
    assert lines[0].startswith(f"{given['ref']}: not tagged because of 2 faults; ")
    assert "slipway:inspection.exceptions" in lines[0]
    assert lines[1:] == [f"  /opt/{name}: missing libgone.so.1: not in the image" for name in "ab"]
    assert "a/loads:x1" not in registry.digests
