"""The table of jobs: one row for each, ``queued`` until a runner has it or it is over, then ``taken``.

One that failed is ``failed`` where it may be run again, for which its runner must be among those that are ``lost``. A
row that is taken stays for as long as its job could have been queued, so that a delivery that comes late, or twice, or
is played again by somebody else, asks for no machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_QUEUED = 24 * 3600
"""Seconds after which GitHub ends a job that no self-hosted runner took ("Usage limits", self-hosted runners)."""


@dataclass(frozen=True)
class Job:
    """A job that waits: its id and repository (``owner/name``) at GitHub, and since when, in seconds since 1970."""

    id: int
    repository: str
    since: float


@dataclass(frozen=True)
class Known:
    """What the table says: jobs that wait, the oldest first; jobs that failed, each with its runner; lost runners."""

    waiting: list[Job]
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
        """Note a job, unless it is known or too old to be queued still; return whether it was noted."""
        if job.since + LONGEST_QUEUED < time.time():
            return False
        try:
            self._put(job, "queued", ConditionExpression="attribute_not_exists(id)")
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def take(self, job: Job) -> None:
        """Note that a job waits no more, whether or not it was known."""
        self._put(job, "taken")

    def fail(self, job: Job, runner: str) -> None:
        """Note that a job failed on a runner, and is to be run again if that was lost."""
        self._put(job, "failed", {"runner": {"S": runner}})

    def lose(self, runner: str) -> None:
        """Note that a runner is gone, its machine with it, and that nobody here ended it."""
        expires = str(int(time.time()) + LONGEST_QUEUED)
        row = {"id": {"S": runner}, "state": {"S": "lost"}, "expires": {"N": expires}}
        self._client.put_item(TableName=self._table, Item=row)

    def known(self) -> Known:
        """Return what the table says, without the jobs that GitHub has ended by now for having waited too long."""
        oldest = time.time() - LONGEST_QUEUED
        known = Known([], [], set())
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "#s <> :taken",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":taken": {"S": "taken"}},
        }
        while True:
            answer = self._client.scan(**request)
            for row in answer["Items"]:
                if row["state"]["S"] == "lost":
                    known.lost.add(row["id"]["S"])
                    continue
                job = Job(int(row["id"]["S"]), row["repository"]["S"], float(row["since"]["N"]))
                if row["state"]["S"] == "failed":
                    known.failed.append((row["runner"]["S"], job))
                elif job.since > oldest:
                    known.waiting.append(job)
            if "LastEvaluatedKey" not in answer:
                known.waiting.sort(key=lambda job: (job.since, job.id))
                return known
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _put(self, job: Job, state: str, more: Mapping[str, Any] | None = None, **condition: str) -> None:
        row = {
            "id": {"S": str(job.id)},
            "state": {"S": state},
            "repository": {"S": job.repository},
            "since": {"N": str(int(job.since))},
            "expires": {"N": str(int(max(job.since, time.time())) + LONGEST_QUEUED + 3600)},
            **(more or {}),
        }
        self._client.put_item(TableName=self._table, Item=row, **condition)
