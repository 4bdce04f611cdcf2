"""What the stacks build stays as it is until somebody means to change it."""

from __future__ import annotations

from stacks.differences import differences
from tests.unit.golden_images import golden_images, read

UPDATE = "if you mean to change these images: run `python -m tests.unit.golden_images` and commit golden_images.json"


def test_images_of_all_stacks_are_the_golden_ones() -> None:
    changes = [" ".join(way) + f": {old} -> {new}" for way, old, new in differences(read(), golden_images())]
    assert not changes, "\n".join([*changes, UPDATE])
