"""What a client does beside its call: calls are noted, and those of which moto knows nothing are answered here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.stub import Stubber

_IAM = {"monitoring": "cloudwatch"}
"""Services that IAM knows by another name than that in their requests."""

NOTED = "before-call.*.*"
"""The event of botocore's at which a call is noted."""


def note(model: Any, **_: Any) -> None:
    """Note each call of AWS's API in the file that ``AWS_CALLS`` names, as ``service:Action``."""
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
    own.meta.events.register(NOTED, note)
    with Stubber(own) as stubbed:
        stubbed.add_response(method, answer or {})
        return getattr(own, method)(**arguments)
