"""What the stacks build stays as it is until somebody means to change it."""

from __future__ import annotations

import copy
import json

from stacks.config.stack_file import ROOT
from stacks.identity.older_trees import fingerprint_record as record
from tests.unit.golden_images import changes, fingerprints, golden_images, read, text

UPDATE = "if you mean to change these images: run `python -m tests.unit.golden_images` and commit what it writes"


def test_images_of_all_stacks_are_the_golden_ones() -> None:
    changed = changes(read(), golden_images())
    assert not changed, "\n".join([*changed, UPDATE])


def test_change_is_named_by_field_image_and_values() -> None:
    golden = golden_images()
    images = copy.deepcopy({"local": golden["local"]})
    args = images["local"]["torch"]["args"]
    args["TORCH_VERSION"], args["NEW"] = "1.0", "é"
    version = golden["local"]["torch"]["args"]["TORCH_VERSION"]
    assert changes(golden, {**golden, **json.loads(text(images))}) == [
        f"local torch args TORCH_VERSION: {version} -> 1.0",
        "local torch args NEW: None -> é",
    ]


def test_record_has_what_all_stacks_build() -> None:
    lines = (ROOT / record.FILE).read_text().splitlines()
    changes = sorted({*lines} ^ {*record.text(fingerprints()).splitlines()})
    assert not changes, "\n".join([*changes, UPDATE])
