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
from datetime import datetime
from typing import Any

from .aws import client, secret
from .jobs import Job, Jobs

_SIGNATURE = re.compile("sha256=[0-9a-f]{64}")
_SECONDS_OLD, _REPLACED = 3600.0, 30.0
"""Seconds after which the secret is read again, and after which it is where a signature is of another."""

Answer = dict[str, Any]
"""What the function's address answers: ``statusCode`` and ``body``."""


def handle(event: Mapping[str, Any], _context: object) -> Answer:
    """Answer one delivery, as a Lambda function address hands it over (payload format 2.0)."""
    body = event.get("body") or ""
    content = base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
    headers = {name.lower(): value for name, value in event.get("headers", {}).items()}
    if not _signed(content, headers.get("x-hub-signature-256", "")):
        return _answer(401, "the signature is not GitHub's")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _answer(415, "expected the content type application/json: choose it in the webhook's settings at GitHub")
    if headers.get("x-github-event") != "workflow_job":
        return _answer(200, "not about a job")
    return _job(json.loads(content))


def _job(payload: Mapping[str, Any]) -> Answer:
    if not _ours(payload["repository"]):
        return _answer(403, "not a repository of these runners")
    workflow_job = payload["workflow_job"]
    if not _matches(workflow_job["labels"]):
        return _answer(200, "not a job for these runners")
    since = datetime.fromisoformat(workflow_job["created_at"]).timestamp()
    job = Job(int(workflow_job["id"]), payload["repository"]["full_name"], since)
    jobs = Jobs(client("dynamodb"), os.environ["JOBS"])
    if payload["action"] == "queued":
        return _answer(202, "noted" if jobs.queue(job) else "known, or too old")
    if payload["action"] == "completed" and _failed(workflow_job):
        jobs.fail(job, workflow_job["runner_name"])
        return _answer(202, "noted")
    if payload["action"] in {"in_progress", "completed"}:
        jobs.take(job)
        return _answer(202, "noted")
    if payload["action"] == "waiting":  # for somebody's approval, however long; `queued` comes after it
        jobs.postpone(job)
        return _answer(202, "noted")
    return _answer(200, "nothing to do yet")


def _failed(workflow_job: Mapping[str, Any]) -> bool:
    """Tell whether a job may have failed for its machine's sake, and has not been run again too often by then."""
    ended = workflow_job["conclusion"] in {"failure", "cancelled"} and bool(workflow_job["runner_name"])
    return ended and int(workflow_job["run_attempt"]) <= int(os.environ["RETRIES"])


def _matches(labels: list[str]) -> bool:
    """Tell whether a job is for these runners: it asks for one of their own labels, and for none that they lack."""
    requested = {label.lower() for label in labels}
    own, all_labels = (set(os.environ[name].lower().split(",")) for name in ("OWN_LABELS", "LABELS"))
    return bool(requested & own) and requested <= all_labels


def _ours(repository: Mapping[str, Any]) -> bool:
    """Tell whether a repository is the one of the configuration, or its organization's (GitHub ignores case)."""
    whose = os.environ["GITHUB_SCOPE"].lower()
    name: str = repository["full_name"].lower()
    return name == whose if "/" in whose else name.startswith(f"{whose}/")


def _signed(content: bytes, signature: str) -> bool:
    """Tell whether the secret, or the one that it was just replaced with, has signed a delivery."""
    if not _SIGNATURE.fullmatch(signature):
        return False
    return any(
        hmac.compare_digest(_signature(content, fresh), signature.encode()) for fresh in (_SECONDS_OLD, _REPLACED)
    )


def _signature(content: bytes, fresh: float) -> bytes:
    key = secret(os.environ["WEBHOOK_SECRET"], fresh=fresh).strip().encode()
    return b"sha256=" + hmac.new(key, content, hashlib.sha256).hexdigest().encode()


def _answer(status: int, text: str) -> Answer:
    return {"statusCode": status, "headers": {"content-type": "text/plain"}, "body": text}
