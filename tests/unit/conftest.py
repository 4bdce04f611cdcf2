"""What holds for every test of one module."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stacks.identity import history
from stacks.identity.older_trees import fingerprint_record
from stacks.places import ROOT
from stacks.tags import Revision
from tests.helpers import own_world

SEARCH = history.find
"""Finds the commits of images in a repository's history."""


@pytest.fixture(autouse=True, scope="module")
def _no_network() -> Iterator[None]:
    """Have a test reach what it starts alone: no index, proxy, engine, registry or mirror of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        own_world.leave_network(patch)
        yield


@cache
def _recorded() -> dict[str, set[str]]:
    """Return the fingerprints that this checkout's record has, by stack."""
    lines = (line.split() for line in (ROOT / fingerprint_record.FILE).read_text().splitlines())
    recorded: dict[str, set[str]] = {}
    for stack, _, fingerprint in lines:
        recorded.setdefault(stack, set()).add(fingerprint)
    return recorded


@pytest.fixture(autouse=True, scope="module")
def _no_search_of_this_history() -> Iterator[None]:
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "find", find)
        yield
