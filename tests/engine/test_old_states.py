"""States that commit 25ac601 wrote, under today's code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.old_stacks import STACKS, old_state

UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")


@pytest.mark.parametrize("kind", STACKS)
def test_old_state_is_unchanged_and_can_be_updated(tmp_path: Path, kind: str) -> None:
    with STACKS[kind](tmp_path) as (project, configure):
        configure()
        project.up()
        (tmp_path / "old.json").write_text(old_state(kind, project))
        project.pulumi("stack", "import", "-s", "t", "--file", str(tmp_path / "old.json"))
        project.preview("--expect-no-changes")
        refreshed = project.refresh().output
        assert UNCHANGED.search(refreshed), refreshed
        configure(word="two")
        updated = project.up().output
        assert "Failed" not in updated
        project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
