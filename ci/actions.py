"""The interface of a GitHub Actions job: variables, outputs, summary, event, API.

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

from containers.errors import SlipwayError, one_line

_TIMEOUT = 60
_LONGEST = 64 << 20
"""Most bytes of a response."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows GitHub to a repository's new name, and to no other host: the job's token would go there too."""

    def redirect_request(self, req: urllib.request.Request, *response: Any) -> urllib.request.Request | None:
        """Return the request to make instead; none makes an error of the redirection."""
        here, there = (urllib.parse.urlsplit(url)[:2] for url in (req.full_url, response[-1]))
        return super().redirect_request(req, *response) if here == there else None


_OPENER = urllib.request.build_opener(_SameHost)

PAGE = 100
"""Largest number of items on one page of GitHub's API."""


def variable(name: str) -> str:
    """Return a variable of the job.

    Raises SlipwayError: it is unset, or empty, as an undefined variable of a repository is.
    """
    value = os.environ.get(name)
    if not value:
        raise SlipwayError(f"{name} is not set; GitHub Actions sets it, or docs/guides/github-actions.md describes it")
    return value


def output(name: str, value: str) -> None:
    """Set an output of the step; outside GitHub Actions, print it."""
    _append("GITHUB_OUTPUT", f"{name}={' '.join(value.splitlines())}\n")


def summary(markdown: str) -> None:
    """Add to the job's summary; outside GitHub Actions, print it."""
    _append("GITHUB_STEP_SUMMARY", markdown)


def _append(variable_: str, text: str) -> None:
    path = os.environ.get(variable_)
    if not path:
        print(text, end="")
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def event() -> Mapping[str, Any]:
    """Return the webhook payload of the event that started the workflow."""
    payload: Mapping[str, Any] = json.loads(Path(variable("GITHUB_EVENT_PATH")).read_text(encoding="utf-8"))
    return payload


def api(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Call GitHub's REST API with the job's token, and return the JSON response; ``path`` is below the repository's.

    Raises SlipwayError: GitHub rejects the request, or is unreachable.
    """
    url = f"{variable('GITHUB_API_URL')}/repos/{variable('GITHUB_REPOSITORY')}/{path}"
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {variable('GITHUB_TOKEN')}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - GitHub's
    response = send(request, f"{method} {path}")
    try:
        return json.loads(response) if response else None
    except (ValueError, RecursionError):
        raise SlipwayError(f"{method} {path}: {request.host} responds with something other than JSON") from None


def owner() -> str:
    """Return the owner of this repository."""
    return variable("GITHUB_REPOSITORY_OWNER")


def open_pulls(owner: str, branch: str) -> list[Any]:
    """Return the open pull requests from a branch of ``owner``, as GitHub's API describes them."""
    head = urllib.parse.quote(f"{owner}:{branch}", safe="")
    pulls: list[Any] = api("GET", f"pulls?state=open&head={head}&per_page={PAGE}")
    return pulls


def send(request: urllib.request.Request, subject: str) -> bytes:
    """Return the body of a response; ``subject`` begins errors.

    Raises SlipwayError: the server rejects the request, or is unreachable.
    """
    try:
        with _OPENER.open(request, timeout=_TIMEOUT) as response:
            body: bytes = response.read(_LONGEST + 1)
    except urllib.error.HTTPError as error:
        reason = one_line(error.read().decode(errors="replace"))
        raise SlipwayError(f"{subject}: {request.host} responds {error.code}: {reason}") from None
    except OSError as error:
        raise SlipwayError(f"{subject}: {request.host} is unreachable: {getattr(error, 'reason', error)}") from None
    if len(body) > _LONGEST:
        raise SlipwayError(f"{subject}: {request.host} responds with more than {_LONGEST >> 20} MiB")
    return body
