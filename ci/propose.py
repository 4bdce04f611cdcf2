"""``python -m ci propose``: a pull request with what a job has changed in its checkout."""

from __future__ import annotations

import argparse

from ci import actions, repository
from ci.repository import ROOT

_PREVIEW = "preview.yml"


def run(options: argparse.Namespace) -> int:
    """Push the files named, as they are now, on a branch of their own, open a pull request, and preview it.

    What the job's own token pushes starts no workflow (GitHub's rule against loops); asking for one does.

    Raises:
        SlipwayError: git or GitHub refuses.
    """
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in options.paths}
    made = repository.commit(ROOT, repository.run(ROOT, "rev-parse", "HEAD"), dict(texts), options.title)
    if made is None:
        print("nothing changed")
        return 0
    repository.push(ROOT, made, options.branch, force=True)
    owner = actions.variable("GITHUB_REPOSITORY").partition("/")[0]
    opened = actions.open_pulls(owner, options.branch)
    if not opened:
        asked = {"title": options.title, "head": options.branch, "base": actions.variable("GITHUB_REF_NAME")}
        opened = [actions.api("POST", "pulls", {**asked, "body": "Written by the workflow `nightly`."})]
    actions.api("POST", f"actions/workflows/{_PREVIEW}/dispatches", {"ref": options.branch})
    print(f"pull request {opened[0]['number']}: {options.title}")
    return 0
