"""A stand-in for GitHub's service of runner scale sets, beside its API, which can lie and fail as the real one has.

Shaped by the test server of actions/scaleset at 6ce0259 (internal/testserver/server.go:26): a registration token, then the
service's own address and token, and all else below that address. Paths and bodies are those of its client and its types.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.github.runner_api import World

POLL = 0.4
"""Seconds after which the stand-in answers without a message; GitHub does after some 50."""


class ScaleSetService(World):
    """What this GitHub knows of one scale set, and what is wrong with it.

    Faults: ``conflict`` is another listener's session. ``revoked`` says that the App is no longer installed. ``refused`` has
    the answers to the next calls of the service, by the end of their path. ``twice`` sends each message twice, ``deaf`` keeps
    the labels that the set has. ``slow`` and ``slow_list`` are the seconds until a message, and until the list of runners.
    ``sent_at`` is when the last message was sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sets: dict[int, dict[str, Any]] = {}
        self.sessions: dict[str, str] = {}
        self.opened: list[str] = []
        self.jobs_of_set: dict[int, dict[str, Any]] = {}
        self.messages: dict[int, dict[str, Any]] = {}
        self.sent: list[int] = []
        self.deleted: list[int] = []
        self.acquired: list[int] = []
        self.capacities: list[int] = []
        self.admins: set[str] = set()
        self.conflict = self.revoked = self.twice = self.deaf = False
        self.refused: dict[str, list[int]] = {}
        self.slow = self.slow_list = self.sent_at = 0.0
        self.runs: dict[int, list[dict[str, Any]]] = {}
        self.changed = threading.Condition(threading.RLock())
        self._numbers = 0
        self.address = ""

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    # What happens at GitHub.

    def offer(self, *requests: int, **more: Any) -> None:
        """Have jobs that the set may take."""
        with self.changed:
            for request in requests:
                self.jobs_of_set[request] = {"state": "available", **more}
            self.post([self.part("JobAvailable", request) for request in requests])

    def assign(self, *requests: int, **more: Any) -> None:
        """Have jobs that the set has taken."""
        with self.changed:
            for request in requests:
                self.jobs_of_set[request] = {"state": "assigned", **self.jobs_of_set.get(request, {}), **more}
                self.jobs_of_set[request]["state"] = "assigned"
            self.post([self.part("JobAssigned", request) for request in requests])

    def start(self, request: int, runner: str) -> None:
        """Have a runner begin a job."""
        with self.changed:
            self.named(runner).update(status="online", busy=True)
            self.jobs_of_set[request] |= {"state": "running", "runner": runner}
            self.post([self.part("JobStarted", request, runnerName=runner)])

    def complete(self, request: int, result: str = "Succeeded") -> None:
        """Have a job end, and with it its runner."""
        with self.changed:
            runner = self.jobs_of_set.pop(request).get("runner", "")
            if runner and result == "Succeeded":
                self.finish(runner)
            self.post([self.part("JobCompleted", request, runnerName=runner, result=result)])

    def part(self, kind: str, request: int, **more: Any) -> dict[str, Any]:
        queued = self.jobs_of_set.get(request, {}).get("queued", time.time())
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(queued))
        return {
            "messageType": kind, "runnerRequestId": request, "repositoryName": "images", "ownerName": "acme",
            "jobId": f"{request:032x}", "jobDisplayName": "build", "workflowRunId": 7000 + request,
            "requestLabels": ["gpu"], "queueTime": stamp, "scaleSetAssignTime": "0001-01-01T00:00:00Z", **more,
        }  # fmt: skip

    @property
    def statistics(self) -> dict[str, int]:
        states = [job["state"] for job in self.jobs_of_set.values()]
        running = states.count("running")
        return {
            "totalAvailableJobs": states.count("available"), "totalAcquiredJobs": 0,
            "totalAssignedJobs": states.count("assigned") + running, "totalRunningJobs": running,
            "totalRegisteredRunners": len(self.runners), "totalBusyRunners": running, "totalIdleRunners": 0,
        }  # fmt: skip

    def post(self, parts: list[dict[str, Any]], statistics: Mapping[str, int] | None = None) -> int:
        """Add a message to the queue; return its number."""
        with self.changed:
            number = self.number()
            self.messages[number] = {
                "messageId": number,
                "messageType": "RunnerScaleSetJobMessages",
                "body": json.dumps(parts),
                "statistics": dict(statistics or self.statistics),
            }
            self.changed.notify_all()
            return number

    # What it answers.

    def service(self, method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Return the answer to any call: of the API, of the service, or of its queue."""
        split = urlsplit(path)
        token = str(headers["Authorization"]).partition(" ")[2]
        for end, statuses in self.refused.items():
            if split.path.endswith(end) and statuses:
                return statuses.pop(0), {"typeName": "Fault", "message": "as the test has it"}
        if split.path == "/actions/runner-registration":
            if headers["Authorization"] not in {f"RemoteAuth {each}" for each in self.tokens}:
                return 401, {"message": "Bad credentials"}
            assert body == {"url": "https://github.com/acme", "runner_event": "register"}
            self.admins.add(admin := f"admin-{self.number()}")
            return 201, {"url": f"{self.address}/tenant/123/", "token": admin}
        if split.path.startswith("/queue/"):
            return self._queue(method, split.path, parse_qs(split.query), headers, token)
        if not split.path.startswith("/tenant/123/_apis/"):
            if self.revoked or token not in self.tokens:
                return 401, {"message": "Bad credentials"}
            if split.path == "/orgs/acme/actions/runners/registration-token":
                self.tokens.add(fresh := f"registration-{self.number()}")
                return 201, {"token": fresh, "expires_at": "2030-01-01T00:00:00Z"}
            if match := re.fullmatch(r"/repos/acme/images/actions/runs/(\d+)/jobs", split.path):
                page = int(parse_qs(split.query)["page"][0])
                return 200, {"jobs": self.runs.get(int(match[1]), [])[100 * (page - 1) : 100 * page]}
            time.sleep(self.slow_list if split.path.endswith("/actions/runners") else 0)
            return self.respond(method, path, body)
        assert parse_qs(split.query)["api-version"] == ["6.0-preview"]
        session = re.fullmatch(r".*/sessions/([^/]+)", split.path)
        if split.path.endswith("/acquirejobs"):
            if token not in self.sessions.values():
                return 401, {"message": "expired"}
            return self._acquire(body)
        if token not in self.admins or self.revoked:
            return 401, {"message": "expired"}
        return self._admin(method, split.path.removeprefix("/tenant/123"), session, body, parse_qs(split.query))

    def _admin(self, method: str, path: str, session: Any, body: Any, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path == "/_apis/runtime/runnerscalesets" and method == "GET":
            named = [one for one in self.sets.values() if query["name"] == [one["name"]]]
            return 200, {"count": len(named), "value": named}
        if path == "/_apis/runtime/runnerscalesets":
            one = {**body, "id": self.number(), "runnerGroupName": "gpus"}
            self.sets[one["id"]] = one
            return 200, one
        if match := re.fullmatch(r"/_apis/runtime/runnerscalesets/(\d+)", path):
            self.sets[int(match[1])] |= {} if self.deaf else body
            return 200, self.sets[int(match[1])]
        if path.endswith("/sessions"):
            if self.conflict or self.sessions:
                return 409, {
                    "typeName": "GitHub.Actions.Runtime.WebApi.RunnerScaleSetSessionConflictException",
                    "message": "The actions runner scale set already has an active session for owner another.",
                }
            self.opened.append(name := f"session-{self.number()}")
            return 200, self._session(name)
        if session and method == "PATCH":
            return (200, self._session(session[1])) if session[1] in self.sessions else (404, {"message": "over"})
        if session:
            return (204, None) if self.sessions.pop(session[1], None) else (404, {"message": "over"})
        if path.endswith("/generatejitconfig"):
            runner = self.register(body["name"])
            if runner is None:
                return 409, {"typeName": "AgentExistsException", "message": "exists"}
            config = base64.b64encode(json.dumps({"set": True, **body}).encode()).decode()
            return 200, {"runner": {**runner, "runnerScaleSetId": 1}, "encodedJITConfig": config}
        if match := re.fullmatch(r"/_apis/distributedtask/pools/0/agents/(\d+)", path):
            runner = self.runners.get(int(match[1]))
            if runner is None:
                return 404, {"typeName": "AgentNotFoundException", "message": "not found"}
            if runner["busy"]:
                return 400, {"typeName": "GitHub.DistributedTask.JobStillRunningException", "message": "runs"}
            del self.runners[runner["id"]]
            return 204, None
        raise AssertionError(f"{method} {path}")

    def _session(self, name: str) -> dict[str, Any]:
        self.sessions[name] = token = f"queue-{self.number()}"
        return {
            "sessionId": name, "ownerName": "x", "messageQueueUrl": f"{self.address}/queue/{name}?sessionId={name}",
            "messageQueueAccessToken": token, "statistics": self.statistics,
        }  # fmt: skip

    def _acquire(self, requests: list[int]) -> tuple[int, Any]:
        new = [request for request in requests if self.jobs_of_set.get(request, {}).get("state") == "available"]
        self.acquired += new
        if new:
            self.assign(*new)
        return 200, {"count": len(new), "value": new}

    def _queue(self, method: str, path: str, query: dict[str, list[str]], headers: Any, token: str) -> tuple[int, Any]:
        name, _, number = path.removeprefix("/queue/").partition("/")
        if self.sessions.get(name) != token or query["sessionId"] != [name]:
            return 401, {"message": "token expired"}
        if method == "DELETE":
            self.deleted.append(int(number))
            if not self.twice or self.deleted.count(int(number)) > 1:
                self.messages.pop(int(number), None)
            return 204, None
        self.capacities.append(int(headers["X-ScaleSetMaxCapacity"]))
        time.sleep(self.slow)
        last = int(query.get("lastMessageId", ["0"])[0])
        with self.changed:
            self.changed.wait_for(lambda: self._next(last) is not None or name not in self.sessions, POLL)
            message = self._next(last)
        if message is None:
            return 202, None
        self.sent.append(message["messageId"])
        self.sent_at = time.monotonic()
        return 200, message

    def _next(self, last: int) -> dict[str, Any] | None:
        """Return the next message. One that is sent twice comes again, whatever was asked for."""
        again = [each for number, each in self.messages.items() if self.deleted.count(number) == 1]
        return next(iter([*again, *(each for number, each in sorted(self.messages.items()) if number > last)]), None)


def handler(answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]]) -> type[BaseHTTPRequestHandler]:
    """Return what handles requests over HTTP: ``answer`` gets each with its body, and returns the status and content."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            status, content = answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PATCH = _do  # noqa: N815 - as the base class looks for them

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def served() -> Iterator[ScaleSetService]:
    """Serve an empty GitHub."""
    world = ScaleSetService()

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        world.requests.append(f"{request.command} {urlsplit(request.path).path}")
        given, service = json.loads(body or b"null"), world.service
        status, result = (503, {}) if world.down else service(request.command, request.path, request.headers, given)
        # The service's answers begin with a mark of their encoding (common_client.go:70).
        return status, b"" if result is None else b"\xef\xbb\xbf" + json.dumps(result).encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(answer))
    world.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()
