"""Takes GitHub's webhooks: whoever can reach the function's address may call it, so only what GitHub signed counts.

It can read one secret and write one table, and nothing else. What cannot be GitHub's costs no call. GitHub waits ten
seconds for the answer and does not ask twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .aws import FAILURES, SHAPE, client, log, reason, secret
from .github import REPOSITORY
from .jobs import Job, Jobs

_SIGNATURE = re.compile("sha256=[0-9a-f]{64}")
_SECONDS_OLD, _REPLACED = 3600.0, 30.0
"""Seconds after which the secret is read again, and after which it is where a signature is of another."""

Answer = dict[str, Any]
"""What the function's address answers: ``statusCode`` and ``body``."""


@dataclass(frozen=True)
class _Delivery:
    """What a delivery says of a job; ``conclusion`` and ``runner`` are empty until it has them."""

    action: str
    job: Job
    labels: set[str]
    conclusion: str
    runner: str
    attempt: int


def handle(event: Mapping[str, Any], _context: object) -> Answer:
    """Answer one delivery, as a Lambda function address hands it over (payload format 2.0).

    Where AWS does not answer, the keeper has GitHub deliver again. That takes an App; a token may not ask for it.
    """
    try:
        return _taken(event)
    except FAILURES as error:
        log("refused", why=reason(error))
        return _answer(503, "AWS does not answer as it should; see the function's log")


def _taken(event: Mapping[str, Any]) -> Answer:
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    signature = headers.get("x-hub-signature-256", "")
    if not _SIGNATURE.fullmatch(signature):
        return _answer(401, "the signature is not GitHub's")
    body = event.get("body") or ""
    try:
        content = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError:  # no base64, or a character that UTF-8 has not
        return _answer(400, "the body cannot be decoded")
    if not _signed(content, signature):
        return _answer(401, "the signature is not GitHub's")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _answer(415, "expected the content type application/json: choose it in the webhook's settings at GitHub")
    if headers.get("x-github-event") != "workflow_job":
        return _answer(200, "not about a job")
    try:
        delivery = _delivered(json.loads(content))
    except SHAPE:
        return _answer(422, "the content is not what GitHub documents for the event workflow_job")
    return _noted(delivery)


def _delivered(payload: Mapping[str, Any]) -> _Delivery:
    """Read a delivery. Raises one of ``SHAPE`` if it is not of the shape that GitHub documents."""
    job, repository = payload["workflow_job"], payload["repository"]["full_name"]
    if not REPOSITORY.fullmatch(repository):
        raise ValueError
    since = datetime.fromisoformat(job["created_at"]).timestamp()
    return _Delivery(
        str(payload["action"]),
        Job(int(job["id"]), repository, since),
        {label.lower() for label in job["labels"]},
        (job.get("conclusion") or "").lower(),
        (job.get("runner_name") or "").strip(),
        int(job.get("run_attempt", 1)),
    )


def _noted(delivery: _Delivery) -> Answer:
    if not _ours(delivery.job.repository.lower()):
        return _answer(200, "not a repository of these runners")  # GitHub would repeat what is refused
    if not _matches(delivery.labels):
        return _answer(200, "not a job for these runners")
    job = delivery.job
    jobs = Jobs(client("dynamodb"), os.environ["JOBS"])
    if delivery.action == "queued":
        return _answer(202, "noted" if jobs.queue(job) else "known, or too old")
    if delivery.action == "completed" and _failed(delivery):
        jobs.fail(job.id, job.repository, delivery.runner)
        return _answer(202, "noted")
    if delivery.action in {"in_progress", "completed"}:
        jobs.dequeue(job)
        return _answer(202, "noted")
    if delivery.action == "waiting":  # for somebody's approval, however long; `queued` comes after it
        jobs.postpone(job)
        return _answer(202, "noted")
    return _answer(200, "nothing to do yet")


def _failed(delivery: _Delivery) -> bool:
    """Tell whether a job may have failed for its machine's sake, and has not been run again too often by then."""
    ended = delivery.conclusion in {"failure", "cancelled"} and bool(delivery.runner)
    return ended and delivery.attempt <= int(os.environ["RETRIES"])


def _matches(requested: set[str]) -> bool:
    """Tell whether a job is for these runners: it asks for one of their own labels, and for none that they lack."""
    own, all_labels = (set(os.environ[name].lower().split(",")) for name in ("OWN_LABELS", "LABELS"))
    return bool(requested & own) and requested <= all_labels


def _ours(repository: str) -> bool:
    """Tell whether a repository is the one of the configuration, or its organization's (GitHub ignores case)."""
    whose = os.environ["GITHUB_SCOPE"].lower()
    return repository == whose if "/" in whose else repository.startswith(f"{whose}/")


def _signed(content: bytes, signature: str) -> bool:
    """Tell whether the secret, or the one that it was just replaced with, has signed a delivery."""
    return any(
        hmac.compare_digest(_signature(content, fresh), signature.encode()) for fresh in (_SECONDS_OLD, _REPLACED)
    )


def _signature(content: bytes, fresh: float) -> bytes:
    key = secret(os.environ["WEBHOOK_SECRET"], fresh=fresh).encode()
    return b"sha256=" + hmac.new(key, content, hashlib.sha256).hexdigest().encode()


def _answer(status: int, text: str) -> Answer:
    return {"statusCode": status, "headers": {"content-type": "text/plain"}, "body": text}
