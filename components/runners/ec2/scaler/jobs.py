"""The table of jobs: one row for each, ``queued`` until a runner has it or it is over, then ``taken``.

A row that is taken stays for as long as its job could have been queued, so that a delivery that comes late, or twice,
or is played again by somebody else, asks for no machine.
"""

from __future__ import annotations

import time
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

    def waiting(self) -> list[Job]:
        """Return the jobs that are queued, the longest waiting first; what GitHub has ended by now is left out."""
        found: list[Job] = []
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "#s = :queued AND since > :oldest",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {
                ":queued": {"S": "queued"},
                ":oldest": {"N": str(int(time.time()) - LONGEST_QUEUED)},
            },
        }
        while True:
            answer = self._client.scan(**request)
            found += [
                Job(int(row["id"]["S"]), row["repository"]["S"], float(row["since"]["N"])) for row in answer["Items"]
            ]
            if "LastEvaluatedKey" not in answer:
                return sorted(found, key=lambda job: (job.since, job.id))
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _put(self, job: Job, state: str, **condition: str) -> None:
        row = {
            "id": {"S": str(job.id)},
            "state": {"S": state},
            "repository": {"S": job.repository},
            "since": {"N": str(int(job.since))},
            "expires": {"N": str(int(max(job.since, time.time())) + LONGEST_QUEUED + 3600)},
        }
        self._client.put_item(TableName=self._table, Item=row, **condition)
