"""The job's identity by OpenID Connect: tokens that clouds exchange for short-lived credentials.

No long-lived credential is stored. GitHub's tokens are valid for minutes and a build takes hours, so a thread renews
the token in a file. The AWS and Azure SDKs, in Pulumi's backends and providers too, read it again when their
credentials expire.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ci.actions import send, variable
from containers.errors import SlipwayError, one_line
from toolchain.machine.files import write

CLOUDS: Mapping[str, tuple[str, str]] = {
    "AWS_ROLE_ARN": ("AWS_WEB_IDENTITY_TOKEN_FILE", "sts.amazonaws.com"),
    "AZURE_CLIENT_ID": ("AZURE_FEDERATED_TOKEN_FILE", "api://AzureADTokenExchange"),
}
"""By the variable with the role: the variable with the token's file, and the token's audience."""

RENEW_SECONDS = 180.0
"""GitHub's tokens are valid for five minutes (docs, "OpenID Connect reference": exp - iat)."""
RETRY_SECONDS = 15.0
"""Seconds until the next attempt after a failed renewal: several before the last token expires."""


def token(audience: str) -> str:
    """Return GitHub's identity token of this job for one audience.

    Raises:
        SlipwayError: the job lacks the permission ``id-token: write``, or GitHub does not respond.
    """
    url = f"{variable('ACTIONS_ID_TOKEN_REQUEST_URL')}&audience={urllib.parse.quote(audience, safe='')}"
    headers = {"Authorization": f"Bearer {variable('ACTIONS_ID_TOKEN_REQUEST_TOKEN')}"}
    response = send(urllib.request.Request(url, headers=headers), "the job's identity")  # noqa: S310 - GitHub's
    try:
        value: str = json.loads(response)["value"]
    except (ValueError, KeyError, TypeError):
        raise SlipwayError("the job's identity: GitHub's response has no token; try again") from None
    return value


@contextmanager
def tokens(folder: Path) -> Iterator[dict[str, str]]:
    """Keep the tokens of the job's clouds in files, and yield the variables with the files' paths.

    Raises:
        SlipwayError: see :func:`token`.
    """
    files = {folder / name: (name, audience) for role, (name, audience) in CLOUDS.items() if os.environ.get(role)}

    def renew() -> None:
        for file, (_, audience) in files.items():
            write(file, token(audience), mode=0o600)

    def renew_until_done() -> None:
        seconds = RENEW_SECONDS
        while not done.wait(seconds):
            seconds = RENEW_SECONDS
            try:
                renew()
            except Exception as error:  # the build needs the next token, whatever failed
                print(f"token not renewed, trying again: {one_line(str(error), 240)}", file=sys.stderr)
                seconds = RETRY_SECONDS

    done = threading.Event()
    renew()
    renewal = threading.Thread(target=renew_until_done, daemon=True)
    if files:
        renewal.start()
    try:
        yield {name: str(file) for file, (name, _) in files.items()}
    finally:
        done.set()
        if files:
            renewal.join()
        for file in files:
            file.unlink(missing_ok=True)
