"""A stand-in of GitHub's REST API on loopback: pull requests and their comments, and workflows that are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.loopback import serving

REPOSITORY = "/repos/acme/slipway/"


class GitHub:
    """What the API has: ``pulls`` by number as GitHub describes them, ``comments`` by number, and ``dispatched``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pulls: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.dispatched: list[Any] = []
        self.refusal = 0

    def open(self, number: int, owner: str, branch: str, sha: str) -> None:
        """Open a pull request."""
        head = {"label": f"{owner}:{branch}", "sha": sha}
        self.pulls[number] = {"number": number, "head": head}
        self.comments[number] = []

    def respond(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return the response to a request; ``path`` is below the repository's."""
        match method, path.split("/"):
            case "GET", ["pulls"]:
                return [pull for pull in self.pulls.values() if pull["head"]["label"] == query["head"][0]]
            case "POST", ["pulls"]:
                self.open(len(self.pulls) + 1, "acme", body["head"], "")
                self.pulls[len(self.pulls)] |= {key: body[key] for key in ("title", "body")}
                return self.pulls[len(self.pulls)]
            case "PATCH", ["pulls", number]:
                self.pulls[int(number)] |= {key: body[key] for key in body.keys() & {"title", "body", "state", "base"}}
                return self.pulls[int(number)]
            case "GET", ["issues", number, "comments"]:
                size, page = int(query["per_page"][0]), int(query["page"][0])
                return self.comments[int(number)][size * (page - 1) : size * page]
            case "POST", ["issues", number, "comments"]:
                comment = {
                    "id": sum(map(len, self.comments.values())) + 1,
                    "user": {"login": "github-actions[bot]"},
                    **body,
                }
                self.comments[int(number)].append(comment)
                return comment
            case "PATCH", ["issues", "comments", number]:
                (comment,) = [
                    each for comments in self.comments.values() for each in comments if each["id"] == int(number)
                ]
                return comment.update(body)
            case "POST", ["actions", "workflows", name, "dispatches"]:
                return self.dispatched.append((name, body))
        raise AssertionError(f"{method} {path}")


class _Handler(BaseHTTPRequestHandler):
    github: GitHub

    def _do(self) -> None:
        address = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        assert self.headers["Authorization"] == "Bearer the-jobs-own-token"
        if self.github.refusal:
            self._send(self.github.refusal, {"message": "Resource not accessible by integration"})
            return
        path = address.path.removeprefix(REPOSITORY)
        self._send(200, self.github.respond(self.command, path, parse_qs(address.query), body))

    do_GET = do_POST = do_PATCH = _do  # noqa: N815

    def _send(self, status: int, body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serve() -> Iterator[GitHub]:
    """Serve the API until the block ends."""
    handler: Any = type("Handler", (_Handler,), {})
    with serving(handler) as address:
        github = handler.github = GitHub(f"http://{address}")
        yield github
