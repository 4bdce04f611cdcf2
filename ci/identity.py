"""The job's identity by OpenID Connect: tokens that clouds exchange for short-lived credentials.

No long-lived credential is stored. GitHub's tokens are valid for minutes and a build takes hours, so a thread renews
the token in a file. The clouds' SDKs, in Pulumi's backends and providers too, read it again when their credentials
expire.
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
from typing import Any

from ci.actions import send, variable
from containers.errors import SlipwayError, one_line
from containers.registry.logins import google_login
from toolchain.machine.files import write

_GOOGLE = "GOOGLE_WORKLOAD_IDENTITY_PROVIDER"
CLOUDS: Mapping[str, tuple[str, str]] = {
    "AWS_ROLE_ARN": ("AWS_WEB_IDENTITY_TOKEN_FILE", "sts.amazonaws.com"),
    "AZURE_CLIENT_ID": ("AZURE_FEDERATED_TOKEN_FILE", "api://AzureADTokenExchange"),
    # A provider admits its own name (google-github-actions/auth v3.0.0, src/main.ts:81).
    _GOOGLE: ("GOOGLE_APPLICATION_CREDENTIALS", "https://iam.googleapis.com/{}"),
}
"""By the variable with the role: the variable with the file, and the token's audience, which may have the role in it.
The file has the token; Google's names another that has it."""

RENEW_SECONDS = 180.0
"""GitHub's tokens are valid for five minutes (docs, "OpenID Connect reference": exp - iat)."""
RETRY_SECONDS = 15.0
"""Seconds until the next attempt after a failed renewal: several before the last token expires."""


def token(audience: str) -> str:
    """Return GitHub's identity token of this job for one audience.

    Raises SlipwayError: the job lacks the permission ``id-token: write``, or GitHub does not respond.
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

    Raises SlipwayError: see :func:`token`.
    """
    roles = {role: os.environ[role] for role in CLOUDS if os.environ.get(role)}
    files = {folder / role: CLOUDS[role][1].format(value) for role, value in roles.items()}
    variables = {CLOUDS[role][0]: str(folder / role) for role in roles}
    if _GOOGLE in roles:
        name = CLOUDS[_GOOGLE][0]
        write(folder / name, json.dumps(_of_google(roles[_GOOGLE], variables[name]), indent=1), mode=0o600)
        variables[name] = str(folder / name)

    def renew() -> None:
        for file, audience in files.items():
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
        yield variables
    finally:
        done.set()
        if files:
            renewal.join()
        for file in {*files, *map(Path, variables.values())}:
            file.unlink(missing_ok=True)


def _of_google(provider: str, file: str) -> dict[str, Any]:
    """Return Google's credentials that name a file with the token, as Google's libraries read them.

    The form is that of google-github-actions/auth v3.0.0, src/client/workload_identity_federation.ts:175.
    """
    return {
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{provider}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": google_login.STS,
        "service_account_impersonation_url": google_login.IMPERSONATE.format(variable("GOOGLE_SERVICE_ACCOUNT")),
        "credential_source": {"file": file},
    }
