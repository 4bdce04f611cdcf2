"""``python -m ci comment``: the reports of a preview, written to its pull request by a job that runs none of its code.

The reports come from a run of the pull request's own code, which may be a fork's, so that they are data: shown as text,
cut to a length, and written only to the pull request whose head that run was of, as GitHub says, not they.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ci import actions

MARK = "<!-- slipway: preview -->"
"""How our comment is known again."""

_AUTHOR = "github-actions[bot]"
_LONGEST = 60_000
"""Characters of a comment; GitHub takes 65,536."""


def run(options: argparse.Namespace) -> int:
    """Write the comment, or write it anew where there is one.

    Raises:
        SlipwayError: GitHub refuses.
    """
    of = actions.event()["workflow_run"]
    # A link would lead to what is this machine's own.
    body = text(of, [file for file in sorted(options.folder.glob("*.txt")) if file.is_file() and not file.is_symlink()])
    numbers = _pull_requests(of)
    for number in numbers:
        mine = _mine(number)
        path = f"issues/comments/{mine}" if mine else f"issues/{number}/comments"
        actions.api("PATCH" if mine else "POST", path, {"body": body})
        print(f"pull request {number}: {'comment written anew' if mine else 'commented'}")
    if not numbers:
        print(f"no open pull request has {of['head_sha'][:7]} as its head")
    return 0


def text(of: Mapping[str, Any], reports: Iterable[Path]) -> str:
    """Return the comment on a run, with its reports as text that cannot end where it stands."""
    files = list(reports)
    share = _LONGEST // max(len(files), 1)
    whole = of["conclusion"] == "success"
    said = [_report(file, share) for file in files]
    if not said:
        said = ["No image would change.\n" if whole else "That is not known: see the log.\n"]
    elif not whole:
        said = ["Reports may be missing: see the log.\n", *said]
    outcome = "was built" if whole else f"ended with **{of['conclusion']}**"
    head = f"{MARK}\n{of['head_sha'][:7]} {outcome}: [log]({of['html_url']}). What publishing it would change:\n"
    return "\n".join([head, *said])[:_LONGEST]


def _report(file: Path, longest: int) -> str:
    content = file.read_bytes()[: longest * 4].decode(errors="replace")
    shown = "".join(character for character in content if character.isprintable() or character == "\n")
    name = re.sub(r"[^A-Za-z0-9._-]", "", file.stem)
    fence = "`" * (max([2, *map(len, re.findall(r"`+", shown))]) + 1)
    room = longest - 2 * len(fence) - len(name) - 100
    cut = shown if len(shown) <= room else f"{shown[:room]}\n... (cut: the log has all of it)"
    return f"<details><summary>{name}</summary>\n\n{fence}text\n{cut.rstrip()}\n{fence}\n\n</details>\n"


def _pull_requests(of: Mapping[str, Any]) -> list[int]:
    """Return the open pull requests whose head a run was of; GitHub names none itself where that is a fork's."""
    owner = (of["head_repository"] or {}).get("owner", {}).get("login", "")
    found = actions.open_pulls(owner, of["head_branch"])
    return [pull["number"] for pull in found if pull["head"]["sha"] == of["head_sha"]]


def _mine(number: int) -> int | None:
    page = 1
    while comments := actions.api("GET", f"issues/{number}/comments?per_page={actions.PAGE}&page={page}"):
        for comment in comments:
            if comment["user"]["login"] == _AUTHOR and comment["body"].startswith(MARK):
                mine: int = comment["id"]
                return mine
        page += 1
    return None
