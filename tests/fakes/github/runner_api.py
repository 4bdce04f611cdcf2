"""A stand-in for GitHub's API, of which it has what the keeper asks: runners, their registration, and jobs' states."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghp_of-the-tests"


class World:
    """What this GitHub knows; ``again`` are jobs that are run again, which ``running`` does not allow yet.

    ``unreadable`` is its answer for jobs of repositories that who asks may not read, by job; ``forbidden`` what it says
    where nothing may be run again. ``queue`` are the jobs of the one workflow run that is queued.
    ``deprecations`` is from when on runners of each release get no job.
    """

    def __init__(self) -> None:
        self.runners: dict[int, dict[str, Any]] = {}
        self.jobs: dict[int, str] = {}
        self.again: list[int] = []
        self.deliveries: list[dict[str, Any]] = []
        self.redelivered: list[int] = []
        self.running = False
        self.unreadable: dict[int, int] = {}
        self.forbidden: str | None = None
        self.requests: list[str] = []
        self.tokens = {TOKEN}
        self.bearers: list[str] = []
        self.down = False
        self.queue: list[dict[str, Any]] = []
        self.deprecations: dict[str, str | None] = {}

    def register(self, name: str) -> dict[str, Any] | None:
        """Register a runner; none where there is one of that name."""
        if any(runner["name"] == name for runner in self.runners.values()):
            return None
        number = max(self.runners, default=0) + 1
        self.runners[number] = {"id": number, "name": name, "status": "offline", "busy": False}
        return self.runners[number]

    def named(self, name: str) -> dict[str, Any]:
        """Return the runner of a name."""
        return next(runner for runner in self.runners.values() if runner["name"] == name)

    def finish(self, name: str) -> None:
        """End the job of a runner for one job, which removes the runner."""
        del self.runners[self.named(name)["id"]]

    def respond(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and body of a response, as GitHub's REST API documents it."""
        split = urlsplit(path)
        if match := re.fullmatch(r"/app/installations/(\d+)/access_tokens", split.path):
            self.tokens.add(f"ghs_{match[1]}")
            return 201, {"token": f"ghs_{match[1]}"}
        if match := re.fullmatch(r"/repos/[^/]+/[^/]+/actions/jobs/(\d+)", split.path):
            if status := self.unreadable.get(int(match[1])):
                return status, {"message": "Resource not accessible by integration"}
            state = self.jobs.get(int(match[1]))
            return (200, {"id": int(match[1]), "status": state}) if state else (404, {"message": "Not Found"})
        if match := re.fullmatch(r"/repos/[^/]+/[^/]+/actions/runs(/7/jobs)?", split.path):
            return 200, self._runs(parse_qs(split.query), jobs=bool(match[1]))
        if split.path == "/app/hook/deliveries":
            return 200, self._deliveries(parse_qs(split.query))
        if match := re.fullmatch(r"/app/hook/deliveries/(\d+)/attempts", split.path):
            self.redelivered.append(int(match[1]))
            return 202, {}
        if match := re.fullmatch(r"/repos/[^/]+/[^/]+/actions/jobs/(\d+)/rerun", split.path):
            if self.forbidden:
                return 403, {"message": self.forbidden}
            if self.running:
                return 403, {"message": "The workflow run containing this job is already running"}
            self.again.append(int(match[1]))
            return 201, {}
        if split.path.endswith("/generate-jitconfig"):
            runner = self.register(body["name"])
            if runner is None:
                return 409, {"message": "Already exists - A runner with the name already exists"}
            config = base64.b64encode(json.dumps(body).encode() + b" " * 4000).decode()
            return 201, {"runner": runner, "encoded_jit_config": config}
        if match := re.fullmatch(
            r"/(?:orgs/acme|repos/acme/images)/actions/runners(?:/(\d+|deprecations/.+))?", split.path
        ):
            return self._runner(method, match[1], parse_qs(split.query))
        return 404, {"message": "Not Found"}

    def _runs(self, query: dict[str, list[str]], *, jobs: bool) -> dict[str, Any]:
        """Return the one workflow run that is queued, or its jobs."""
        if not jobs:
            return {"workflow_runs": [{"id": 7}] * (query["status"] == ["queued"])}
        first = 100 * (int(query.get("page", ["1"])[0]) - 1)
        return {"total_count": len(self.queue), "jobs": self.queue[first : first + 100]}

    def _deliveries(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        """Return the page that starts at the delivery of ``cursor``."""
        ids = [f"v1_{delivery['id']}" for delivery in self.deliveries]
        start = ids.index(query["cursor"][0]) if "cursor" in query else 0
        return self.deliveries[start : start + int(query["per_page"][0])]

    def link(self, path: str, page: Any) -> str | None:
        """Return the header with the next page's address; None for the last page."""
        if urlsplit(path).path != "/app/hook/deliveries" or not page or page[-1] is self.deliveries[-1]:
            return None
        next_delivery = self.deliveries[self.deliveries.index(page[-1]) + 1]
        first = '<https://api.github.com/app/hook/deliveries?per_page=100>; rel="first"'
        where = f"https://api.github.com/app/hook/deliveries?per_page=100&cursor=v1_{next_delivery['id']}"
        return f'{first}, <{where}>; rel="next"'

    def _runner(self, method: str, number: str | None, query: dict[str, list[str]]) -> tuple[int, Any]:
        release = (number or "").removeprefix("deprecations/")
        if release in self.deprecations:
            return 200, {"runner_version": release, "runtime_deprecates_at": self.deprecations[release]}
        if method == "GET" and not release:
            size, page = int(query["per_page"][0]), int(query["page"][0])
            listed = list(self.runners.values())
            return 200, {"total_count": len(listed), "runners": listed[size * (page - 1) : size * page]}
        runner = self.runners.get(int(release)) if release.isdigit() else None
        if runner is None:
            return 404, {"message": "Not Found"}
        if method == "GET":
            return 200, runner
        if runner["busy"]:
            return 422, {"message": "Runner is currently running a job and cannot be deleted."}
        del self.runners[runner["id"]]
        return 204, None


@contextmanager
def served() -> Iterator[tuple[World, str]]:
    """Serve an empty GitHub; yield it and its address."""
    world = World()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            world.requests.append(f"{self.command} {urlsplit(self.path).path}")
            bearer = self.headers["Authorization"].removeprefix("Bearer ")
            world.bearers.append(bearer)
            if world.down:
                status, result = 503, {"message": "Service Unavailable"}
            elif (bearer in world.tokens) == self.path.startswith("/app/"):  # an App calls these itself
                status, result = 401, {"message": "Bad credentials"}
            else:
                status, result = world.respond(self.command, self.path, body)
            content = b"" if result is None else json.dumps(result).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status == 200 and (link := world.link(self.path, result)):
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 - as the base class looks for them

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield world, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
