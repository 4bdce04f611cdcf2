"""One request to a cloud for a token: tried again if that may help, bounded in size and time, one line of error."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from containers.errors import MALFORMED, SlipwayError, one_line

_TIMEOUT: Final = 30
"""Seconds for a response, and for its next bytes."""

_SLOWEST: Final = 60
"""Seconds for all of a response."""

_PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Statuses that may pass: the request is sent again."""

_TRIES: Final = 3
_PAUSE: Final = 0.5
"""How often it is sent again, and the seconds before the first time, which double."""

_LONGEST: Final = 1 << 20
"""Bytes of the longest response that is read. A token has a few thousand."""

_SECRETS: Final = {"client_assertion", "client_secret", "access_token", "refresh_token", "subject_token"}
"""Fields of a form that no error repeats, whatever the response says."""


def ask(
    identity: str,
    url: str,
    key: str,
    form: Mapping[str, Any] | None = None,
    *,
    bearer: str = "",
    headers: Mapping[str, str] | None = None,
) -> str:
    """Return the token that a JSON response has under ``key``.

    ``identity`` says in errors where the identity comes from, such as ``$AZURE_CLIENT_ID``. No redirect is followed.
    Without a ``form`` to post it is a GET, which no proxy sees: it asks this machine for its identity. With ``bearer``,
    a token that allows the request, JSON is posted.

    Raises SlipwayError: there is no response, or it has no token.
    """
    import requests  # noqa: PLC0415 - few stacks need it
    from requests.adapters import HTTPAdapter  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415
    from urllib3.util.retry import Retry  # noqa: PLC0415

    # For connections alone: before urllib3 asks again, it reads the whole response, and waits as long as that says.
    retry = Retry(_TRIES, backoff_factor=_PAUSE, allowed_methods=None, respect_retry_after_header=False)
    sent: dict[str, Any] = {"json" if bearer else "data": form}
    sent["headers"] = {**(headers or {}), **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
    with requests.Session() as session:
        session.mount("http", HTTPAdapter(max_retries=retry))
        session.auth = lambda request: request  # or requests would send the credentials of a .netrc, for the bearer's
        session.trust_env = form is not None
        try:
            for tried in range(_TRIES + 1):
                response = session.request(
                    "GET" if form is None else "POST", url, **sent, timeout=_TIMEOUT, stream=True, allow_redirects=False
                )
                if response.status_code not in _PASSING or tried == _TRIES:
                    break
                response.close()
                time.sleep(_PAUSE * 2**tried)
            content = json.loads(_body(response))
            if response.ok:
                return token(content[key])
            reason = _reason(content)
        except (requests.RequestException, HTTPError, *MALFORMED) as error:
            reason = f"{type(error).__name__}: {error}"
    for secret in (bearer, *(value for name, value in (form or {}).items() if name in _SECRETS)):
        reason = reason.replace(secret, "***") if secret else reason
    raise SlipwayError(
        f"slipway:registry: login with {identity} failed: {url}: {one_line(' '.join(reason.split()), 240)}"
    )


def _reason(content: Any) -> str:
    """Return why a request is refused: OAuth's ``error_description`` (RFC 6749, 5.2), Google's or a registry's text."""
    error = content.get("error")
    nested = error if isinstance(error, dict) else (content.get("errors") or [{}])[0]
    return str(content.get("error_description") or nested.get("message") or error or "no reason given")


def _body(response: Any) -> bytes:
    """Return a response's body. Raises ValueError if it is longer than any with a token, or takes longer."""
    content = bytearray()
    end = time.monotonic() + _SLOWEST
    for chunk in response.iter_content(1 << 16):
        content += chunk
        if len(content) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST >> 20} MiB")
        if time.monotonic() > end:
            raise ValueError(f"it takes more than {_SLOWEST} seconds")
    return bytes(content)


def token(value: object) -> str:
    """Return a token. Raises ValueError if it is no text on one line, which no header could have."""
    if not isinstance(value, str) or not re.fullmatch("[!-~]+", value):
        raise ValueError("what it gives is no token")
    return value
