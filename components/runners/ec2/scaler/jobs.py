"""The table of jobs: one row for each, ``queued`` until a runner has it or it is over, then ``taken``.

One is ``later`` while GitHub has it wait for something else (an approval), and ``left`` where GitHub gives it to none
of these runners. One that failed is ``failed`` where it may be run again, for which its runner must be among those that
are ``lost``, and ``again`` after that. A row stays for as long as its job could have been queued, and its state changes
as :data:`_FROM` says alone: a delivery that comes late, or twice, or is played again by somebody else, does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LONGEST_QUEUED = 24 * 3600
"""Seconds after which GitHub ends a job that no self-hosted runner took ("Usage limits", self-hosted runners)."""

_FROM = {
    "queued": ("later",),
    "later": ("queued", "left", "later"),
    "left": ("queued", "left"),
    "taken": ("queued", "left", "later"),
    "failed": ("queued", "left", "later", "taken"),
    "again": ("failed",),
}
"""The states that a row may come from, by that to which it goes."""


@dataclass(frozen=True)
class Job:
    """A job that waits: its id and repository (``owner/name``) at GitHub, and since when, in seconds since 1970.

    ``left`` is when it was last seen that GitHub gives it to none of these runners.
    """

    id: int
    repository: str
    since: float
    left: float | None = None


@dataclass(frozen=True)
class Known:
    """What the table says: jobs that wait, the oldest first; jobs that failed, each with its runner; lost runners.

    ``later`` are jobs that wait for something else than a runner, since GitHub was last asked.
    """

    waiting: list[Job]
    later: list[Job]
    failed: list[tuple[str, Job]]
    lost: set[str]


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
        """Note a job, unless it is known or too old to be queued still; return whether it was noted.

        One that was to come later is queued from now on: GitHub says when a job was made, and not when it was approved.
        """
        if job.since + LONGEST_QUEUED >= time.time() and self._put(job, "queued", known=False):
            return True
        return self._put(replace(job, since=time.time()), "queued", new=False)

    def postpone(self, job: Job) -> None:
        """Note that a job waits for something else than a runner, as GitHub says just now."""
        self._put(replace(job, since=time.time()), "later")

    def leave(self, job: Job) -> None:
        """Note that GitHub gives a job to none of these runners, as is seen just now."""
        self._put(job, "left", {"left": {"N": str(int(time.time()))}})

    def take(self, job: Job) -> None:
        """Note that a job waits no more, whether or not it was known."""
        self._put(job, "taken")

    def fail(self, job: Job, runner: str) -> None:
        """Note that a job failed on a runner, and is to be run again if that was lost."""
        self._put(job, "failed", {"runner": {"S": runner}})

    def again(self, job: Job) -> None:
        """Note that a job that failed was run again, or cannot be."""
        self._put(job, "again")

    def lose(self, runner: str) -> None:
        """Note that a runner is gone, its machine with it, and may not have ended its job."""
        expires = str(int(time.time()) + LONGEST_QUEUED)
        row = {"id": {"S": runner}, "state": {"S": "lost"}, "expires": {"N": expires}}
        self._client.put_item(TableName=self._table, Item=row)

    def known(self) -> Known:
        """Return what the table says, without the jobs that GitHub has ended by now for having waited too long."""
        oldest = time.time() - LONGEST_QUEUED
        known = Known([], [], [], set())
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "NOT #s IN (:taken, :again)",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":taken": {"S": "taken"}, ":again": {"S": "again"}},
        }
        while True:
            answer = self._client.scan(**request)
            for row in answer["Items"]:
                if row["state"]["S"] == "lost":
                    known.lost.add(row["id"]["S"])
                    continue
                left = float(row["left"]["N"]) if "left" in row else None
                job = Job(int(row["id"]["S"]), row["repository"]["S"], float(row["since"]["N"]), left)
                if row["state"]["S"] == "later":
                    known.later.append(job)
                elif row["state"]["S"] == "failed":
                    known.failed.append((row["runner"]["S"], job))
                elif job.since > oldest:
                    known.waiting.append(job)
            if "LastEvaluatedKey" not in answer:
                known.waiting.sort(key=lambda job: (job.since, job.id))
                return known
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _put(
        self, job: Job, state: str, more: Mapping[str, Any] | None = None, *, new: bool = True, known: bool = True
    ) -> bool:
        """Write a job's row where there is none (``new``) or one that may go to that state; return whether it did."""
        row = {
            "id": {"S": str(job.id)},
            "state": {"S": state},
            "repository": {"S": job.repository},
            "since": {"N": str(int(job.since))},
            "expires": {"N": str(int(max(job.since, time.time())) + LONGEST_QUEUED + 3600)},
            **(more or {}),
        }
        request: dict[str, Any] = {"TableName": self._table, "Item": row}
        where = ["attribute_not_exists(id)"] if new else []
        if known:
            before = {f":{name}": {"S": name} for name in _FROM[state]}
            where.append(f"#s IN ({', '.join(before)})")
            request |= {"ExpressionAttributeNames": {"#s": "state"}, "ExpressionAttributeValues": before}
        try:
            self._client.put_item(**request, ConditionExpression=" OR ".join(where))
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True
