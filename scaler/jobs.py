"""The table of jobs: a row for each job, each lost runner, and each machine with a runner.

The states of a job's row:

- ``queued``: it waits for a runner.
- ``later``: it waits for something else, such as an approval.
- ``left``: GitHub assigned it to none of these runners.
- ``taken``: a runner has it, or it is over.
- ``failed``: it failed on a runner. If that runner is ``lost``, the job is run again.
- ``again``: it was run again, or cannot be.

There are four more rows. :data:`STATUS` has all that the keeper's last round knew of jobs and machines.
:data:`LISTENER` has all that the listener knows of its scale set. :data:`LEASE` says which listener works with the
table. :data:`SHORTAGE` says since when machines are missing that nobody waits for.

A row stays for as long as its job can be queued. Its state changes only as :data:`_FROM` allows, so a delivery that is
late, repeated or replayed does nothing.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from .aws import SHAPE, Failed, pages, reason
from .github import REPOSITORY

STATUS = "status"
"""The id and the state of the row with the keeper's report."""

LISTENER = "listener"
"""The id and the state of the row with what the listener knows."""

LEASE = "lease"
"""The id and the state of the row that says which listener works with the table."""

SHORTAGE = "shortage"
"""The id and the state of the row with the last :class:`Shortage`."""

LONGEST_QUEUED = 24 * 3600
"""Seconds after which GitHub ends a job without a self-hosted runner ("Usage limits", self-hosted runners)."""

_LONGEST_LIFE = (365 + 35) * 24 * 3600
"""Seconds that a machine lives at most: the largest ``maxLifetime``, and a workflow run ("Usage limits", 35 days)."""

_LONGEST_KNOWN = 8 << 20
"""Most bytes of what a listener knows, decompressed. With 3,000 machines it has half a million."""

_FROM = {
    "queued": ("later",),
    "later": ("queued", "left", "later"),
    "left": ("queued", "left"),
    "taken": ("queued", "left", "later"),
    "failed": ("queued", "left", "later", "taken"),
    "again": ("failed",),
}
"""The former states that a row may have, by its new state."""


@dataclass(frozen=True)
class Job:
    """A job that waits: its id and repository (``owner/name``) at GitHub, and since when, in seconds since 1970.

    ``unassigned_since`` is when the keeper last noted that GitHub assigned it to none of these runners. ``lost`` is a
    job whose workflow run lost a machine: another one is not to be taken away. ``assigned`` is when GitHub gave it to
    the scale set, 0 for a job of none.
    """

    id: int
    repository: str
    since: float
    unassigned_since: float | None = None
    lost: bool = False
    assigned: float = 0


@dataclass(frozen=True)
class Shortage:
    """Since when machines are missing that were asked for, and when that was last so, in seconds since 1970.

    ``seen`` is 0 once all are there. ``taken`` is when spot capacity last took one of them, 0 if it has not.
    ``freed`` is since when a reservation has had room all the time, 0 if none has.
    """

    since: float
    seen: float
    taken: float = 0
    freed: float = 0


@dataclass
class Rows:
    """The rows of the table.

    ``waiting`` are the jobs that wait for a runner, the oldest first. ``postponed`` are those that wait for something
    else, since GitHub was last asked. ``failed`` has each failed job after its runner, ``lost_runners`` the names of
    lost runners. ``registered`` is when each machine got its runner, in seconds since 1970. ``runners`` are the ids
    of GitHub's runners by their machines, ``in_set`` the machines of those of a scale set. ``listener`` is what the
    last listener knew. ``shortage`` is the last one. ``unreadable`` is the number of rows of another shape than the
    table's.
    """

    waiting: list[Job] = field(default_factory=list)
    postponed: list[Job] = field(default_factory=list)
    failed: list[tuple[str, Job]] = field(default_factory=list)
    lost_runners: set[str] = field(default_factory=set)
    registered: dict[str, float] = field(default_factory=dict)
    runners: dict[str, int] = field(default_factory=dict)
    in_set: set[str] = field(default_factory=set)
    listener: str = ""
    shortage: Shortage | None = None
    unreadable: int = 0

    def add(self, row: Mapping[str, Any], oldest: float) -> None:
        """Add a row of the table, unless its job waits since before ``oldest``.

        Raises:
            Exception: one of ``SHAPE``, if it is no row of the table.
        """
        state = row["state"]["S"]
        if state == "lost":
            self.lost_runners.add(row["id"]["S"])
            return
        if state == "runner":
            machine = row["id"]["S"]
            self.registered[machine] = float(int(row["expires"]["N"]) - _LONGEST_LIFE)
            if "runner" in row:
                self.runners[machine] = int(row["runner"]["N"])
            if "set" in row:
                self.in_set.add(machine)
            return
        if state == LISTENER:
            self.listener = _text(row["known"])
            return
        if state == SHORTAGE:
            self.shortage = Shortage(**{each.name: float(int(row[each.name]["N"])) for each in fields(Shortage)})
            return
        if not REPOSITORY.fullmatch(row["repository"]["S"]):
            raise ValueError
        unassigned_since = float(int(row["left"]["N"])) if "left" in row else None
        job = Job(int(row["id"]["S"]), row["repository"]["S"], float(int(row["since"]["N"])), unassigned_since)
        if state == "later":
            self.postponed.append(job)
        elif state == "failed":
            self.failed.append((row["runner"]["S"], job))
        elif job.since > oldest:
            self.waiting.append(job)


def _text(known: Mapping[str, Any]) -> str:
    """Return what a listener knew. Raises ValueError for anything else."""
    unpacked = zlib.decompressobj()
    try:
        text = unpacked.decompress(known["B"], _LONGEST_KNOWN)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacked.eof:
        raise ValueError("it is longer than a listener's")
    return text.decode()


class Jobs:
    """The table.

    Args:
        client: DynamoDB's, of boto3.
        table: its name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def queue(self, job: Job) -> bool:
        """Note a job, unless it has a row or is too old to be queued; return whether it was noted.

        A postponed job is queued from now on: GitHub says when a job was created, not when it was approved.
        """
        if job.since + LONGEST_QUEUED >= time.time() and self._put(job, "queued", update=False):
            return True
        return self._put(replace(job, since=time.time()), "queued", insert=False)

    def postpone(self, job: Job) -> None:
        """Note that a job waits for something else than a runner, as of now."""
        self._put(replace(job, since=time.time()), "later")

    def unassign(self, job: Job) -> None:
        """Note that GitHub assigned a job to none of these runners, as of now."""
        self._put(job, "left", {"left": {"N": str(int(time.time()))}})

    def dequeue(self, job: Job) -> None:
        """Note that a job no longer waits, whether or not it has a row."""
        self._put(job, "taken")

    def fail(self, job: int, repository: str, runner: str) -> None:
        """Note that a job failed on a runner, as of now. It is run again if the runner is lost."""
        self._put(Job(job, repository, time.time()), "failed", {"runner": {"S": runner}})

    def note_rerun(self, job: Job) -> None:
        """Note that a failed job was run again, or cannot be."""
        self._put(job, "again")

    def note_lost_runner(self, runner: str) -> None:
        """Note that a runner's machine is gone, perhaps before its job was done."""
        self._note(runner, "lost", LONGEST_QUEUED)

    def note_runner(self, machine: str, runner: int | None, config: Mapping[str, Any], *, in_set: bool = False) -> None:
        """Note that a machine has a runner, for as long as it may live, and put its configuration: both, or neither.

        ``runner`` is its id at GitHub, if known; ``config`` is the request for the item of the other table.
        """
        known = {"runner": {"N": str(runner)}} if runner is not None else {}
        more = {"set": {"BOOL": True}} if in_set else {}
        row = self._row(machine, "runner", _LONGEST_LIFE, {**known, **more})
        self._client.transact_write_items(TransactItems=[{"Put": row}, {"Put": config}])

    def note_listener(self, listener: str, known: str, *, first: bool) -> None:
        """Keep what a listener knows, for the next one: compressed, as DynamoDB counts the bytes of each write.

        ``listener`` is the name of one alone. AWS refuses what is not the ``first`` of a session once another noted.
        """
        last = {"ConditionExpression": "note = :own", "ExpressionAttributeValues": {":own": {"S": listener}}}
        attributes = {"note": {"S": listener}, "known": {"B": zlib.compress(known.encode())}}
        self._client.put_item(**self._row(LISTENER, LISTENER, _LONGEST_LIFE, attributes), **({} if first else last))

    def lead(self, listener: str, silent: str) -> str:
        """Note that a listener works with this table; return "", or the last note of another one that does.

        ``listener`` is the name of one alone. It takes over where the last note is the ``silent`` one.
        """
        try:
            self._client.put_item(
                **self._row(LEASE, LEASE, LONGEST_QUEUED, {"note": {"S": f"{listener} {time.time()}"}}),
                ConditionExpression="attribute_not_exists(note) OR begins_with(note, :own) OR note = :silent",
                ExpressionAttributeValues={":own": {"S": f"{listener} "}, ":silent": {"S": silent or "none"}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            return str(refused.response["Item"]["note"]["S"])
        return ""

    def leave(self, listener: str) -> None:
        """Note that no listener works with this table any more, if this one was the last to note that it does."""
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.put_item(
                **self._row(LEASE, "taken", 0, {}),
                ConditionExpression="begins_with(note, :own)",
                ExpressionAttributeValues={":own": {"S": f"{listener} "}},
            )

    def note_shortage(self, shortage: Shortage) -> None:
        """Note that too few machines wait for jobs, or that there may be no more of them."""
        times = {key: {"N": str(int(time))} for key, time in asdict(shortage).items()}
        self._note(SHORTAGE, SHORTAGE, LONGEST_QUEUED, times)

    def forget_runner(self, machine: str) -> None:
        """Note that a machine has no runner any more."""
        self._note(machine, "taken", 0)

    def note_status(self, report: str) -> None:
        """Keep the report of a round, in place of the last one's."""
        self._note(STATUS, STATUS, LONGEST_QUEUED, {"report": {"S": report}})

    def _note(self, name: str, state: str, seconds: int, attributes: Mapping[str, Any] | None = None) -> None:
        self._client.put_item(**self._row(name, state, seconds, attributes or {}))

    def _row(self, name: str, state: str, seconds: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request for a row that is kept for some seconds."""
        expires = {"expires": {"N": str(int(time.time()) + seconds)}}
        return {"TableName": self._table, "Item": {"id": {"S": name}, "state": {"S": state}, **expires, **attributes}}

    def rows(self) -> Rows:
        """Return the rows, without the waiting jobs that GitHub has ended because they waited too long."""
        oldest = time.time() - LONGEST_QUEUED
        rows = Rows()
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "NOT #s IN (:taken, :again, :status, :lease)",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {f":{name}": {"S": name} for name in ("taken", "again", STATUS, LEASE)},
        }
        for page in pages(self._client, "scan", **request):
            for row in page["Items"]:
                try:
                    rows.add(row, oldest)
                except SHAPE:  # it costs its own job, and no other
                    rows.unreadable += 1
        rows.waiting.sort(key=lambda job: (job.since, job.id))
        return rows

    def _put(
        self,
        job: Job,
        state: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        insert: bool = True,
        update: bool = True,
    ) -> bool:
        """Insert a job's row, or update one that may have the new state; return whether the table changed."""
        row = {
            "id": {"S": str(job.id)},
            "state": {"S": state},
            "repository": {"S": job.repository},
            "since": {"N": str(int(job.since))},
            "expires": {"N": str(int(max(job.since, time.time())) + LONGEST_QUEUED + 3600)},
            **(attributes or {}),
        }
        request: dict[str, Any] = {"TableName": self._table, "Item": row}
        conditions = ["attribute_not_exists(id)"] if insert else []
        if update:
            before = {f":{name}": {"S": name} for name in _FROM[state]}
            conditions.append(f"#s IN ({', '.join(before)})")
            request |= {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": before}
        try:
            self._client.put_item(**request, ConditionExpression=" OR ".join(conditions))
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        except SHAPE as error:
            raise Failed(reason(error)) from None
        return True
