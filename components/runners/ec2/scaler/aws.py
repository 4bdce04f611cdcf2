"""AWS's APIs, each client made once, and secrets: Lambda keeps a function's process for the next call."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

FAILURES = (BotoCoreError, ClientError, ResponseParserError)
"""What a call raises if AWS refuses it, does not answer, or answers what is no XML, as a proxy does."""

SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What is raised where an answer or a payload is not of the shape that GitHub or AWS documents."""

_LONGEST = 500
"""Most characters of a reason in the log."""

_LIST_SECONDS = 8.0
"""Seconds after its first page in which a list ends."""

_SECRET_SECONDS = 300
"""Seconds for which a secret that was read is used."""

_SECRETS: dict[str, tuple[float, str]] = {}
"""By ARN: when a secret was read, and its text."""


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service, whose timeouts are short: a call that hangs must not take the whole round."""
    retries = {"mode": "standard", "total_max_attempts": 2}
    return boto3.client(service, config=Config(connect_timeout=3, read_timeout=5, retries=retries))


def reason(error: Exception) -> str:
    """Return what is logged of a failed call: not the answer where it was no XML, for it may be any secret."""
    if isinstance(error, ResponseParserError):
        return "AWS answers what is no XML"
    if isinstance(error, SHAPE):
        return f"the answer has another shape than documented: {error!r}"[:_LONGEST]
    return str(error)[:_LONGEST]


def pages(service: Any, operation: str, **given: Any) -> Iterator[Any]:
    """Yield the pages of a list that a client of a service reads. Raises ValueError if there is always one more."""
    end = float("inf")
    for page in service.get_paginator(operation).paginate(**given):
        if time.time() > end:
            raise ValueError(f"{operation} does not end")
        end = min(end, time.time() + _LIST_SECONDS)
        yield page


def secret(arn: str, *, fresh: float = _SECRET_SECONDS) -> str:
    """Return a secret's text, at most ``fresh`` seconds old, or older if AWS does not answer with one.

    Raises:
        ValueError: it is empty. Whoever knows that could sign with it.
    """
    read, text = _SECRETS.get(arn, (0.0, ""))
    if time.time() - read > fresh:
        try:
            text = client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"].strip()
            if not text:
                raise ValueError(f"the secret {arn} is empty")
        except (*FAILURES, *SHAPE):
            if arn not in _SECRETS:
                raise
        else:
            _SECRETS[arn] = (time.time(), text)
    return text
