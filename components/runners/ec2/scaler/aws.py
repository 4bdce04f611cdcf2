"""AWS's APIs, each client made once, and secrets: Lambda keeps a function's process for the next call."""

from __future__ import annotations

import functools
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

FAILURES = (BotoCoreError, ClientError)
"""What a call raises if AWS refuses it or does not answer."""

SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What is raised where an answer or a payload is not of the shape that GitHub or AWS documents."""

_SECRET_SECONDS = 300
"""Seconds for which a secret that was read is used."""

_SECRETS: dict[str, tuple[float, str]] = {}
"""By ARN: when a secret was read, and its text."""


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service, whose timeouts are short: a call that hangs must not take the whole round."""
    retries = {"mode": "standard", "total_max_attempts": 2}
    return boto3.client(service, config=Config(connect_timeout=3, read_timeout=5, retries=retries))


def secret(arn: str, *, fresh: float = _SECRET_SECONDS) -> str:
    """Return a secret's text, at most ``fresh`` seconds old, or older if AWS does not answer."""
    read, text = _SECRETS.get(arn, (0.0, ""))
    if time.time() - read > fresh:
        try:
            text = client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
        except FAILURES:
            if arn not in _SECRETS:
                raise
        else:
            _SECRETS[arn] = (time.time(), text)
    return text
