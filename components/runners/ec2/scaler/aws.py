"""AWS's APIs, each client made once: Lambda keeps a function's process for the next call."""

from __future__ import annotations

import functools
from typing import Any

import boto3


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service."""
    return boto3.client(service)
