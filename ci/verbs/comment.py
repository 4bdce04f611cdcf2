"""``python -m ci comment``: write the reports of a preview to its pull request.

The reports come from the pull request's own code, which may be a fork's. So they are untrusted data: rendered as plain
text, cut to a length, and written only to the pull request whose head the run had, according to GitHub.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ci import actions
from containers.errors import shown

MARK = "<!-- slipway: preview -->"
"""Marks our comment."""

_AUTHOR = "github-actions[bot]"
_FILES = 100
"""Most reports in a comment: each has room for a few lines then."""
_PAGES = 50
"""Most pages of comments that are looked through; ours is among the first."""
_LIMIT = 60_000
"""Characters of a comment; GitHub's limit is 65,536."""


def run(options: argparse.Namespace) -> int:
    """Create the comment, or update it. Raises SlipwayError: GitHub rejects it."""
    workflow_run = actions.event()["workflow_run"]
    # A link could lead to a file of this machine.
    files = [file for file in sorted(options.folder.glob("*.txt")) if file.is_file() and not file.is_symlink()][:_FILES]
    body = text(workflow_run, files)
    numbers = _pull_requests(workflow_run)
    for number in numbers:
        existing = _existing(number)
        path = f"issues/comments/{existing}" if existing else f"issues/{number}/comments"
        actions.api("PATCH" if existing else "POST", path, {"body": body})
        print(f"pull request {number}: {'comment updated' if existing else 'commented'}")
    if not numbers:
        print(f"no open pull request has {workflow_run['head_sha'][:7]} as its head")
    return 0


def text(workflow_run: Mapping[str, Any], reports: Iterable[Path]) -> str:
    """Return the comment on a workflow run, with its reports in fences that they cannot close."""
    files = list(reports)
    share = _LIMIT // max(len(files), 1)
    succeeded = workflow_run["conclusion"] == "success"
    sections = [_report(file, share) for file in files]
    if not sections:
        sections = ["No image would change.\n" if succeeded else "Unknown: see the log.\n"]
    elif not succeeded:
        sections = ["Reports may be missing: see the log.\n", *sections]
    outcome = "was built" if succeeded else f"ended with **{workflow_run['conclusion']}**"
    head = (
        f"{MARK}\n{workflow_run['head_sha'][:7]} {outcome}: [log]({workflow_run['html_url']}). Changes if published:\n"
    )
    return "\n".join([head, *sections])[:_LIMIT]


def _report(file: Path, limit: int) -> str:
    with file.open("rb") as opened:
        content = opened.read(limit * 4).decode(errors="replace")
    printable = shown(content)
    name = re.sub(r"[^A-Za-z0-9._-]", "", file.stem)
    fence = "`" * (max([2, *map(len, re.findall(r"`+", printable))]) + 1)
    room = limit - 2 * len(fence) - len(name) - 100
    cut = printable if len(printable) <= room else f"{printable[:room]}\n... (cut: the log has the rest)"
    return f"<details><summary>{name}</summary>\n\n{fence}text\n{cut.rstrip()}\n{fence}\n\n</details>\n"


def _pull_requests(workflow_run: Mapping[str, Any]) -> list[int]:
    """Return the open pull requests with a run's head; GitHub's event lists none of a fork."""
    owner = (workflow_run["head_repository"] or {}).get("owner", {}).get("login", "")
    pulls = actions.open_pulls(owner, workflow_run["head_branch"])
    return [pull["number"] for pull in pulls if pull["head"]["sha"] == workflow_run["head_sha"]]


def _existing(number: int) -> int | None:
    """Return the id of our comment on a pull request, if there is one."""
    for page in range(1, _PAGES + 1):
        comments = actions.api("GET", f"issues/{number}/comments?per_page={actions.PAGE}&page={page}")
        for comment in comments:
            author = (comment["user"] or {}).get("login")  # none where the account is gone
            if author == _AUTHOR and (comment["body"] or "").startswith(MARK):
                return int(comment["id"])
        if len(comments) < actions.PAGE:
            break
    return None
