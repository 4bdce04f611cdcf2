"""AWS's APIs, each client made once, and secrets: Lambda keeps a function's process for the next call."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError


class Failed(Exception):
    """A call whose answer is of no use; the text has nothing of that answer."""


FAILURES = (BotoCoreError, ClientError, ResponseParserError, Failed)
"""What a call raises if AWS refuses it, does not answer, or answers what cannot be read, as a proxy does."""

SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What is raised where an answer or a payload is not of the shape that GitHub or AWS documents."""

_LONGEST = 500
"""Most characters of a reason in the log."""

_CONNECTIONS = 40
"""Most connections to a service: a listener registers 32 machines at a time."""

_LIST_SECONDS = 8.0
"""Seconds after its first page in which a list ends."""

_SECRET_SECONDS, _FAILED_SECONDS = 300.0, 10.0
"""Seconds for which a secret that was read is used, and for which one that could not be read is not read again."""

_ENDED = {"AccessDeniedException", "DecryptionFailure", "InvalidRequestException", "ResourceNotFoundException"}
"""Codes by which Secrets Manager says that this function has the secret no longer: it or its key is denied, it is
marked for deletion, or deleted (API reference, "GetSecretValue", Errors). Any other may pass."""

_VARIABLES = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"}
"""AWS's variables with a login, of which CI has one or the other."""

_PATIENT = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
"""Seconds for a connection and for the next bytes of an answer, and attempts, where a user waits for them."""

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,99}")
"""A code by which AWS names a refusal. botocore has HTTP's status in its place if the answer has none."""


@dataclass
class _Secret:
    """A secret: when it was read, and its text, which is empty without a usable one; when a read failed, and why."""

    read: float = 0.0
    text: str = ""
    failed: float = 0.0
    why: str = ""


_SECRETS: dict[str, _Secret] = {}
"""By ARN."""


def log(what: str, **about: object) -> None:
    """Log what was done, as a line of JSON: what a function prints is its log."""
    print(json.dumps({"did": what, **about}))  # noqa: T201 - as above


_MAKING = threading.Lock()
"""Only one client is made at a time: boto3's session is for one thread ("Multithreading or multiprocessing with
sessions")."""


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service, whose timeouts are short: a call that hangs must not take the whole round."""
    retries = {"mode": "standard", "total_max_attempts": 2}
    config = Config(connect_timeout=3, read_timeout=5, retries=retries, max_pool_connections=_CONNECTIONS)
    with _MAKING:
        return boto3.client(service, config=config)


def user_client(service: str, region: str, profile: str | None) -> Any:
    """Return the client of a service for a user's program; ``profile`` is the stack's, else the machine's login counts.

    On a machine without that profile, as in CI, the login of AWS's variables counts: the SDK refuses an unknown one.
    """
    known = boto3.Session().available_profiles
    here = None if profile not in known and _VARIABLES & os.environ.keys() else profile
    return boto3.Session(region_name=region, profile_name=here).client(service, config=_PATIENT)


def reason(error: Exception) -> str:
    """Return what is logged of a failed call: no answer of another shape than AWS's, for it may be any secret."""
    if isinstance(error, ClientError):
        return _refusal(error)[:_LONGEST]
    if isinstance(error, ResponseParserError):
        return "AWS answers what cannot be read"
    if isinstance(error, SHAPE):  # the text of UnicodeDecodeError, for one, has the whole answer
        return f"the answer has another shape than documented: {type(error).__name__}"
    return str(error)[:_LONGEST]


def _refusal(error: ClientError) -> str:
    """Return what AWS says. Without a code, the message may be a proxy's whole answer, with our request in it."""
    answer: Any = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "no status")
    code, message = answer.get("Code"), answer.get("Message")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return f"{error.operation_name}: refused without a reason of AWS's: {status}"
    text = f": {message}" if isinstance(message, str) and message else ""
    return f"{error.operation_name}: AWS refuses it: {status}, {code}{text}"


def pages(service: Any, operation: str, **given: Any) -> Iterator[Any]:
    """Yield the pages of a list that a client of a service reads. Raises Failed if there is always one more."""
    end = float("inf")
    for page in service.get_paginator(operation).paginate(**given):
        if time.time() > end:
            raise Failed(f"{operation} does not end")
        end = min(end, time.time() + _LIST_SECONDS)
        yield page


def capacity_reservations(ec2: Any, **asked: Any) -> list[Any]:
    """Return EC2's descriptions of its reservations and Capacity Blocks, or of those asked for."""
    listed = pages(ec2, "describe_capacity_reservations", **asked)
    return [one for page in listed for one in page["CapacityReservations"]]


def secret(arn: str, *, fresh: float = _SECRET_SECONDS) -> str:
    """Return a secret's text, at most ``fresh`` seconds old, or older if AWS does not answer or cannot at the time.

    Raises:
        Failed: AWS has not answered with one yet, or last answered without: it is empty (whoever knows that could sign
            with it) or no text, or is deleted or denied to this function.
    """
    held = _SECRETS.setdefault(arn, _Secret())
    now = time.time()
    if now - held.read > fresh and now - held.failed > _FAILED_SECONDS:
        held = _SECRETS[arn] = _read(arn, held)
    if not held.text:
        raise Failed(held.why)
    return held.text


def _read(arn: str, held: _Secret) -> _Secret:
    """Read a secret. A failure leaves the former text; an answer that there is no usable one does not."""
    try:
        text = client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"].strip()
        usable = bool(text.encode())
    except FAILURES as error:
        why = reason(error)
        if held.text:
            log("refused", to="read a secret again", why=why)
        return replace(_Secret() if _ended(error) else held, failed=time.time(), why=why)
    except SHAPE:
        usable = False
    if not usable:
        return _Secret(failed=time.time(), why=f"the secret {arn} is empty or no text")
    return _Secret(time.time(), text)


def _ended(error: Exception) -> bool:
    """Return whether a failure says that the secret is no longer this function's."""
    answer: Any = error.response.get("Error", {}) if isinstance(error, ClientError) else {}
    code = answer.get("Code")
    return isinstance(code, str) and code in _ENDED
