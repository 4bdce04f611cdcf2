"""Calls of AWS's API: each is noted, and one of which moto knows nothing is answered here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.stub import Stubber

_IAM = {"monitoring": "cloudwatch"}
"""Services that IAM knows by another name than that in their requests."""


def note_calls(events: Any) -> None:
    """Have a session, or a client, note each of its calls in the file that ``AWS_CALLS`` names, as ``service:Action``.

    ``events`` are its events, of botocore's.
    """
    events.register("before-call.*.*", _note)


def _note(model: Any, **_: Any) -> None:
    if path := os.environ.get("AWS_CALLS"):
        with Path(path).open("a", encoding="utf-8") as calls:
            service = model.service_model.signing_name
            calls.write(f"{_IAM.get(service, service)}:{model.name}\n")


def unanswered(client: Any, method: str, answer: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
    """Make a request that nobody gets: botocore checks its arguments, and the answer is ``answer``, or empty.

    A client of its own makes it: others make calls with ``client`` meanwhile, which would get the answer.
    """
    service, region = client.meta.service_model.service_name, client.meta.region_name
    own = boto3.client(service, region, aws_access_key_id="none", aws_secret_access_key="none")
    note_calls(own.meta.events)
    with Stubber(own) as stubbed:
        stubbed.add_response(method, answer or {})
        return getattr(own, method)(**arguments)
