"""What GitHub has assigned to a scale set: read from its messages, which may come twice, late or in another order.

The newest message says how many jobs wait, so a lost one changes nothing. Each message adds who they are, and since
when they wait. Nothing here waits or calls; times are those of the messages.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from ..aws import SHAPE
from ..decide import Runner
from ..github import REPOSITORY
from ..jobs import Job

_MOST = 1000
"""Most jobs, and most failed ones, that are kept by name: a row of DynamoDB has at most 400 KB. Others are counted."""

_MOST_RUNNERS = 3000
"""Most busy runners that are kept, and most ended jobs with theirs: as many as a set may have machines.

A lost message leaves a busy one for ever.
"""

_MOST_TAKEN = 500
"""Most messages that are known again: GitHub sends again what is not deleted, also in the next session."""

_NAMELESS = -(1 << 62)
"""The id of the first job that is counted without a message about it. Those of messages are their requests, negated."""


@dataclass
class AssignedJobs:
    """The jobs of a set, as far as messages say.

    ``session`` is the id of the set's session. ``last`` is the newest message. ``assigned`` and ``running`` are its
    numbers of jobs; None before the first. ``waiting`` has the jobs without a runner, by request, ``busy`` the requests
    by runner, ``ended`` the requests and the runners that are done with, ``failed`` the repository and workflow run by
    runner. ``lost`` are workflow runs that lost a machine. ``nameless`` is since when each of the others waits, and
    since when it needs a machine. ``taken`` are checksums of messages. ``taken_back`` is what Auto Scaling is no longer
    asked for: when, of which group, and how many machines. All times are in seconds since 1970.
    """

    session: str = ""
    last: int = 0
    assigned: int | None = None
    running: int = 0
    waiting: dict[int, Job] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    failed: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[int, None] = field(default_factory=dict)
    nameless: list[tuple[float, float]] = field(default_factory=list)
    taken: dict[int, None] = field(default_factory=dict)
    taken_back: list[tuple[float, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()

    def begin(self, session: str, statistics: Mapping[str, Any], now: float) -> None:
        """Begin a session, which tells the numbers of jobs and then counts its messages from the first."""
        with self._lock:
            self.session, self.last = session, 0
            self._count(statistics)
            self._fit(now)

    def take(self, message: Mapping[str, Any], now: float) -> list[int]:
        """Take a message (types.go:98 of actions/scaleset at 6ce0259); return the requests of jobs to acquire.

        What has another shape costs itself alone. One that comes again has numbers of before.
        """
        available = []
        digest = hashlib.sha256(json.dumps(message, sort_keys=True).encode()).digest()
        checksum = int.from_bytes(digest[:8])  # of 32 bits, one of 10 million messages would look like one of before
        with self._lock:
            for one in _parts(message):
                try:
                    if one["messageType"] == "JobAvailable":
                        available.append(int(one["runnerRequestId"]))
                    else:
                        self._note(one, now)
                except SHAPE:
                    continue
            if _number(message) > self.last and checksum not in self.taken:
                self._count(message.get("statistics"))
            self.taken[checksum] = None
            _forget(self.taken, _MOST_TAKEN)
            self._fit(now)
        return available

    def acknowledge(self, message: Mapping[str, Any]) -> int:
        """Note that all was done for a message: only later ones are asked for; return its id."""
        with self._lock:
            self.last = max(self.last, _number(message))
            return _number(message)

    def jobs(self) -> list[Job] | None:
        """Return the jobs that need a runner, the longest waiting first; None before GitHub has said."""
        with self._lock:
            if self.assigned is None:
                return None
            nameless = [Job(_NAMELESS - n, "", since, assigned=at) for n, (since, at) in enumerate(self.nameless)]
            return sorted([*self.waiting.values(), *nameless], key=lambda job: (job.since, -job.id))

    def seen(self, runners: Sequence[Runner], prefix: str) -> list[Runner]:
        """Return the runners that GitHub lists, busy also if messages say so; ``prefix`` is of their names.

        One whose job is over takes no other: until GitHub no longer lists it, it is not free.
        """
        with self._lock:
            names = {*self.busy, *self.ended}
            return [replace(one, busy=one.busy or f"{prefix}{one.machine}" in names) for one in runners]

    def failed_on(self, runners: Collection[str]) -> list[tuple[str, str, int]]:
        """Return the runners of these on which a job failed, each with the job's repository and workflow run."""
        with self._lock:
            return [(name, *self.failed[name]) for name in sorted(runners) if name in self.failed]

    def settle(self, runner: str) -> None:
        """Note that the failed job of a lost runner is taken care of."""
        with self._lock:
            if runner in self.failed:
                _, run = self.failed.pop(runner)
                self.lost[run] = None
                _forget(self.lost, _MOST)

    def leave(self, job: int, now: float) -> bool:
        """Note that an idle runner did not get a job, as of now; return false if it is not one of these.

        One without a name needs a machine from now on: another one, or in the place of that runner's.
        """
        with self._lock:
            if -job in self.waiting:
                self.waiting[-job] = replace(self.waiting[-job], unassigned_since=now)
            elif _NAMELESS - job in range(len(self.nameless)):
                self.nameless[_NAMELESS - job] = self.nameless[_NAMELESS - job][0], now
            return job < 0

    def text(self) -> str:
        """Return all of it as text, for the next listener."""
        with self._lock:
            rows = {
                request: [job.repository, job.since, job.unassigned_since, job.lost, job.assigned]
                for request, job in self.waiting.items()
            }
            known = {each.name: getattr(self, each.name) for each in fields(self)}
            lists = {name: [*known[name]] for name in ("ended", "lost", "taken")}
            return json.dumps({**known, "waiting": rows, **lists})

    @classmethod
    def of(cls, text: str) -> AssignedJobs:
        """Return what a former listener knew; nothing where its text has another shape."""
        try:
            known = json.loads(text)
            return cls(
                session=str(known["session"]),
                assigned=None if known["assigned"] is None else int(known["assigned"]),
                running=int(known["running"]),
                waiting={
                    int(key): Job(-int(key), str(where), float(since), _time(left), bool(lost), float(at))
                    for key, (where, since, left, lost, at) in known["waiting"].items()
                },
                busy={str(name): int(request) for name, request in known["busy"].items()},
                ended=dict.fromkeys(map(str, known["ended"])),
                failed={str(name): (str(where), int(run)) for name, (where, run) in known["failed"].items()},
                lost=dict.fromkeys(map(int, known["lost"])),
                nameless=[(float(since), float(at)) for since, at in known["nameless"]],
                taken=dict.fromkeys(map(int, known["taken"])),
                taken_back=[(float(at), str(name), int(count)) for at, name, count in known["taken_back"]],
            )
        except SHAPE:
            return cls()

    def _note(self, one: Mapping[str, Any], now: float) -> None:
        """Note that a job is assigned, has begun or is over; what is over never waits again.

        Other kinds are passed over, as the client does (client.go:529), so that their job waits as before.
        """
        request, kind = int(one["runnerRequestId"]), one["messageType"]
        if str(request) in self.ended:
            return
        if kind == "JobAssigned":
            if request not in self.busy.values() and len(self.waiting) < _MOST:
                repository = f"{one['ownerName']}/{one['repositoryName']}"
                known = repository if REPOSITORY.fullmatch(repository) else ""
                lost = one.get("workflowRunId") in self.lost
                job = Job(-request, known, min(_since(one, now), now), lost=lost, assigned=now)
                self.waiting.setdefault(request, job)
            return
        if kind not in {"JobStarted", "JobCompleted"}:
            return
        runner = str(one.get("runnerName") or "")
        self.waiting.pop(request, None)
        if kind == "JobStarted" and runner and runner not in self.ended:
            self.busy[runner] = request
            _forget(self.busy, _MOST_RUNNERS)
        elif kind == "JobCompleted":
            self.busy.pop(runner, None)
            self.ended |= dict.fromkeys([str(request), *([runner] if runner else [])])
            _forget(self.ended, 2 * _MOST_RUNNERS)
            if runner and str(one.get("result")).lower() not in {"succeeded", "skipped"}:
                run = int(one["workflowRunId"])
                self.failed[runner] = (f"{one['ownerName']}/{one['repositoryName']}", run)
                _forget(self.failed, _MOST)

    def _count(self, statistics: object) -> None:
        """Take the numbers of jobs (types.go:133): those that are assigned count until they are over."""
        if not isinstance(statistics, Mapping):
            return
        try:
            assigned, running = int(statistics["totalAssignedJobs"]), int(statistics["totalRunningJobs"])
        except SHAPE:
            return
        self.assigned, self.running = assigned, running

    def _fit(self, now: float) -> None:
        """Have as many jobs as the numbers say, and no more than a set can have machines."""
        count = min(max((self.assigned or 0) - self.running, 0), _MOST_RUNNERS)
        # Where more are known, no message told the end of the oldest ones.
        known = sorted((job.since, request) for request, job in self.waiting.items())[-count:] if count else []
        self.waiting = {request: self.waiting[request] for _, request in known}
        others = count - len(self.waiting)
        self.nameless = [*self.nameless, *[(now, now)] * others][:others]


def _forget(known: dict[Any, Any], most: int) -> None:
    """Forget the oldest of what is known beyond a number."""
    while len(known) > most:
        del known[next(iter(known))]


def _parts(message: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the messages about jobs in one of the queue (client.go:501)."""
    try:
        parts = json.loads(message.get("body") or "[]")
    except (TypeError, ValueError, RecursionError):
        return []
    return [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []


def _number(message: Mapping[str, Any]) -> int:
    number = message.get("messageId")
    return number if isinstance(number, int) else 0


def _time(known: Any) -> float | None:
    return None if known is None else float(known)


def _since(one: Mapping[str, Any], now: float) -> float:
    """Return since when a job waits; now without a time, which Go writes as year 1."""
    for name in ("queueTime", "scaleSetAssignTime"):
        try:
            since = datetime.fromisoformat(str(one.get(name))).timestamp()
        except (ValueError, OverflowError):
            continue
        if since > 0:
            return since
    return now
