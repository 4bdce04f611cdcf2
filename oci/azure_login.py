"""Who a program is to Azure where nothing is stored: a token in a file, for which Azure's container registry logs in.

The three variables are those of Azure's SDKs for a workload's identity (``WorkloadIdentityCredential``); in GitHub
Actions ``ci/identity.py`` keeps the file fresh.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stacks.config.registries.acr import AcrRegistry
from stacks.errors import SlipwayError, one_line

VARIABLES: Final = AcrRegistry.IDENTITY
"""Environment variables that say who the program is, where, and the file whose token proves it."""

USER: Final = "00000000-0000-0000-0000-000000000000"
"""The user name that goes with a token in place of a password (ACR, "authenticate with Microsoft Entra ID")."""

_CLOUDS: Final[Mapping[str, tuple[str, str]]] = {
    "io": ("https://login.microsoftonline.com", "https://containerregistry.azure.net"),
    "us": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
    "cn": ("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
}
"""By how a registry's host ends: where its cloud's Entra is, and what a token for its registries is asked for."""

_EXCHANGE: Final = "https://{host}/oauth2/exchange"
"""Where a registry takes Entra's token, and gives its own for it."""

_SECONDS: Final = 30
"""How long Azure may take to answer."""


def login(host: str) -> tuple[str, str]:
    """Return a user name and a password for a registry, which last three hours.

    Entra's token is exchanged for the registry's own, as the registry's manual describes (github.com/Azure/acr,
    docs/AAD-OAuth.md).

    Raises:
        SlipwayError: Azure does not answer, or does not know the program or what it may do.
    """
    client, tenant, file = (os.environ[name] for name in VARIABLES)
    authority, audience = _CLOUDS[host.rpartition(".")[2]]
    try:
        proof = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SlipwayError(f"slipway:registry: ${VARIABLES[2]}: {file}: {error.strerror}") from None
    asking = {
        "grant_type": "client_credentials",
        "client_id": client,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": proof,
        "scope": f"{audience}/.default",
    }
    access = _said(f"{authority}/{tenant}/oauth2/v2.0/token", asking, "access_token")
    exchanging = {"grant_type": "access_token", "service": host, "tenant": tenant, "access_token": access}
    return USER, _said(_EXCHANGE.format(host=host), exchanging, "refresh_token")


def _said(url: str, form: Mapping[str, str], key: str) -> str:
    """Post a form, and return one thing of the answer."""
    import requests  # noqa: PLC0415 - few stacks ask
    from requests.adapters import HTTPAdapter  # noqa: PLC0415
    from urllib3.util.retry import Retry  # noqa: PLC0415

    retry = Retry(
        total=3,
        backoff_factor=0.5,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=("POST",),
        raise_on_status=False,
    )
    with requests.Session() as session:
        session.mount("http", HTTPAdapter(max_retries=retry))
        try:
            answer = session.post(url, data=form, timeout=_SECONDS)
            told: dict[str, Any] = answer.json()
            if answer.ok:
                value: str = told[key]
                return value
            errors = told.get("errors") or [{}]
            reason = told.get("error_description") or errors[0].get("message") or "it says no reason"
        except (requests.RequestException, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
    raise SlipwayError(
        f"slipway:registry: no login by ${VARIABLES[0]}: {url}: {one_line(' '.join(reason.split()), 240)}"
    )
