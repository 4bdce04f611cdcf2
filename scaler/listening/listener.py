"""Listens to GitHub for most of a quarter of an hour, and does the keeper's rounds meanwhile: no webhook is needed.

One thread waits for messages, and requests machines at once by what the last round read. The other one does a round
each minute, and soon after a message. Only one listener of a stack runs at a time (reserved concurrency): the next one
starts with the minute in which this one ends. It finds in the table what this one knew. Two may run all the same, as of
two functions, or of one that was made anew. Then one works, and the other one waits until it ends: two rounds at once
would start two machines for a job. Each of several sets has its own two threads, table and groups: none knows of
another.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..aws import FAILURES, client, log, reason
from ..decide import Decision, Rules, Runner, due
from ..github import GitHub, Refused
from ..jobs import Job, Jobs, Rows
from ..keeper import Keeper, View, credentials, refusal
from .assigned_jobs import AssignedJobs
from .scale_set import Conflict, ScaleSet

SECONDS = 838.0
"""How long one listens: nearly 14 minutes, so that the next one starts at once. Lambda's limit is 15 minutes."""

_MINUTE = 60.0

_LOGIN_SECONDS = 30.0
"""Most seconds for a login at the service of scale sets."""

_SPACING = 10.0
"""Least seconds from one round to the next."""

_CALL_SECONDS = 1.0
"""Least seconds from one round to the next for each call that lists runners, a hundred at a time: 3,600 calls an hour.

GitHub takes 5,000 an hour of an App or a user. The others are for the first round of each listener, and for logins.
"""

_AT_ONCE = 32
"""Most machines that are registered at a time: at half a second each, 3,800 a minute."""

_SILENT_SECONDS = 150.0
"""Seconds after which a listener is no more that notes nothing. One that works does before each wait for messages."""

_LONGEST_PAUSE = 30.0
"""Most seconds until the next attempt after a refusal."""


SETS = Path(__file__).parents[1] / "sets.json"
"""The variables of each of several sets, by its name, which ``components.runners.ec2.scaler_functions`` writes."""


def handle(_event: object, _context: object) -> None:
    """Listen until the next one does: for the one set of the variables, or for each of the file's."""
    sets = json.loads(SETS.read_text(encoding="utf-8")) if SETS.exists() else {"": {}}
    listen([{**os.environ, **own} for own in sets.values()], SECONDS)


def listen(environments: Sequence[Mapping[str, str]], seconds: float) -> None:
    """Listen for some seconds for each set: what fails one set costs no other.

    Args:
        environments: the variables of each set.
        seconds: how long.

    Raises:
        Exception: what has ended a set's listener, once the others are done. The next function begins it anew.
    """
    listeners = [Listener(own, len(environments)) for own in environments]
    with ThreadPoolExecutor(len(listeners)) as pool:
        running = [pool.submit(each.run, seconds) for each in listeners]
    for each in running:
        each.result()


@dataclass
class _Source:
    """What the rounds of a listener share: the set, what is known of its jobs, and whether a webhook is left.

    ``pages`` is how many calls GitHub's list of runners takes. ``online`` is when each machine's runner was first seen
    online, in seconds since 1970.
    """

    scale_set: ScaleSet
    assigned: AssignedJobs
    webhook: bool
    retries: int
    checked: float = 0.0
    pages: int = 0
    online: dict[str, float] | None = None


class ListeningKeeper(Keeper):
    """A round with the jobs of a scale set, and with those that the webhook noted."""

    def __init__(self, environment: Mapping[str, str], source: _Source) -> None:
        super().__init__(environment)
        self._source = source
        self._outside: set[str] = set()
        self._taken_back = source.assigned.taken_back
        # GitHub's list and the table are asked about in each minute, and not after each message.
        self._whole = time.time() - source.checked >= _MINUTE - 1
        if self._whole:
            source.checked = time.time()

    @property
    def has_read(self) -> bool:
        """Whether this round knows the machines, so that :meth:`hurry` may decide by it."""
        return self._view is not None

    @property
    def capacity(self) -> int:
        """How many jobs these runners can have at a time. GitHub counts that of a lost machine, too, for minutes."""
        lost = self._view.rows.lost_runners if self._view and self._view.rows else set()
        counted = len(self._source.assigned.busy.keys() & lost)
        return capacity(time.time(), self._view.rules if self._view else self._rules) + counted

    def hurry(self) -> None:
        """Request the machines that the jobs need by now, from this round's view, while the round does all else."""
        view = self._view
        if view is None:
            return
        machines = [machine for machine in view.machines if machine.id not in self._ended]
        view = replace(view, machines=machines, runners=self._told(view.runners))
        self._raise(self._decide(view, self._waiting(view.rows), time.time()), view.groups, machines)

    def _decide(self, view: View, waiting: Sequence[Job] | None, now: float) -> Decision:
        """Return what to do. GitHub does not say since when a runner is online: it is idle a while after that."""
        if view.runners is not None:
            since = 0.0 if self._source.online is None else now  # those of the first list may be old
            online = dict.fromkeys((each.machine for each in view.runners if each.online), since)
            self._source.online = online | (self._source.online or {})
        if isinstance(view.prepared, Mapping) and self._source.online:
            times = {each: max(at, self._source.online.get(each, at)) for each, at in view.prepared.items()}
            view = replace(view, prepared=times)
        return super()._decide(view, waiting, now)

    def _waiting(self, rows: Rows | None) -> list[Job] | None:
        noted, assigned = super()._waiting(rows), self._source.assigned.jobs()
        if noted is None or assigned is None:
            # What GitHub refuses a scale set costs no job of the webhook.
            return noted if noted or self._source.webhook else None
        alone = noted_alone(noted, assigned, webhook=self._source.webhook)
        return sorted([*alone, *assigned], key=lambda job: job.since)

    def _runners(self, known: Mapping[str, int]) -> list[Runner]:
        source, least = self._source, self._source.pages
        over = source.assigned.ended
        try:
            # Of a runner whose job is over, GitHub's message is enough.
            runners = super()._runners({each: known[each] for each in known if f"{self._prefix}{each}" not in over})
            least = 0
        finally:  # a list that ended early took fewer calls than the next one may
            source.pages = max(least, self._github.pages)
        return self._told(runners) or []

    def _told(self, runners: Sequence[Runner] | None) -> list[Runner] | None:
        return None if runners is None else self._source.assigned.seen(runners, self._prefix)

    def _prepare_all(self, machines: Sequence[str], rows: Rows) -> None:
        """Register as many machines outside of the set as jobs need that are not of the set, and the others in it."""
        assigned = self._source.assigned.jobs() or []
        alone = noted_alone(rows.waiting, assigned, webhook=self._source.webhook)
        runners = (self._view and self._view.runners) or ()
        self._outside = {*machines[: outside(len(machines), alone, assigned, runners, rows.in_set)]}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda machine: super(ListeningKeeper, self)._prepare_all([machine], rows), machines))

    def _register(self, machine: str) -> tuple[str, int | None, bool]:
        if machine in self._outside:
            return super()._register(machine)
        config, runner = self._source.scale_set.register(f"{self._prefix}{machine}")
        return config, runner, True

    def _forget(self, runner: int) -> bool:
        rows = self._view.rows if self._view else None
        in_set = rows and any(rows.runners.get(machine) == runner for machine in rows.in_set)
        return self._source.scale_set.forget(runner) if in_set else super()._forget(runner)

    def _leave(self, job: int, rows: Rows) -> None:
        if not self._source.assigned.leave(job, time.time()):
            super()._leave(job, rows)

    @property
    def _listing(self) -> float:
        return min(super()._listing * _MINUTE / _SPACING, _MINUTE / _CALL_SECONDS)

    def _deliver_again(self) -> None:
        if self._source.webhook:
            super()._deliver_again()

    def _rerun(self, rows: Rows) -> None:
        """Find the jobs of the set that failed on a lost machine, and have them run again as those of the webhook."""
        for runner, repository, run in self._source.assigned.failed_on(rows.lost_runners):
            with refusal("find the job", runner=runner):
                for job in self._github.jobs_of(repository, run):
                    if job.get("runner_name") == runner and int(job["run_attempt"]) <= self._source.retries:
                        self._jobs.fail(int(job["id"]), repository, runner)
                self._source.assigned.settle(runner)
        super()._rerun(rows)


class Listener:
    """Listens to one scale set, for the machines of one stack.

    Args:
        environment: the function's variables, which ``components.runners.ec2.scaler_functions`` sets.
        sets: how many listeners there are beside each other, this one included: they share GitHub's quota.
    """

    def __init__(self, environment: Mapping[str, str], sets: int = 1) -> None:
        self._environment = environment
        self._sets = sets
        self._name = environment.get("SCALE_SET", environment["NAME"])
        login, api = partial(credentials, environment["GITHUB_SECRET"]), environment["GITHUB_API"]
        self._set = ScaleSet(
            lambda: GitHub(api, environment["GITHUB_SCOPE"], login, time.time() + _LOGIN_SECONDS),
            api,
            environment["GITHUB_URL"],
            self._name,
            environment["OWN_LABELS"].split(","),
            int(environment["RUNNER_GROUP"]),
        )
        self._jobs = Jobs(client("dynamodb"), environment["JOBS"])
        webhook, retries = "WEBHOOK" in environment, int(environment["RETRIES"])
        self._source = _Source(self._set, AssignedJobs(), webhook, retries)
        self._own = secrets.token_hex(8)
        self._other, self._since = "", 0.0
        self._wake = threading.Event()
        self._known = self._keeps = self._listens = False
        self._done: list[int] = []
        self._end = 0.0
        self._keepers: list[ListeningKeeper] = []

    def run(self, seconds: float) -> None:
        """Listen for some seconds, and do rounds, unless another listener works until then."""
        self._end = time.time() + seconds
        while not self._leads():
            if self._end - time.time() < _SPACING:
                return
            time.sleep(_SPACING)
        listening = threading.Thread(target=self._listen, daemon=True)
        listening.start()
        self._wake.wait(self.spacing)  # the first round decides by what GitHub says, if it does
        try:
            while time.time() < self._end and listening.is_alive() and self._leads():
                begun = time.time()
                self._wake.clear()
                self._round()
                time.sleep(max(min(begun + self.spacing, self._end) - time.time(), 0))
                self._wake.wait(max(min(begun + _MINUTE, self._end) - time.time(), 0))
        finally:  # also where a round fails: the next listener begins at once
            self._end = min(self._end, time.time())
            listening.join(_LONGEST_PAUSE)
            self._close()

    @property
    def spacing(self) -> float:
        """Least seconds from the last round to the next: each one asks GitHub for all runners, page by page."""
        return max(min(_SPACING * self._sets, _MINUTE), _CALL_SECONDS * self._sets * self._source.pages)

    def _round(self) -> None:
        keeper = ListeningKeeper(self._environment, self._source)
        self._keepers = [*self._keepers[-1:], keeper]
        keeper.round()

    def _leads(self) -> bool:
        """Return whether this listener works with the table, and note that it does.

        Another one is no more once this one has seen no new note of it for a while: clocks may differ. Without an
        answer of the table, all is as before: a machine that Auto Scaling ends is to be held in an outage, too.
        """
        with refusal("note who works"):
            last = self._other  # before its time: the other thread may read a new one meanwhile
            is_silent = time.monotonic() - self._since > _SILENT_SECONDS
            other = self._jobs.lead(self._own, last if is_silent else "")
            if other not in {"", self._other}:
                self._since = time.monotonic()
                log("waits", why=f"another listener works for {self._name}")
            self._other = other
        return not self._other

    def _close(self) -> None:
        """End the session, so that the next listener begins at once. Where another one works, the table is its."""
        session = self._source.assigned.session
        if session and (self._listens or not self._other):
            with refusal("end the session"):
                self._set.close(session)
                self._source.assigned.session = ""
        if not self._other:
            if self._keeps:  # else the table still has what the last one knew
                with refusal("keep what is known"):
                    self._keep()
            with refusal("leave"):
                self._jobs.leave(self._own)

    def _listen(self) -> None:
        """Take messages until the end, whatever GitHub answers."""
        pause = 1.0
        while self._end - time.time() > 1 and self._leads():  # a round may take long
            if self._attend():
                pause = 1.0
                continue
            time.sleep(max(min(pause, self._end - time.time()), 0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _attend(self) -> bool:
        """Wait for the next message, and take it; return false to pause, for GitHub or AWS refuses something."""
        try:
            if not self._listens:
                self._begin()
                if not self._leads():  # that may take long
                    return False
            last = self._source.assigned.last
            message = self._set.message(last, self._capacity, self._end - time.time())
            self._still_listens()
            if message is not None:
                self._take(message)
            deleted = False
            with refusal("delete a message"):  # the next ones are as good without
                deleted = self._delete()
        except Conflict as conflict:
            log("waits", why=f"another listener has the session of {self._name}: {conflict}")
        except (Refused, *FAILURES) as error:
            if self._end - time.time() > 1:  # else it is the wait that has ended
                log("refused", to="listen", why=reason(error))
            # A session that GitHub has ended, or knows no more, is begun anew.
            self._listens = self._listens and isinstance(error, Refused) and error.passes and error.status != 401
        else:
            # GitHub sends again at once what is not deleted (session_client.go:92).
            return deleted or message is None or self._source.assigned.last > last
        return False

    def _begin(self) -> None:
        """Begin a session. One that this stack's last listener did not end is ended first."""
        if not self._known:
            known, own = AssignedJobs.of(self._jobs.rows().listener), self._source.assigned.taken_back
            own[:0] = known.taken_back  # a round that has begun adds to this list
            known.taken_back = own
            self._source.assigned, self._known = known, True
        self._set.ensure()
        self._still_listens()
        session = self._set.open(self._source.assigned.session)
        self._done.clear()
        self._source.assigned.begin(session.id, session.statistics, time.time())
        self._keep(first=True)
        self._set.label()
        self._listens = True
        self._hurry()
        log("listens", scale_set=self._name)

    def _still_listens(self) -> None:
        """Raise Refused if the time is over: a thread that Lambda freezes as it waits may go on in the next run."""
        if time.time() >= self._end:
            raise Refused(0, "the time to listen is over")

    def _take(self, message: Mapping[str, Any]) -> None:
        """Request machines for a message, take what is available, and keep it: only then may GitHub delete it."""
        assigned = self._source.assigned
        available = assigned.take(message, time.time())
        self._hurry()
        if available:
            self._set.acquire(available)
        self._keep()
        self._done = [*dict.fromkeys([*self._done, assigned.acknowledge(message)])]

    def _keep(self, *, first: bool = False) -> None:
        """Have the table keep what is known, as the ``first`` of a session or if no other listener began one since."""
        self._jobs.note_listener(self._own, self._source.assigned.text(), first=first)
        self._keeps = True

    def _delete(self) -> bool:
        """Have GitHub delete what was taken: else it comes in the next session, whose numbers it spoils.

        Return false if GitHub never will.
        """
        deleted = True
        while self._done:
            try:
                self._set.acknowledge(self._done[0])
            except Refused as refused:
                if refused.passes:
                    raise
                log("refused", to=f"delete message {self._done[0]}", why=reason(refused))
                deleted = False
            self._done.pop(0)
        return deleted

    def _hurry(self) -> None:
        keeper = next((each for each in reversed(self._keepers) if each.has_read), None)
        if keeper:
            keeper.hurry()
        self._wake.set()

    @property
    def _capacity(self) -> int:
        """How many jobs GitHub may assign, by the last round, or by the configuration before the first."""
        return self._keepers[-1].capacity if self._keepers else int(json.loads(self._environment["RULES"])["most"])


def noted_alone(noted: Sequence[Job], assigned: Sequence[Job], *, webhook: bool) -> list[Job]:
    """Return the webhook's jobs without those of the set.

    While there is a webhook, it notes those of the set, too: what it noted before the set was known is the oldest.
    Later, what GitHub gave to no runner outside of the set may be one of the set that was noted, too.
    """
    doubtful = [*noted] if webhook else [job for job in noted if job.unassigned_since is not None]
    of_set = {job.id for job in doubtful[max(len(doubtful) - len(assigned), 0) :]}
    return [job for job in noted if job.id not in of_set]


def outside(
    count: int, alone: Sequence[Job], assigned: Sequence[Job], runners: Sequence[Runner], in_set: Collection[str]
) -> int:
    """Return how many of the next ``count`` machines are to be registered outside of the set.

    ``assigned`` are the jobs of the set, ``alone`` the others. Free runners come first; ``in_set`` are
    the machines with one of the set.
    """
    free = Counter(runner.machine not in in_set for runner in runners if not runner.busy)
    needed = []
    for _, is_outside in sorted([*((due(job), True) for job in alone), *((due(job), False) for job in assigned)]):
        if free[is_outside] > 0:
            free[is_outside] -= 1
        else:
            needed.append(is_outside)
    return sum(needed[:count])


def capacity(now: float, rules: Rules) -> int:
    """Return how many machines there can be: ``most``, or fewer if the reservations that are not over have fewer."""
    if any(group not in rules.reservations for group in rules.groups):
        return rules.most
    left = (0 if each.is_over(now) else each.count for each in rules.reservations.values())
    return min(rules.most, sum(left))
