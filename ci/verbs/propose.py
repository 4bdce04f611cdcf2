"""``python -m ci propose``: open a pull request with a job's changes in its checkout."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ci import actions, repository
from ci.repository import ROOT
from stacks.identity.git import git

_PREVIEW = "preview.yml"
_BODY = "Written by the workflow `nightly`. The report of `preview` lists what is built again."


def run(options: argparse.Namespace) -> int:
    """Push the present content of some files to a branch, open a pull request, and start its preview.

    GitHub starts no workflow for a push with the job's token, to prevent loops; so the preview is dispatched. An open
    pull request with the same content stays as it is; with other content it gets the title of that content.

    Raises SlipwayError: git or GitHub fails.
    """
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in options.paths}
    commit = repository.commit(ROOT, repository.run(ROOT, "rev-parse", "HEAD"), dict(texts), options.title)
    if commit is None:
        print("nothing changed")
        return 0
    is_current = _is_current(commit, repository.fetch(ROOT, options.branch), options.paths)
    pulls = actions.open_pulls(actions.owner(), options.branch)
    if is_current and pulls:
        print(f"pull request {pulls[0]['number']}: unchanged")
        return 0
    # Before the push, after which the next run takes the pull request for done.
    if pulls and pulls[0]["title"] != options.title:  # of a job that proposed something else on this branch
        actions.api("PATCH", f"pulls/{pulls[0]['number']}", {"title": options.title})
    if not is_current:
        repository.push(ROOT, commit, options.branch, force=True)
    if not pulls:
        request = {"title": options.title, "head": options.branch, "base": actions.variable("GITHUB_REF_NAME")}
        pulls = [actions.api("POST", "pulls", {**request, "body": _BODY})]
    actions.api("POST", f"actions/workflows/{_PREVIEW}/dispatches", {"ref": options.branch})
    print(f"pull request {pulls[0]['number']}: {options.title}")
    return 0


def _is_current(commit: str, branch: str | None, paths: Sequence[str]) -> bool:
    """Return whether a branch has the files of a commit, and starts at the same versions of them as HEAD."""
    ranges = ([f"{branch}", commit], [f"{branch}...HEAD"])  # the latter from the merge base
    return branch is not None and all(git(ROOT, "diff", "--quiet", *ends, "--", *paths) is not None for ends in ranges)
