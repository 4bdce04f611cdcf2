"""CONTRIBUTING.md is true: the files that its table names are there, and its examples pass `slipway check`."""

from __future__ import annotations

import re

from stacks.config.stack_file import ROOT
from tests.helpers.every import every
from tests.unit.docs.pages import page, table

GUIDE = page("CONTRIBUTING.md")
ROWS = {change: (files, proof) for change, files, proof in table(GUIDE.text, "Change")}
CHANGES = {
    "flavor",
    "registry kind",
    "config key",
    "extra",
    "pinned version",
    "distribution",
    "CUDA release",
    "node type",
    "check",
    "command",
    "tag field",
    "provider version",
    "webhook",
}


def test_table_has_a_row_for_each_kind_of_change() -> None:
    assert set(ROWS) == CHANGES


@every("change", sorted(CHANGES))
def test_row_names_files_that_exist(change: str) -> None:
    files, proof = ROWS[change]
    named = re.findall(r"`([^`]+)`", files)
    assert named
    assert not [path for path in named if not list(ROOT.glob(re.sub(r"<\w+>", "*", path)))]
    assert not [path for path in re.findall(r"tests/\S+?(?=[ `])", proof) if not (ROOT / path).exists()]
