"""The address at GitHub that runners serve: an organization, a repository or an enterprise."""

from __future__ import annotations

import re

_URL = re.compile(
    r"https://(?P<host>(?!(?i:www\.))[A-Za-z0-9.-]+)/(?:enterprises/(?P<enterprise>[A-Za-z0-9_.-]+)"
    r"|(?!enterprises(?:/|$))(?P<owner>[A-Za-z0-9_.-]+)(?:/(?P<name>[A-Za-z0-9_.-]+(?<!\.git)))?)"
)
"""One spelling of each, by which two stacks with the same runners are found: no ``www.``, no ``.git`` of a clone."""
_ELSEWHERE = re.compile(r"https?://(?:[^/]+\.)?(?:bitbucket|codeberg|gitea|gitlab|dev\.azure)\.", re.IGNORECASE)


def check(value: str) -> str:
    """Return an address without a slash at its end; raises ValueError where it is none."""
    value = value.rstrip("/")
    if _ELSEWHERE.match(value):
        raise ValueError("is no address of GitHub, whose runners these are: expected https://github.com/<organization>")
    if not _URL.fullmatch(value):
        raise ValueError("expected https://github.com/<organization>, or .../<repository>")
    return value


def part(url: str, name: str) -> str:
    """Return the ``host``, ``owner``, ``name`` or ``enterprise`` of an address; empty where it has none."""
    match = _URL.fullmatch(url)
    return (match and match[name]) or ""


def api(url: str) -> str:
    """Return the address of the REST API: of github.com, of a tenant of ghe.com, or of GitHub Enterprise Server.

    "https://api.SUBDOMAIN.ghe.com" ("Network details for GHE.com"), "http(s)://HOSTNAME/api/v3" ("Getting started with
    the REST API", Enterprise Server).
    """
    host = part(url, "host").lower()
    return f"https://api.{host}" if in_cloud(url) else f"https://{host}/api/v3"


def in_cloud(url: str) -> bool:
    """Return whether an address is GitHub's own, or a tenant's of ghe.com, and not that of an Enterprise Server."""
    host = part(url, "host").lower()
    return host == "github.com" or host.endswith(".ghe.com")
