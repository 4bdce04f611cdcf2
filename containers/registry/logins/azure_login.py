"""Logins to Azure container registries with a workload identity: a token in a file, and no stored password.

The three variables are those of the Azure SDKs' ``WorkloadIdentityCredential``. In GitHub Actions ``ci/identity.py``
renews the file.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line

VARIABLES: Final = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
"""Environment variables with the client id, the tenant id, and the path of the token."""

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

_TIMEOUT: Final = 30
"""Seconds for a response of Azure, and for its next bytes."""

_SLOWEST: Final = 60
"""Seconds for all of a response."""

_PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Statuses that may pass: the request is sent again."""

_TRIES: Final = 3
_PAUSE: Final = 0.5
"""How often it is sent again, and the seconds before the first time, which double."""

_LONGEST: Final = 1 << 20
"""Bytes of the longest response that is read. A token has a few thousand."""


def login(host: str) -> tuple[str, str]:
    """Return a user name and a password for a registry, valid for three hours.

    A token of Entra is exchanged for one of the registry (github.com/Azure/acr, docs/AAD-OAuth.md).

    Raises:
        SlipwayError: the token file cannot be read, or Azure does not respond or rejects the identity.
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
    access = _post(f"{authority}/{tenant}/oauth2/v2.0/token", token_request, "access_token")
    exchange = {"grant_type": "access_token", "service": host, "tenant": tenant, "access_token": access}
    return USER, _post(_EXCHANGE.format(host=host), exchange, "refresh_token")


def _post(url: str, form: Mapping[str, str], key: str) -> str:
    """Post a form, and return one value of the JSON response."""
    import requests  # noqa: PLC0415 - few stacks need it
    from requests.adapters import HTTPAdapter  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415
    from urllib3.util.retry import Retry  # noqa: PLC0415

    # For connections alone: before urllib3 asks again, it reads the whole response, and waits as long as that says.
    retry = Retry(_TRIES, backoff_factor=_PAUSE, allowed_methods=("POST",), respect_retry_after_header=False)
    with requests.Session() as session:
        session.mount("http", HTTPAdapter(max_retries=retry))
        try:
            for tried in range(_TRIES + 1):
                response = session.post(url, data=form, timeout=_TIMEOUT, stream=True, allow_redirects=False)
                if response.status_code not in _PASSING or tried == _TRIES:
                    break
                response.close()
                time.sleep(_PAUSE * 2**tried)
            content = json.loads(_body(response))
            if response.ok:
                return _token(content[key])
            errors = content.get("errors") or [{}]
            reason = str(content.get("error_description") or errors[0].get("message") or "no reason given")
        except (requests.RequestException, HTTPError, *MALFORMED) as error:
            reason = f"{type(error).__name__}: {error}"
    raise SlipwayError(
        f"slipway:registry: login with ${VARIABLES[0]} failed: {url}: {one_line(' '.join(reason.split()), 240)}"
    )


def _body(response: Any) -> bytes:
    """Return a response's body. Raises ValueError if it is longer than any of Azure's, or takes longer."""
    content = bytearray()
    end = time.monotonic() + _SLOWEST
    for chunk in response.iter_content(1 << 16):
        content += chunk
        if len(content) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST >> 20} MiB")
        if time.monotonic() > end:
            raise ValueError(f"it takes more than {_SLOWEST} seconds")
    return bytes(content)


def _token(value: object) -> str:
    """Return a token. Raises ValueError if it is no text on one line, which no header could have."""
    if not isinstance(value, str) or not re.fullmatch("[!-~]+", value):
        raise ValueError("what it gives is no token")
    return value
