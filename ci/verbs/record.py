"""``python -m ci record``: write published states and their commit to the branch ``published``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from ci import published_branch, repository
from ci.repository import ROOT
from stacks.errors import SlipwayError

_ATTEMPTS = 5
_COMPLETE = {"success", "skipped"}
"""Results of the publishing jobs if everything is published; they are skipped if nothing changed."""


def run(options: argparse.Namespace) -> int:
    """Record the files that ``publish --to`` wrote; other runs may do so at the same time.

    Raises:
        SlipwayError: the branch cannot be written.
    """
    states = {file.stem: file.read_text(encoding="utf-8") for file in sorted(options.folder.glob("*.json"))}
    head = repository.run(ROOT, "rev-parse", "HEAD")
    for remaining in reversed(range(_ATTEMPTS)):
        parent = repository.fetch(ROOT, published_branch.BRANCH)
        changes = _changes(ROOT, states, head if options.result in _COMPLETE else None)
        commit = repository.commit(ROOT, parent, changes, f"Published from {head[:7]}")
        if commit is None:
            print("nothing new was published")
            return 0
        try:
            repository.push(ROOT, commit, published_branch.BRANCH)
        except SlipwayError:  # another run was faster
            if not remaining:
                raise
            continue
        print(f"branch {published_branch.BRANCH}: {', '.join(changes)}")
        return 0
    raise AssertionError


def _changes(root: Path, states: Mapping[str, str], head: str | None) -> dict[str, str | None]:
    """Return the new contents of files by path, except those that a later commit published in the meantime."""
    changes: dict[str, str | None] = {}
    for stack, text in states.items():
        before = published_branch.stack(root, stack)
        if repository.follows(root, json.loads(text)["commit"], before["commit"] if before else None):
            changes[f"{published_branch.FOLDER}/{stack}.json"] = text
    if head and repository.follows(root, head, published_branch.commit(root)):
        changes[published_branch.COMMIT] = f"{head}\n"
        existing = {file.name for file in (root / "stacks").glob("Pulumi.*.yaml")}
        for stack in published_branch.names(root):
            if f"Pulumi.{stack}.yaml" not in existing:
                changes[f"{published_branch.FOLDER}/{stack}.json"] = None
    return changes
