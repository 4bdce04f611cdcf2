"""Logins to Google Artifact Registry with application default credentials: a token for an hour, and no stored password.

Read in the order of google-auth v2.48.0 (google/auth/_default.py): the file that a variable names (in GitHub Actions,
``ci/identity.py`` writes it); that of `gcloud auth application-default login`; the identity of a machine of Google.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line
from containers.registry.logins.token_request import ask

VARIABLES: Final = ("GOOGLE_APPLICATION_CREDENTIALS",)
"""The environment variable with the path of the credentials."""

WAYS: Final = f"${VARIABLES[0]}, or run `gcloud auth application-default login`"
"""How to have the identity, for errors."""

HOSTS: Final = re.compile(r"(?P<multi>[a-z0-9-]+)-docker\.pkg\.dev|docker\.(?P<region>[a-z0-9-]+)\.rep\.pkg\.dev")
"""The registries of a location, at both kinds of endpoint (docker-credential-gcr v2.1.32, config/const.go:71)."""

USER: Final = "oauth2accesstoken"
"""User name for a login whose password is a token (Artifact Registry, "Set up authentication for Docker")."""

STS: Final = "https://sts.googleapis.com/v1/token"
IMPERSONATE: Final = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{}:generateAccessToken"
"""Where a job's token is exchanged, and that for one of a service account (google-github-actions/auth v3.0.0,
src/client/workload_identity_federation.ts). A file may name no other address: the job's token would go there."""

_OAUTH: Final = "https://oauth2.googleapis.com/token"
"""Where a person's refresh token is exchanged (google-auth v2.48.0, google/oauth2/_client.py:501)."""

_METADATA: Final = "http://{}/computeMetadata/v1/instance/service-accounts/default/token"
_METADATA_HOST: Final = "metadata.google.internal"
_PRODUCT: Final = Path("/sys/class/dmi/id/product_name")
"""What a machine of Google answers, and how it is known without a request (google-auth v2.48.0,
google/auth/compute_engine/_metadata.py)."""

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_ACCOUNT: Final = "[A-Za-z0-9@._-]+"


def available() -> bool:
    """Return whether this machine has such credentials. No request is sent."""
    return bool(_file() or _on_google())


def login(host: str) -> tuple[str, str]:  # noqa: ARG001 - a token is for all registries that the identity may use
    """Return a user name and a password for a registry, valid for an hour, or on a machine of Google less.

    Raises SlipwayError: the credentials cannot be read, or Google does not respond or rejects the identity.
    """
    file = _file()
    if not file:
        url = _METADATA.format(os.environ.get("GCE_METADATA_HOST") or _METADATA_HOST)
        return USER, ask("this machine's identity", url, "access_token", headers={"Metadata-Flavor": "Google"})
    try:
        credentials = json.loads(_read(file))
        match credentials["type"]:
            case "external_account":
                return USER, _of_job(file, credentials)
            case "authorized_user":
                form = {name: str(credentials[name]) for name in ("client_id", "client_secret", "refresh_token")}
                return USER, ask(file, _OAUTH, "access_token", {"grant_type": "refresh_token", **form})
            case other:
                raise SlipwayError(
                    f"slipway:registry: {file}: credentials of the type '{one_line(str(other), 40)}': expected "
                    "authorized_user, as of `gcloud auth application-default login`, or external_account; for the key "
                    "of a service account set slipway:registry.username to _json_key_base64, and its password"
                )
    except MALFORMED as error:
        reason = one_line(f"{type(error).__name__}: {error}", 80)
        raise SlipwayError(f"slipway:registry: {file}: expected credentials of Google as JSON: {reason}") from None


def _of_job(file: str, credentials: Mapping[str, Any]) -> str:
    """Exchange a token in a file for one of Google, and that for one of the service account, if there is one."""
    source, account = credentials["credential_source"], credentials.get("service_account_impersonation_url")
    if credentials["token_url"] != STS or not (
        account is None or re.fullmatch(re.escape(IMPERSONATE).replace(r"\{\}", _ACCOUNT), account)
    ):
        raise SlipwayError(f"slipway:registry: {file}: it names other addresses than Google's: expected {STS}")
    if "file" not in source:
        raise SlipwayError(f"slipway:registry: {file}: credential_source: expected a file with the token, and has none")
    text = _read(source["file"])
    form = source.get("format") or {}
    subject = json.loads(text)[form["subject_token_field_name"]] if form.get("type") == "json" else text.strip()
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": str(credentials["audience"]),
        "scope": _SCOPE,
        "subject_token_type": str(credentials["subject_token_type"]),
        "subject_token": str(subject),
    }
    federated = ask(file, STS, "access_token", exchange)
    return ask(file, account, "accessToken", {"scope": [_SCOPE]}, bearer=federated) if account else federated


def _file() -> str:
    """Return the path of the credentials; empty if there are none in a file."""
    if given := os.environ.get(VARIABLES[0]):
        return given
    with suppress(OSError, RuntimeError):  # a folder of others; or a user without a home
        folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
        stored = folder / "application_default_credentials.json"
        if stored.is_file():
            return str(stored)
    return ""


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise SlipwayError(f"slipway:registry: {file}: {error.strerror}") from None


def _on_google() -> bool:
    if os.environ.get("GCE_METADATA_HOST"):
        return True
    try:
        return _PRODUCT.read_text(encoding="utf-8").startswith("Google")
    except (OSError, ValueError):
        return False
