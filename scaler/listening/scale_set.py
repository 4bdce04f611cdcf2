"""GitHub's protocol of runner scale sets: the set, its session, its messages, and a configuration for each runner.

It is spoken as by actions/scaleset at 6ce0259, whose files and lines are named here. The client there is a Go library,
and this runs in AWS Lambda, whose Python has none.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..github import GitHub, Refused, call, configured, member, secret_text

_VERSION = "6.0-preview"
"""The version of the service's API (client.go:257)."""

_SETS, _RUNNERS = "_apis/runtime/runnerscalesets", "_apis/distributedtask/pools/0/agents"
"""Paths below the service's address (client.go:24)."""

_SECONDS = 8.0
"""Longest wait for one answer, but for that with messages."""

POLL_SECONDS = 65.0
"""Longest wait for messages: without any, GitHub answers after some 50 seconds."""


class Conflict(Exception):
    """Another listener has the session of the set: GitHub gives messages to one alone."""


@dataclass(frozen=True)
class SetSession:
    """A session of a set (types.go:124): the address of its messages, the token for them, and what is assigned now."""

    id: str
    url: str
    token: str
    statistics: Mapping[str, Any]


class ScaleSet:
    """One runner scale set, which exists once :meth:`ensure` has returned.

    ``github`` returns GitHub's API, whose time is not over, and ``api`` is its address. ``url`` is the organization or
    repository, as in a browser. ``name`` is unique within the runner group, whose id is ``group``. ``labels`` are what
    jobs name in ``runs-on``. GitHub adds none of its own.
    """

    def __init__(
        self, github: Callable[[], GitHub], api: str, url: str, name: str, labels: Sequence[str], group: int
    ) -> None:
        self._github = github
        self._api = api
        self._url = url
        self._name = name
        self._labels = list(labels)
        self._group = group
        self._service = self._token = ""
        self._id = 0
        self._labelled = False
        self._session: SetSession | None = None

    def ensure(self) -> None:
        """Have GitHub know the set (client.go:283, 406). Raises Refused if GitHub refuses."""
        query = urllib.parse.urlencode({"runnerGroupId": self._group, "name": self._name})
        sets = member(self._admin("GET", f"{_SETS}?{query}"), "value")
        known = sets[0] if sets else self._admin("POST", _SETS, self._own)
        self._id = int(member(known, "id"))
        self._labelled = self._has_labels(known)

    def label(self) -> None:
        """Have the set's labels be these (client.go:443), for the session is open: else it may be another stack's set.

        Raises Refused: GitHub refuses, or keeps other labels: Enterprise Server drops all but the name without its flag
        ``DistributedTask.AllowRunnerScaleSetCustomLabels`` (README.md:160).
        """
        if not self._labelled and not self._has_labels(self._admin("PATCH", f"{_SETS}/{self._id}", self._own)):
            raise Refused(0, f"the scale set {self._name} keeps other labels than {', '.join(self._labels)}: delete it")

    @property
    def _own(self) -> dict[str, Any]:
        labels = [{"name": label, "type": "System"} for label in self._labels]
        return {"name": self._name, "runnerGroupId": self._group, "labels": labels}

    def _has_labels(self, known: Any) -> bool:
        names = {str(member(label, "name")).lower() for label in member(known, "labels") or ()}
        return names == {label.lower() for label in self._labels}

    def open(self, former: str) -> SetSession:
        """Open the session, after ending the ``former`` one of this stack if that was never ended; return it.

        Raises:
            Conflict: another listener has it.
            Refused: GitHub refuses.
        """
        if former:
            self.close(former)
        try:
            answer = self._admin("POST", f"{_SETS}/{self._id}/sessions", {"ownerName": self._name})
        except Refused as refused:
            if refused.status == 409:
                raise Conflict(str(refused)) from None
            raise
        self._session = _session(answer)
        return self._session

    def close(self, session: str) -> None:
        """End a session; one that GitHub has ended already is no fault (session_client.go:74)."""
        self._session = None
        try:
            self._admin("DELETE", f"{_SETS}/{self._id}/sessions/{urllib.parse.quote(session, safe='')}")
        except Refused as refused:
            if refused.passes:
                raise

    def message(self, last: int, capacity: int, seconds: float) -> dict[str, Any] | None:
        """Wait for the next message after ``last``, for some seconds; None without one (session_client.go:122).

        ``capacity`` is how many jobs these runners can have at a time: GitHub assigns no more.
        """
        query = {"lastMessageId": last} if last else {}
        headers = {"X-ScaleSetMaxCapacity": str(capacity)}
        answer = self._queue("GET", "", query, headers=headers, seconds=max(min(seconds, POLL_SECONDS), 1.0))
        return answer if isinstance(answer, dict) and "messageId" in answer else None

    def acknowledge(self, message: int) -> None:
        """Delete a message, which GitHub sends again else (session_client.go:192)."""
        self._queue("DELETE", f"/{message}", {})

    def acquire(self, requests: Sequence[int]) -> None:
        """Take jobs that are available (session_client.go:259). GitHub then says that they are assigned."""
        path = f"{_SETS}/{self._id}/acquirejobs"
        self._with_session(lambda session: self._send("POST", self._at(path), session.token, list(requests)))

    def register(self, name: str) -> tuple[str, int | None]:
        """Return the configuration of one runner of the set for one job, and the runner's id (client.go:606).

        Raises Refused: 409 if a runner has that name.
        """
        answer = self._admin("POST", f"{_SETS}/{self._id}/generatejitconfig", {"name": name, "workFolder": "_work"})
        return configured(answer, "encodedJITConfig")

    def forget(self, runner: int) -> bool:
        """Remove a runner, so that it gets no job; return false if it has one now (client.go:708, errors.go:88)."""
        try:
            self._admin("DELETE", f"{_RUNNERS}/{runner}")
        except Refused as refused:
            if refused.job_runs:
                return False
            if refused.status != 404:
                raise
        return True

    def _queue(
        self,
        method: str,
        path: str,
        query: Mapping[str, int],
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> Any:
        """Send a request to the queue of messages."""

        def send(session: SetSession) -> Any:
            url = urllib.parse.urlsplit(session.url)
            pairs = [*urllib.parse.parse_qsl(url.query), *query.items()]
            url = url._replace(path=url.path + path, query=urllib.parse.urlencode(pairs))
            return self._send(method, url.geturl(), session.token, headers=headers, seconds=seconds)

        return self._with_session(send)

    def _with_session(self, send: Callable[[SetSession], Any]) -> Any:
        """Send a request of the session; if its token is over, refresh the token once (session_client.go:81)."""
        session = self._session
        if session is None:
            raise Refused(404, "the session is over")
        try:
            return send(session)
        except Refused as refused:
            if refused.status != 401:
                raise
        answer = self._admin("PATCH", f"{_SETS}/{self._id}/sessions/{urllib.parse.quote(session.id, safe='')}")
        self._session = _session(answer)
        return send(self._session)

    def _admin(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the service; where the token is over, log in anew once (client.go:977)."""
        used = self._token
        if used:
            try:
                return self._send(method, self._at(path), used, body)
            except Refused as refused:
                if refused.status != 401:
                    raise
        self._log_in()
        return self._send(method, self._at(path), self._token, body)

    def _log_in(self) -> None:
        """Get the service's address and token for it with a registration token (client.go:831)."""
        answer = call(
            "POST",
            f"{self._api}/actions/runner-registration",
            f"RemoteAuth {self._github().registration_token()}",
            {"url": self._url, "runner_event": "register"},
            headers={"Content-Type": "application/json"},
            seconds=_SECONDS,
            until=time.time() + _SECONDS,
        )[0]
        address = str(member(answer, "url"))
        if urllib.parse.urlsplit(address).scheme != urllib.parse.urlsplit(self._api).scheme:
            raise Refused(0, "the address of the service of runner scale sets is not https")
        self._service = address.rstrip("/")
        self._token = secret_text(member(answer, "token"), "the token")

    def _at(self, path: str) -> str:
        return f"{self._service}/{path}{'&' if '?' in path else '?'}api-version={_VERSION}"

    def _send(
        self,
        method: str,
        url: str,
        token: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> Any:
        # An answer drop by drop ends like one that does not come.
        until = time.time() + seconds + _SECONDS
        accept = {"Accept": f"application/json; api-version={_VERSION}", "Content-Type": "application/json"}
        return call(
            method, url, f"Bearer {token}", body, headers={**accept, **(headers or {})}, seconds=seconds, until=until
        )[0]


def _session(answer: Any) -> SetSession:
    token = secret_text(member(answer, "messageQueueAccessToken"), "the token of messages")
    statistics = answer.get("statistics")
    return SetSession(
        str(member(answer, "sessionId")),
        str(member(answer, "messageQueueUrl")),
        token,
        statistics if isinstance(statistics, dict) else {},
    )
