"""What GitHub Actions gives a job, and takes from it: variables, outputs, a summary, the event, its API.

Source: GitHub's documentation, "Variables reference" and "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacks.errors import SlipwayError, one_line

_TIMEOUT = 60

PAGE = 100
"""The most that GitHub lists at once."""


def variable(name: str) -> str:
    """Return a variable of the job.

    Raises:
        SlipwayError: it is not set, or empty, as a repository's variable is that nobody has defined.
    """
    value = os.environ.get(name)
    if not value:
        raise SlipwayError(
            f"{name} is not set; GitHub Actions sets it, or docs/guides/github-actions.md says where it comes from"
        )
    return value


def output(name: str, value: str) -> None:
    """Set an output of the step; outside of GitHub Actions, print it."""
    _append("GITHUB_OUTPUT", f"{name}={' '.join(value.splitlines())}\n")


def summary(markdown: str) -> None:
    """Add to the job's summary; outside of GitHub Actions, print it."""
    _append("GITHUB_STEP_SUMMARY", markdown)


def _append(variable_: str, text: str) -> None:
    path = os.environ.get(variable_)
    if not path:
        print(text, end="")
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def event() -> Mapping[str, Any]:
    """Return what started the workflow, as GitHub's webhooks tell it."""
    told: Mapping[str, Any] = json.loads(Path(variable("GITHUB_EVENT_PATH")).read_text(encoding="utf-8"))
    return told


def api(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Ask GitHub's REST API about this repository, as the job's own token; ``path`` is below the repository's.

    Raises:
        SlipwayError: it refuses, or cannot be reached.
    """
    url = f"{variable('GITHUB_API_URL')}/repos/{variable('GITHUB_REPOSITORY')}/{path}"
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {variable('GITHUB_TOKEN')}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    data = None if body is None else json.dumps(body).encode()
    said = ask(urllib.request.Request(url, data, headers, method=method), f"{method} {path}")  # noqa: S310 - GitHub's
    return json.loads(said) if said else None


def owner() -> str:
    """Return whose this repository is."""
    return variable("GITHUB_REPOSITORY").partition("/")[0]


def open_pulls(owner: str, branch: str) -> list[Any]:
    """Return the open pull requests of a branch of somebody's, as GitHub describes them."""
    head = urllib.parse.quote(f"{owner}:{branch}", safe="")
    found: list[Any] = api("GET", f"pulls?state=open&head={head}&per_page={PAGE}")
    return found


def ask(request: urllib.request.Request, what: str) -> bytes:
    """Return the body of an answer; ``what`` names the question in errors.

    Raises:
        SlipwayError: the server refuses, or cannot be reached.
    """
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - addresses are GitHub's own
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        why = one_line(error.read().decode(errors="replace"))
        raise SlipwayError(f"{what}: {request.host} answers {error.code}: {why}") from None
    except OSError as error:
        raise SlipwayError(f"{what}: {request.host} cannot be reached: {getattr(error, 'reason', error)}") from None
    return body
