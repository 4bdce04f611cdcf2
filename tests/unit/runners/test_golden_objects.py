"""What runners declare in a cluster and at AWS stays as it is until somebody means to change it."""

from __future__ import annotations

from stacks.differences import differences
from tests.unit.runners.golden_objects import golden_objects, read

UPDATE = "if you mean to change these objects: run `python -m tests.unit.runners.golden_objects` and commit its file"


def test_objects_of_runners_are_the_golden_ones() -> None:
    changes = [" ".join(map(str, way)) + f": {old} -> {new}" for way, old, new in differences(read(), golden_objects())]
    assert not changes, "\n".join([*changes, UPDATE])
