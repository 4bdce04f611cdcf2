"""``python -m ci record``: write published states and their commit to the branch ``published``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ci import published_branch, repository
from ci.repository import ROOT
from containers import regular_file
from containers.errors import SlipwayError, one_line

_ATTEMPTS = 5
_LARGEST = 16 << 20
"""Bytes of a record; that of a stack with 500 images has a tenth of them."""
_COMPLETE = {"success", "skipped"}
"""Results of the publishing jobs if everything is published; they are skipped if nothing changed."""


def run(options: argparse.Namespace) -> int:
    """Record the files that ``publish --to`` wrote; other runs may do so at the same time.

    Return 1 if a stack's job left something else: the other stacks are recorded.

    Raises SlipwayError: the branch cannot be written.
    """
    head = repository.run(ROOT, "rev-parse", "HEAD")
    states, refused = {}, False
    for stack in sorted(_stacks(ROOT)):
        try:
            text = _record(options.folder / f"published-{stack}", stack, head)
        except SlipwayError as error:
            print(error, file=sys.stderr)
            refused = True
            continue
        if text is not None:
            states[stack] = text
    complete = options.result in _COMPLETE and not refused
    for remaining in reversed(range(_ATTEMPTS)):
        parent = repository.fetch(ROOT, published_branch.BRANCH)
        changes = _changes(ROOT, states, head if complete else None)
        commit = repository.commit(ROOT, parent, changes, f"Published from {head[:7]}")
        if commit is None:
            print("nothing new was published")
            return int(refused)
        try:
            repository.push(ROOT, commit, published_branch.BRANCH)
        except SlipwayError:  # another run was faster
            if not remaining:
                raise
            continue
        print(f"branch {published_branch.BRANCH}: {', '.join(changes)}")
        return int(refused)
    raise AssertionError


def _stacks(root: Path) -> set[str]:
    return {file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in (root / "stacks").glob("Pulumi.*.yaml")}


def _record(artifact: Path, stack: str, head: str) -> str | None:
    """Return what a stack's job recorded; None if it published nothing.

    The job wrote the artifact and speaks for its stack alone: one file counts, by its name, and no link.

    Raises SlipwayError: the file is not what ``publish --to`` writes at this commit.
    """
    refusal = f"stack {stack}: its job left no record of {head[:7]} in {stack}.json"
    if not os.path.lexists(artifact):
        return None
    try:
        with regular_file.opened(artifact, f"{stack}.json") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise SlipwayError(f"{refusal}: it is larger than {_LARGEST >> 20} MiB")
        text = content.decode()
        state = json.loads(text)
    except OSError as error:
        raise SlipwayError(f"{refusal}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SlipwayError(f"{refusal}: {one_line(str(error))}") from None
    if not isinstance(state, dict) or state.get("commit") != head:
        raise SlipwayError(f"{refusal}: it speaks of another commit")
    return text


def _changes(root: Path, states: Mapping[str, str], head: str | None) -> dict[str, str | None]:
    """Return the new contents of files by path, except those that a later commit published in the meantime."""
    changes: dict[str, str | None] = {}
    for stack, text in states.items():
        before = published_branch.stack(root, stack)
        if repository.follows(root, json.loads(text)["commit"], before["commit"] if before else None):
            changes[f"{published_branch.FOLDER}/{stack}.json"] = text
    if head and repository.follows(root, head, published_branch.commit(root)):
        changes[published_branch.COMMIT] = f"{head}\n"
        existing = _stacks(root)
        for stack in published_branch.names(root):
            if stack not in existing:
                changes[f"{published_branch.FOLDER}/{stack}.json"] = None
    return changes
