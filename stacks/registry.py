"""What is asked of registries themselves: which digest a tag stands for now, and another tag for an image."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping

from stacks.errors import SlipwayError, one_line
from stacks.model import qualified

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


Login = tuple[str, str]
"""User name, and password or token."""


def digest(reference: str) -> str:
    """Return the digest, ``sha256:...``, of what a reference's tag stands for; for several platforms, their index's.

    Only public images: where the registry asks for a token, an anonymous one is fetched, as from Docker Hub, GHCR and
    NGC. A registry on this machine's loopback is asked in plain HTTP, as Docker does.

    Raises:
        SlipwayError: there is no such tag, or the registry cannot be asked.
    """
    name, _, tag = qualified(reference).rpartition(":")
    found, _ = _asked(reference, "HEAD", _manifest(name, tag), {"Accept": _MANIFESTS}, _LOCKING)
    value = found.get("Docker-Content-Digest", "")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        host = name.partition("/")[0]
        raise SlipwayError(f"{reference}: {host} does not say its digest, but '{one_line(value)}'")
    return value


def tag(ref: str, name: str, login: Login | None) -> None:
    """Give an image, ``repository@sha256:...``, the tag ``name``; one that is there moves, if the registry lets it.

    Raises:
        SlipwayError: the image is not there, the login is refused, or the registry cannot be asked.
    """
    repository, _, digest = ref.partition("@")
    found, manifest = _asked(ref, "GET", _manifest(repository, digest), {"Accept": _MANIFESTS}, _TAGGING, login)
    headers = {"Content-Type": found["Content-Type"]}
    _asked(f"{repository}:{name}", "PUT", _manifest(repository, name), headers, _TAGGING, login, manifest)


_REASONS = {
    404: "there is no such image or tag",
    429: "the registry allows no more requests for now; try again later",
}
_LOCKING = _REASONS | dict.fromkeys((401, 403), "the registry wants a login; only public images can be locked")
_TAGGING = _REASONS | dict.fromkeys(
    (401, 403), "the registry refuses the login, or it may not push there; check slipway:registry's credentials"
)


def _manifest(repository: str, name: str) -> str:
    host, _, path = repository.partition("/")
    scheme = "http" if re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", host) else "https"
    return f"{scheme}://{_HOSTS.get(host, host)}/v2/{path}/manifests/{name}"


def _asked(
    what: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    reasons: Mapping[int, str],
    login: Login | None = None,
    body: bytes | None = None,
) -> tuple[Mapping[str, str], bytes]:
    """Ask a registry, again with what it wants to see where it wants to know who asks; ``what`` names it in errors."""
    try:
        try:
            return _ask(method, url, headers, body)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            who = _authorization(error.headers.get("WWW-Authenticate") or "", login)
            return _ask(method, url, {**headers, **who}, body)
    except urllib.error.HTTPError as error:
        raise SlipwayError(f"{what}: {reasons.get(error.code, 'the registry answers')} ({error.code})") from None
    except (OSError, ValueError) as error:
        host = urllib.parse.urlsplit(url).netloc
        reason = getattr(error, "reason", error)
        raise SlipwayError(f"{what}: {host} cannot be asked: {one_line(str(reason))}") from None


def _authorization(challenge: str, login: Login | None) -> dict[str, str]:
    """Answer a registry's 401: with the login, or with the token that it asks for (distribution specification)."""
    basic = {"Authorization": f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"} if login else {}
    if not challenge.lower().startswith("bearer "):
        return basic
    asked = dict(_CHALLENGE.findall(challenge))
    realm = asked.pop("realm", None)
    if realm is None:
        return {}
    answer = json.loads(_ask("GET", f"{realm}?{urllib.parse.urlencode(asked)}", basic)[1])
    return {"Authorization": f"Bearer {answer.get('token') or answer['access_token']}"}


def _ask(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
) -> tuple[Mapping[str, str], bytes]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"it sends us to '{url}'")
    request = urllib.request.Request(url, body, {"User-Agent": "slipway", **headers}, method=method)  # noqa: S310 - see above
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - see above
        return answer.headers, answer.read()
