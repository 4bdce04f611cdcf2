"""Logins to Azure container registries with a workload identity: a token in a file, and no stored password.

The three variables are those of the Azure SDKs' ``WorkloadIdentityCredential``. In GitHub Actions ``ci/identity.py``
renews the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from containers.errors import SlipwayError
from containers.registry.logins.token_request import ask

VARIABLES: Final = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
"""Environment variables with the client id, the tenant id, and the path of the token."""

WAYS: Final = ", ".join(f"${name}" for name in VARIABLES)
"""How to have the identity, for errors."""

HOSTS: Final = re.compile(r"[a-z0-9]{5,50}(-[a-z0-9]+)?(\.[a-z0-9-]+)*\.azurecr\.(io|cn|us)")
"""The registries: names, with a domain label's hash, and regional endpoints; the suffixes are Azure's clouds."""

USER: Final = "00000000-0000-0000-0000-000000000000"
"""User name for a login whose password is a token (ACR, "authenticate with Microsoft Entra ID")."""

_CLOUDS: Final[Mapping[str, tuple[str, str]]] = {
    "io": ("https://login.microsoftonline.com", "https://containerregistry.azure.net"),
    "us": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
    "cn": ("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
}
"""By top-level domain of a registry: its cloud's Entra endpoint, and the audience of a token for its registries."""

_EXCHANGE: Final = "https://{host}/oauth2/exchange"
"""Endpoint of a registry that exchanges a token of Entra for one of the registry."""


def available() -> bool:
    """Return whether the environment names the identity."""
    return all(os.environ.get(name) for name in VARIABLES)


def login(host: str) -> tuple[str, str]:
    """Return a user name and a password for a registry, valid for three hours.

    A token of Entra is exchanged for one of the registry (github.com/Azure/acr, docs/AAD-OAuth.md).

    Raises SlipwayError: the token file cannot be read, or Azure does not respond or rejects the identity.
    """
    client, tenant, file = (os.environ[name] for name in VARIABLES)
    authority, audience = _CLOUDS[host.rpartition(".")[2]]
    try:
        assertion = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SlipwayError(f"slipway:registry: ${VARIABLES[2]}: {file}: {error.strerror}") from None
    token_request = {
        "grant_type": "client_credentials",
        "client_id": client,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": assertion,
        "scope": f"{audience}/.default",
    }
    identity = f"${VARIABLES[0]}"
    access = ask(identity, f"{authority}/{tenant}/oauth2/v2.0/token", "access_token", token_request)
    exchange = {"grant_type": "access_token", "service": host, "tenant": tenant, "access_token": access}
    return USER, ask(identity, _EXCHANGE.format(host=host), "refresh_token", exchange)
