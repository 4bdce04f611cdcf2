"""The branch ``published``: what the main branch has published, for anybody to read.

``stacks/<stack>.json`` is what may be public of a stack's state (:mod:`ci.public_state`);
``commit`` names the commit up to which everything is published.
Any clone with all branches has it: no credential and no further service is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stacks.errors import SlipwayError
from stacks.identity.git import git

BRANCH = "published"
COMMIT = "commit"
FOLDER = "stacks"

_FETCHED = f"refs/remotes/origin/{BRANCH}"


def commit(root: Path) -> str | None:
    """Return the commit up to which everything is published; None where nothing is."""
    return (git(root, "show", f"{_FETCHED}:{COMMIT}") or "").strip() or None


def stack(root: Path, name: str) -> dict[str, Any] | None:
    """Return what is published of a stack; None where nothing is.

    Raises:
        SlipwayError: the file is not what ``record`` writes.
    """
    text = git(root, "show", f"{_FETCHED}:{FOLDER}/{name}.json")
    if text is None:
        return None
    try:
        told: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise SlipwayError(f"branch {BRANCH}: {FOLDER}/{name}.json: {error}; publish the stack anew") from None
    return told


def names(root: Path) -> list[str]:
    """Return the stacks of which something is published, sorted."""
    listed = git(root, "ls-tree", "--name-only", f"{_FETCHED}:{FOLDER}") or ""
    return [name.removesuffix(".json") for name in listed.splitlines()]
