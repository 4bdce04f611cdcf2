"""Whether this machine shows signs of AWS credentials."""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}


def signed() -> bool:
    """Return whether the environment or AWS's files name credentials (AWS SDKs reference, credential chain).

    No request is sent: an EC2 instance with credentials only in its metadata counts as having none.
    """
    return any(os.environ.get(name) for name in _VARIABLES) or any(
        Path(os.environ.get(name) or default).expanduser().is_file() for name, default in _FILES.items()
    )
