"""Each row of the threat model has tests, and these are there."""

from __future__ import annotations

import re
from itertools import pairwise

from stacks.config.stack_file import ROOT
from tests.helpers.every import every

PAGE = (ROOT / "docs/threat-model.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


SHOWN = {row: tests.split(", ") for row, tests in rows("What shows it")}


def test_each_row_of_the_threat_model_is_shown() -> None:
    assets = [row[0] for heading in ("Who is trusted with what", "Where each secret is") for row in rows(heading)]
    assert len(assets) > 20
    assert list(SHOWN) == assets
    assert all(first != second for first, second in pairwise(assets))


@every("name", sorted({name for names in SHOWN.values() for name in names}))
def test_test_that_shows_a_row_is_there(name: str) -> None:
    path, _, test = name.strip("`").partition("::")
    text = (ROOT / "tests" / path).read_text()
    assert re.search(rf"^ *def {test or 'test_'}", text, re.MULTILINE)
    assert not test or f"def {test}(" in text
