"""Requests to the real registry, with the login that this machine stores for it; to one without a login, without."""

from __future__ import annotations

from urllib.parse import urlsplit

import requests
from requests.auth import HTTPBasicAuth

from containers.registry import credentials


def _log_in(request: requests.PreparedRequest) -> requests.PreparedRequest:
    login = credentials.of_machine(urlsplit(request.url or "").netloc)
    return HTTPBasicAuth(login.username, login.password)(request) if login else request


def send(
    method: str,
    url: str,
    data: bytes | None = None,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
) -> requests.Response:
    """Send a request to a URL, or to ``host/path`` of the registry's API; return the response, whatever its status."""
    host, _, path = url.partition("/")
    full = url if "://" in url else f"http://{host}/v2/{path}"
    return requests.request(method, full, data=data, headers=headers, params=params, timeout=10, auth=_log_in)


def fetch(url: str, accept: str = "*/*") -> bytes:
    """Return the content at a URL or ``host/path``, which must be there."""
    response = send("GET", url, headers={"Accept": accept})
    response.raise_for_status()
    return response.content
