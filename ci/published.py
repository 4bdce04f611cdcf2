"""The branch ``published``: what the main branch has published, for anybody to read.

``stacks/<stack>.json`` is what may be public of a stack's state (:mod:`ci.deployment`); ``commit`` names the commit up
to which everything is published. Any clone with all branches has it: no credential and no further service is needed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ci import actions
from ci.repository import ROOT
from stacks.errors import SlipwayError
from stacks.git import git

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


def run(_: argparse.Namespace) -> int:
    """Set the output ``matrix``: a job for each image that is published, one that two stacks share only once."""
    refs: dict[str, dict[str, str]] = {}
    for name in names(ROOT):
        for image, built in ((stack(ROOT, name) or {}).get("outputs") or {}).get("images", {}).items():
            refs.setdefault(built["ref"], {"stack": name, "image": image, "ref": built["ref"]})
    actions.output("matrix", json.dumps({"include": list(refs.values())}))
    return 0
