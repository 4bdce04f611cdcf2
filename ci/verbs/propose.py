"""``python -m ci propose``: a pull request with what a job has changed in its checkout."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ci import actions, repository
from ci.repository import ROOT
from stacks.identity.git import git

_PREVIEW = "preview.yml"


def run(options: argparse.Namespace) -> int:
    """Push the files named, as they are now, on a branch of their own, open a pull request, and preview it.

    What the job's own token pushes starts no workflow before somebody has approved it (GitHub's rule against loops);
    asking for one does. A pull request that proposes just that already stays as it is, with all that was said of it.

    Raises:
        SlipwayError: git or GitHub refuses.
    """
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in options.paths}
    made = repository.commit(ROOT, repository.run(ROOT, "rev-parse", "HEAD"), dict(texts), options.title)
    if made is None:
        print("nothing changed")
        return 0
    same = _same(made, repository.fetch(ROOT, options.branch), options.paths)
    opened = actions.open_pulls(actions.owner(), options.branch)
    if same and opened:
        print(f"pull request {opened[0]['number']}: proposes that already")
        return 0
    if not same:
        repository.push(ROOT, made, options.branch, force=True)
    if not opened:
        asked = {"title": options.title, "head": options.branch, "base": actions.variable("GITHUB_REF_NAME")}
        opened = [actions.api("POST", "pulls", {**asked, "body": "Written by the workflow `nightly`."})]
    actions.api("POST", f"actions/workflows/{_PREVIEW}/dispatches", {"ref": options.branch})
    print(f"pull request {opened[0]['number']}: {options.title}")
    return 0


def _same(made: str, there: str | None, paths: Sequence[str]) -> bool:
    """Say whether a branch has the files as a commit has them, and began where they were as they are here."""
    compared = ([f"{there}", made], [f"{there}...HEAD"])  # the latter from where the two histories parted
    return there is not None and all(git(ROOT, "diff", "--quiet", *ends, "--", *paths) is not None for ends in compared)
