"""The job's identity by OpenID Connect: tokens that clouds exchange for credentials of their own, kept fresh.

Nothing that lasts is stored anywhere. GitHub's tokens live for minutes and a build for hours, so that a token stands in
a file that is written anew all the while: the AWS and Azure SDKs, in Pulumi's backends and providers alike, read it
again whenever their own credentials end.
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

from ci.actions import ask, variable
from stacks.errors import SlipwayError, one_line
from toolchain.machine.files import write

CLOUDS: Mapping[str, tuple[str, str]] = {
    "AWS_ROLE_ARN": ("AWS_WEB_IDENTITY_TOKEN_FILE", "sts.amazonaws.com"),
    "AZURE_CLIENT_ID": ("AZURE_FEDERATED_TOKEN_FILE", "api://AzureADTokenExchange"),
}
"""By the variable that names whom to be: where the cloud's SDK looks for the token's file, and the token's audience."""

RENEW_SECONDS = 180.0
"""GitHub's tokens are valid for five minutes (docs, "OpenID Connect reference": exp - iat)."""
AGAIN_SECONDS = 15.0
"""How soon one is asked for again that could not be had: several times before the last one ends."""


def token(audience: str) -> str:
    """Return a token of GitHub's that says which job this is, to one audience.

    Raises:
        SlipwayError: the job has no permission ``id-token: write``, or GitHub does not answer.
    """
    url = f"{variable('ACTIONS_ID_TOKEN_REQUEST_URL')}&audience={urllib.parse.quote(audience, safe='')}"
    headers = {"Authorization": f"Bearer {variable('ACTIONS_ID_TOKEN_REQUEST_TOKEN')}"}
    said = ask(urllib.request.Request(url, headers=headers), "the job's identity")  # noqa: S310 - GitHub's
    try:
        value: str = json.loads(said)["value"]
    except (ValueError, KeyError, TypeError):
        raise SlipwayError("the job's identity: GitHub answers with something that is no token; try again") from None
    return value


@contextmanager
def tokens(folder: Path) -> Iterator[dict[str, str]]:
    """Keep the tokens of the clouds that the job's variables name in files, and yield the variables that name those.

    Raises:
        SlipwayError: see :func:`token`.
    """
    asked = {folder / named: (named, audience) for who, (named, audience) in CLOUDS.items() if os.environ.get(who)}

    def renew() -> None:
        for file, (_, audience) in asked.items():
            write(file, token(audience), mode=0o600)

    def keep() -> None:
        seconds = RENEW_SECONDS
        while not done.wait(seconds):
            seconds = RENEW_SECONDS
            try:
                renew()
            except Exception as error:  # whatever an answer was, the build needs the next one
                print(f"not renewed, and asked for again: {one_line(str(error), 240)}", file=sys.stderr)
                seconds = AGAIN_SECONDS

    done = threading.Event()
    renew()
    keeper = threading.Thread(target=keep, daemon=True)
    if asked:
        keeper.start()
    try:
        yield {named: str(file) for file, (named, _) in asked.items()}
    finally:
        done.set()
        if asked:
            keeper.join()
        for file in asked:
            file.unlink(missing_ok=True)
