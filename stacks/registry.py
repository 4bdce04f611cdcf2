"""A registry's answer to one question: which digest a tag stands for now."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping

from stacks.config import qualified
from stacks.errors import SlipwayError, one_line

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Registries whose API answers at another host than their images' names have."""

_TIMEOUT = 30
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def digest(reference: str) -> str:
    """Return the digest, ``sha256:...``, of what a reference's tag stands for; for several platforms, their index's.

    Only public images: where the registry asks for a token, an anonymous one is fetched, as from Docker Hub, GHCR and
    NGC. A registry on this machine's loopback is asked in plain HTTP, as Docker does.

    Raises:
        SlipwayError: there is no such tag, or the registry cannot be asked.
    """
    name, _, tag = qualified(reference).rpartition(":")
    host, _, path = name.partition("/")
    scheme = "http" if re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", host) else "https"
    url = f"{scheme}://{_HOSTS.get(host, host)}/v2/{path}/manifests/{tag}"
    headers = {"Accept": _MANIFESTS}
    try:
        try:
            found = _ask("HEAD", url, headers)[0]
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            found = _ask("HEAD", url, headers | _token(error.headers.get("WWW-Authenticate") or ""))[0]
    except urllib.error.HTTPError as error:
        raise SlipwayError(f"{reference}: {_REASONS.get(error.code, 'the registry answers')} ({error.code})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SlipwayError(f"{reference}: {host} cannot be asked: {one_line(str(reason))}") from None
    value = found.get("Docker-Content-Digest", "")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        raise SlipwayError(f"{reference}: {host} does not say its digest, but '{one_line(value)}'")
    return value


_REASONS = {
    401: "the registry wants a login; only public images can be locked",
    403: "the registry wants a login; only public images can be locked",
    404: "there is no such image or tag",
    429: "the registry allows no more requests for now; try again later",
}


def _token(challenge: str) -> dict[str, str]:
    """Fetch the anonymous token that a registry's answer 401 asks for (distribution specification, token auth)."""
    asked = dict(_CHALLENGE.findall(challenge)) if challenge.lower().startswith("bearer ") else {}
    realm = asked.pop("realm", None)
    if realm is None:
        return {}
    body = json.loads(_ask("GET", f"{realm}?{urllib.parse.urlencode(asked)}", {})[1])
    return {"Authorization": f"Bearer {body.get('token') or body['access_token']}"}


def _ask(method: str, url: str, headers: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"it sends us to '{url}'")
    request = urllib.request.Request(url, headers={"User-Agent": "slipway", **headers}, method=method)  # noqa: S310 - see above
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - see above
        return answer.headers, answer.read()
