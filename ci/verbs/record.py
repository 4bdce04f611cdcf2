"""``python -m ci record``: write to the branch ``published`` what was published, and up to which commit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from ci import published_branch, repository
from ci.repository import ROOT
from stacks.errors import SlipwayError

_TRIES = 5
_ALL = {"success", "skipped"}
"""How the jobs end together where all is published; they are skipped where nothing was to be."""


def run(options: argparse.Namespace) -> int:
    """Record the files that ``publish --to`` has written; other runs may do so at the same time.

    Raises:
        SlipwayError: the branch cannot be written.
    """
    told = {file.stem: file.read_text(encoding="utf-8") for file in sorted(options.folder.glob("*.json"))}
    head = repository.run(ROOT, "rev-parse", "HEAD")
    for remaining in reversed(range(_TRIES)):
        parent = repository.fetch(ROOT, published_branch.BRANCH)
        changes = _changes(ROOT, told, head if options.result in _ALL else None)
        made = repository.commit(ROOT, parent, changes, f"Published from {head[:7]}")
        if made is None:
            print("nothing new was published")
            return 0
        try:
            repository.push(ROOT, made, published_branch.BRANCH)
        except SlipwayError:  # another run was faster
            if not remaining:
                raise
            continue
        print(f"branch {published_branch.BRANCH}: {', '.join(changes)}")
        return 0
    raise AssertionError


def _changes(root: Path, told: Mapping[str, str], head: str | None) -> dict[str, str | None]:
    """Return what is to be written, by path, but for what a later commit has published in the meantime."""
    changes: dict[str, str | None] = {}
    for stack, text in told.items():
        before = published_branch.stack(root, stack)
        if repository.follows(root, json.loads(text)["commit"], before["commit"] if before else None):
            changes[f"{published_branch.FOLDER}/{stack}.json"] = text
    if head and repository.follows(root, head, published_branch.commit(root)):
        changes[published_branch.COMMIT] = f"{head}\n"
        here = {file.name for file in (root / "stacks").glob("Pulumi.*.yaml")}
        for stack in published_branch.names(root):
            if f"Pulumi.{stack}.yaml" not in here:
                changes[f"{published_branch.FOLDER}/{stack}.json"] = None
    return changes
