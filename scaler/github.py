"""GitHub's API for self-hosted runners: list them, register one, remove one, and run a job again."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from http.client import HTTPException
from typing import Any

from .app_key import Unreadable, jwt

Credentials = Mapping[str, str]
"""``token``, or ``app``, ``installation`` and ``privateKey`` of a GitHub App, the key in a form of :mod:`app_key`."""

REPOSITORY = re.compile(r"(?!\.\.?/)[\w.-]+/(?!\.\.?\Z)[\w.-]+", re.ASCII)
"""A repository's full name: it becomes a part of addresses at GitHub, from which no part leads elsewhere."""

_FINAL = {400, 415, 422}
"""The webhook's answers to a delivery that another attempt does not change."""

_MOST_PAGES, _RECENT_SECONDS, _MOST_REDELIVERED = 5, 1800, 20
"""Most pages of deliveries that are read, seconds that they go back, and most deliveries that are repeated at once."""

_MOST_RUNS = 30
"""Most workflow runs of each state whose jobs are read."""

_SECONDS = 8.0
"""Longest wait for one answer."""

_SECRET = re.compile(r"[!-~]+")
"""The characters of a token, and of a runner's configuration: an error about any other in a header would show it."""

_LONGEST = 16 << 20
"""Most bytes of an answer. A page of a hundred has a few hundred thousand."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows GitHub to a repository's new name, and to no other host: the token would go there too."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Return the request to make instead; none makes an error of the redirection."""
        here, there = (urllib.parse.urlsplit(url)[:2] for url in (req.full_url, answer[-1]))
        return super().redirect_request(req, *answer) if here == there else None


_OPENER = urllib.request.build_opener(_SameHost)


class Refused(Exception):
    """A request that failed at GitHub; ``status`` is that of HTTP, or 0 without a usable answer.

    The text leaves out the ``authorization`` of the request. What it means is told by the whole message. ``headers``
    are those of the answer.
    """

    def __init__(
        self, status: int, message: str, authorization: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        text = _scrubbed(message, authorization) if authorization else message
        super().__init__(f"GitHub answers {status}: {text}" if status else f"GitHub does not answer: {text}")
        self.status = status
        self.headers = headers or {}
        self._message = message.lower()

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later ("Rate limits for the REST API": 403 as well as 429).

        401 concerns the key, not the request: with another key it succeeds.
        """
        return self.status in {0, 401, 429} or self.status >= 500 or "rate limit" in self._message

    @property
    def job_runs(self) -> bool:
        """Whether the service of runner scale sets keeps a runner, for it has a job."""
        return "jobstillrunning" in self._message

    @property
    def running(self) -> bool:
        """Whether the reason is that the workflow run is not done ("... is already running")."""
        return self.status == 403 and "already running" in self._message


class GitHub:
    """The API for one organization or repository.

    ``api`` is ``https://api.github.com``, ``https://api.<name>.ghe.com`` or ``https://<host>/api/v3``, ``scope`` is
    ``owner`` or ``owner/repository``. ``credentials`` are asked for at the first request. After ``until``, in seconds
    since 1970, no request is made.

    ``pages`` is how many requests the last list of runners took. ``spare`` is how many a minute GitHub takes until it
    counts anew. Each answer says so ("Rate limits for the REST API"); it is infinite where GitHub limits none.
    """

    def __init__(self, api: str, scope: str, credentials: Callable[[], Credentials], until: float) -> None:
        self._api = api
        self._credentials = credentials
        self._until = until
        self.pages = 0
        self.spare = math.inf
        self._runners = f"/{'repos' if '/' in scope else 'orgs'}/{scope}/actions/runners"

    @functools.cached_property
    def _login(self) -> Credentials:
        return self._credentials()

    @functools.cached_property
    def _app(self) -> str | None:
        if self._login.get("token"):
            return None
        missing = [name for name in ("app", "installation", "privateKey") if not self._login.get(name)]
        if missing:
            raise Refused(0, f"the secret has no token, and of an App no {' and no '.join(missing)}")
        try:
            return _app(self._login)
        except Unreadable as error:
            raise Refused(0, f"the secret's {error}") from None

    @functools.cached_property
    def _authorization(self) -> str:
        token = self._login.get("token")
        return _bearer(token or self._installation(member(self._login, "installation")))

    def runners(self) -> Iterator[dict[str, Any]]:
        """Yield every runner: ``id``, ``name``, ``status`` and ``busy``."""
        self.pages = 0
        while True:
            self.pages += 1
            runners = member(self._send("GET", f"{self._runners}?per_page=100&page={self.pages}"), "runners")
            yield from runners
            if len(runners) < 100:
                return

    def runner(self, number: int) -> dict[str, Any] | None:
        """Return one runner as :meth:`runners` has it; None if it is not registered."""
        try:
            runner: dict[str, Any] = self._send("GET", f"{self._runners}/{number}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return None
        return runner

    def register(self, name: str, labels: list[str], group: int) -> tuple[str, int | None]:
        """Return the configuration of one runner for one start, encoded as the runner expects it, and the runner's id.

        Raises Refused: 409 if a runner has that name.
        """
        body = {"name": name, "labels": labels, "runner_group_id": group, "work_folder": "_work"}
        return configured(self._send("POST", f"{self._runners}/generate-jitconfig", body), "encoded_jit_config")

    def registration_token(self) -> str:
        """Return a token that opens the service of runner scale sets, and registers runners, for an hour."""
        return secret_text(member(self._send("POST", f"{self._runners}/registration-token"), "token"), "the token")

    def jobs_of(self, repository: str, run: int) -> Iterator[dict[str, Any]]:
        """Yield the jobs of a workflow run's last attempt: ``id``, ``runner_name`` and ``run_attempt``."""
        for page in itertools.count(1):
            path = f"/repos/{repository}/actions/runs/{run}/jobs?per_page=100&page={page}"
            jobs = member(self._send("GET", path), "jobs")
            yield from jobs
            if len(jobs) < 100:
                return

    def forget(self, runner: int) -> bool:
        """Remove a runner, so that it gets no job; return false if it has one now."""
        try:
            self._send("DELETE", f"{self._runners}/{runner}")
        except Refused as refused:
            if refused.status == 422:  # "Runner is currently running a job and cannot be deleted"
                return False
            if refused.status != 404:
                raise
        return True

    def state(self, repository: str, job: int) -> str:
        """Return the state of a job: ``queued``, ``in_progress``, ``completed``, or what else it waits for.

        Raises Refused: 404 if it is gone, or if the credentials do not allow to read the repository.
        """
        state: str = member(self._send("GET", f"/repos/{repository}/actions/jobs/{job}"), "status")
        return state

    def queue(self, repository: str) -> Iterator[dict[str, Any]]:
        """Yield the queued jobs of a repository's newest runs: ``id``, ``name``, ``labels`` and ``created_at``."""
        for state in ("queued", "in_progress"):
            answer = self._send("GET", f"/repos/{repository}/actions/runs?status={state}&per_page={_MOST_RUNS}")
            for run in member(answer, "workflow_runs"):
                jobs = self.jobs_of(repository, int(member(run, "id")))
                yield from (job for job in jobs if member(job, "status") == "queued")

    def ends(self, release: str) -> str | None:
        """Return the time from which runners of a release get no job, as GitHub writes it; None: it names none yet.

        "REST API endpoints for self-hosted runners" has ``deprecations`` since 2026-09-03 (GitHub's changelog).

        Raises Refused: 404 if GitHub knows no such release, or if the credentials may not ask.
        """
        ends: str | None = self._send("GET", f"{self._runners}/deprecations/{release}").get("runtime_deprecates_at")
        return ends

    def rerun(self, repository: str, job: int) -> bool:
        """Run a job again; return false if other jobs of its workflow run are not done yet."""
        try:
            self._send("POST", f"/repos/{repository}/actions/jobs/{job}/rerun")
        except Refused as refused:
            if refused.running:
                return False
            raise
        return True

    def redeliver(self) -> list[int]:
        """Have GitHub repeat recent failed deliveries, and return these; only for an App's webhook.

        "GitHub does not automatically redeliver failed webhook deliveries" ("Handling failed webhook deliveries").
        """
        if self._app is None:
            return []
        by_guid: dict[str, list[dict[str, Any]]] = {}
        for one in self._deliveries(self._app):
            if one["event"] == "workflow_job":
                by_guid.setdefault(one["guid"], []).append(one)
        # The oldest first. One that cannot be repeated costs no other.
        lost = [attempts[0]["id"] for attempts in reversed(by_guid.values()) if _lost(attempts)][:_MOST_REDELIVERED]
        repeated = []
        for delivery in lost:
            try:
                self._send("POST", f"/app/hook/deliveries/{delivery}/attempts", by=self._app)
            except Refused as refused:
                if refused.passes:
                    raise
                continue
            repeated.append(delivery)
        return repeated

    def _deliveries(self, app: str) -> Iterator[dict[str, Any]]:
        """Yield the recent deliveries, the newest first."""
        query: str | None = "per_page=100"
        for _ in range(_MOST_PAGES):
            deliveries, headers = self._request("GET", f"/app/hook/deliveries?{query}", by=app)
            if not isinstance(deliveries, list):
                raise Refused(0, "the answer is no list of deliveries")
            yield from deliveries
            more = re.search(r'<[^<>?]*\?([^<>]*)>; rel="next"', headers.get("Link", ""))
            if (
                more is None
                or not deliveries
                or datetime.fromisoformat(deliveries[-1]["delivered_at"]).timestamp() < time.time() - _RECENT_SECONDS
            ):
                return
            query = more[1]

    def _installation(self, number: str) -> str:
        answer = self._send("POST", f"/app/installations/{number}/access_tokens", by=self._app)
        token: str = member(answer, "token")
        return token

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, by: str | None = None) -> Any:
        """Send a request and return the body of the answer; None if it is empty."""
        return self._request(method, path, body, by=by)[0]

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, by: str | None = None
    ) -> tuple[Any, Mapping[str, str]]:
        left = self._until - time.time()
        if left < 1:
            raise Refused(0, f"{method} {path}: this round has no time left; the next one tries again")
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        told: Mapping[str, str] = {}
        authorization = by or self._authorization
        try:
            answer, told = call(
                method,
                f"{self._api}{path}",
                authorization,
                body,
                headers=headers,
                seconds=min(_SECONDS, left),
                until=self._until,
            )
        except Refused as refused:  # as where none is left
            told = refused.headers
            raise
        finally:
            if by is None:  # the App itself has a quota of its own
                self.spare = _spare(told, self.spare)
        return answer, told


def _spare(headers: Mapping[str, str], known: float) -> float:
    """Return how many requests a minute GitHub takes until it counts anew, by an answer's headers; else ``known``."""
    left, reset = (headers.get(f"X-RateLimit-{name}") or "" for name in ("Remaining", "Reset"))
    if not (left.isdecimal() and reset.isdecimal() and len(left) < 20 and len(reset) < 20):
        return known
    return int(left) / max((int(reset) - time.time()) / 60, 1.0)


def call(
    method: str,
    url: str,
    authorization: str,
    body: object = None,
    *,
    headers: Mapping[str, str],
    seconds: float,
    until: float,
) -> tuple[Any, Mapping[str, str]]:
    """Send a request and return the body of the answer, None if it is empty, and its headers.

    ``authorization`` is the value of that header; no error has it. ``body`` is sent as JSON. ``seconds`` is the longest
    wait for the answer, and for each part of it; ``until`` is when all of it must be there, in seconds since 1970.

    Raises Refused: GitHub refuses, or there is no usable answer.
    """
    request = urllib.request.Request(  # noqa: S310 - the address is the configuration's or GitHub's, and https
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": authorization, "User-Agent": "slipway", **headers},
    )
    try:
        with _OPENER.open(request, timeout=seconds) as answer:
            return json.loads(_content(answer, until) or b"null"), answer.headers
    except urllib.error.HTTPError as error:
        told: Any = error.headers
        raise Refused(error.code, _text(error), authorization, told) from None
    # URLError and timeouts are of OSError. Text that is no JSON raises ValueError, and too deep JSON the last.
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        why = _scrubbed(str(error), authorization)  # BadStatusLine has the first line of the answer
        where = urllib.parse.urlsplit(url)
        raise Refused(0, f"{method} {where.path}: {type(error).__name__}: {why}") from None


def _content(answer: Any, until: float) -> bytes:
    """Read an answer. Raises Refused if it is too long, or has not ended when the round has no time left."""
    content = bytearray()
    while chunk := answer.read1(1 << 16):
        content += chunk
        if len(content) > _LONGEST:
            raise Refused(0, f"the answer is longer than {_LONGEST >> 20} MiB")
        if time.time() > until:
            raise Refused(0, "the answer does not end within the round")
    return bytes(content)


def _lost(attempts: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a delivery is due again, the newest attempt first: each one later, so that no outage loses it."""
    if any(one["status"] == "OK" or one.get("status_code") in _FINAL for one in attempts):
        return False
    waited = time.time() - datetime.fromisoformat(attempts[0]["delivered_at"]).timestamp()
    return waited >= 60 * ((1 << (len(attempts) - 1)) - 1)


def _text(error: urllib.error.HTTPError) -> str:
    """Return the beginning of a refusal."""
    try:
        text = error.read(4096).decode(errors="replace")
    except (OSError, HTTPException):
        return ""
    return " ".join(text.split())[:300]


def _scrubbed(text: str, authorization: str) -> str:
    """Return a text without the authorization: a proxy may answer with what it was sent."""
    return text.replace(authorization.partition(" ")[2], "***")


def _bearer(token: object) -> str:
    return f"Bearer {secret_text(token, 'the token')}"


def secret_text(value: object, what: str) -> str:
    """Return a secret on one line. Raises Refused, without the secret, if it has other characters."""
    text = value.strip() if isinstance(value, str) else ""
    if not _SECRET.fullmatch(text):
        raise Refused(0, f"{what} is no text on one line")
    return text


def configured(answer: Any, name: str) -> tuple[str, int | None]:
    """Return the configuration of a new runner, which an answer has as ``name``, and the runner's id if it has one.

    Raises Refused: the answer has no configuration, or none on one line.
    """
    runner = answer.get("runner") if isinstance(answer, dict) else None
    number = runner.get("id") if isinstance(runner, dict) else None
    config = secret_text(member(answer, name), "the configuration of a runner")
    return config, number if isinstance(number, int) else None


def member(answer: Any, name: str) -> Any:
    """Return a member of an answer. Raises Refused if it is missing, as in the answer of a proxy."""
    if not isinstance(answer, dict) or name not in answer:
        raise Refused(0, f"the answer has no '{name}'")
    return answer[name]


def _app(credentials: Credentials) -> str:
    """Return the authorization of the App itself, which only some requests accept."""
    now = int(time.time())
    # A minute back, for clocks that differ, and at most ten ahead ("Generating a JSON Web Token for a GitHub App").
    claims = {"iat": now - 60, "exp": now + 540, "iss": credentials["app"]}
    return f"Bearer {jwt(claims, str(credentials['privateKey']))}"
