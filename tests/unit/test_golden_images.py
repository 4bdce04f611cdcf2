"""What the stacks build stays as it is until somebody means to change it."""

from __future__ import annotations

from stacks.config.stack_file import ROOT
from stacks.differences import differences
from stacks.identity.older_trees import fingerprint_record as record
from tests.unit.golden_images import fingerprints, golden_images, read

UPDATE = "if you mean to change these images: run `python -m tests.unit.golden_images` and commit what it writes"


def test_images_of_all_stacks_are_the_golden_ones() -> None:
    changes = [" ".join(way) + f": {old} -> {new}" for way, old, new in differences(read(), golden_images())]
    assert not changes, "\n".join([*changes, UPDATE])


def test_record_has_what_all_stacks_build() -> None:
    lines = (ROOT / record.FILE).read_text().splitlines()
    changes = sorted({*lines} ^ {*record.text(fingerprints()).splitlines()})
    assert not changes, "\n".join([*changes, UPDATE])
