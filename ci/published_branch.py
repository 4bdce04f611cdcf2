"""The branch ``published``: what the main branch has published.

``stacks/<stack>.json`` is the public part of a stack's state (:mod:`ci.public_state`);
``commit`` names the commit up to which everything is published.
Every clone with all branches has it, without credentials or another service.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from containers.errors import SlipwayError
from containers.evidence import shape
from stacks.identity.git import git

BRANCH = "published"
COMMIT = "commit"
FOLDER = "stacks"

_FETCHED = f"refs/remotes/origin/{BRANCH}"


def commit(root: Path) -> str | None:
    """Return the commit up to which everything is published; None if nothing is."""
    return (git(root, "show", f"{_FETCHED}:{COMMIT}") or "").strip() or None


def stack(root: Path, name: str) -> dict[str, Any] | None:
    """Return the public state of a stack; None if it is not published.

    Raises SlipwayError: the file is not what ``record`` writes.
    """
    text = git(root, "show", f"{_FETCHED}:{FOLDER}/{name}.json")
    if text is None:
        return None
    try:
        state: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise SlipwayError(f"branch {BRANCH}: {FOLDER}/{name}.json: {error}; publish the stack again") from None
    return state


def outputs(root: Path, name: str) -> dict[str, Any]:
    """Return the outputs of a published stack.

    Raises SlipwayError: it is not published, or the file is not what ``record`` writes.
    """
    published = stack(root, name)
    if published is None:
        raise SlipwayError(f"stack {name}: the branch {BRANCH} has nothing of it; the workflow publish comes first")
    with shape.expected(f"branch {BRANCH}: {FOLDER}/{name}.json", "record"):
        return dict(published["outputs"])


def names(root: Path) -> list[str]:
    """Return the published stacks, sorted."""
    listed = git(root, "ls-tree", "--name-only", f"{_FETCHED}:{FOLDER}") or ""
    return [name.removesuffix(".json") for name in listed.splitlines()]
