"""AWS's APIs, each client made once, and secrets: Lambda keeps a function's process for the next call."""

from __future__ import annotations

import functools
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

FAILURES = (BotoCoreError, ClientError)
"""What a call raises that AWS refuses or does not answer."""

_FRESH = 300
"""Seconds for which a secret is not read again."""

_SECRETS: dict[str, tuple[float, str]] = {}
"""By ARN: when a secret was read, and its text."""


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service. A call that hangs costs a part of a round, and not the round."""
    retries = {"mode": "standard", "total_max_attempts": 2}
    return boto3.client(service, config=Config(connect_timeout=3, read_timeout=5, retries=retries))


def secret(arn: str, *, fresh: float = _FRESH) -> str:
    """Return a secret's text, at most ``fresh`` seconds old, or older where AWS does not give it just now."""
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
