"""This checkout's history, in which a test that reads no commit in a tag need not search."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stacks.identity import history
from stacks.identity.older_trees import fingerprint_record
from stacks.places import ROOT
from stacks.tags import Revision

SEARCH = history.find
"""Finds the commits of images in a repository's history."""


@cache
def _recorded() -> dict[str, set[str]]:
    """Return the fingerprints that this checkout's record has, by stack."""
    lines = (line.split() for line in (ROOT / fingerprint_record.FILE).read_text().splitlines())
    recorded: dict[str, set[str]] = {}
    for stack, _, fingerprint in lines:
        recorded.setdefault(stack, set()).add(fingerprint)
    return recorded


def leave_search(patch: pytest.MonkeyPatch) -> None:
    """Have the last commit be that of all images of this checkout, with a mark where a test changed one.

    A search of the checkout's commits takes seconds for each configuration of a test. Repositories of the tests are
    searched, and so is this one by the programs that tests start.
    """

    def find(
        stack: str, fingerprints: Mapping[str, str], suffixes: Mapping[str, str], files: Any, root: Path, *more: Any
    ) -> dict[str, Revision]:
        if root != ROOT:
            return SEARCH(stack, fingerprints, suffixes, files, root, *more)
        known, newest = _recorded().get(stack, set()), history.newest(fingerprints, root)
        marks = {name: None if value in known else value[:8] for name, value in fingerprints.items()}
        return {name: newest[name].model_copy(update={"mark": mark}) for name, mark in marks.items()}

    patch.setattr(history, "find", find)
