"""The digest of an image in its registry, for `getRegistryImage`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from containers.errors import SlipwayError, one_line
from containers.registry.guarded_adapter import GuardedAdapter
from containers.registry.reference import on_loopback
from toolchain.provider import image_name

_MANIFESTS: Final = ", ".join(
    (
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
    )
)
_SECONDS: Final = 60
_LONGEST: Final = 4 << 20
"""Bytes of the longest manifest or token that is read (OCI distribution specification, "Pushing Manifests")."""
_HUB: Final = "registry-1.docker.io"
_ECR: Final = re.compile(r"^.*dkr\.ecr\..*\.amazonaws\.com$")
_TOKEN_REGISTRIES: Final = re.compile(r"^(ghcr\.io|gcr\.io|.*\.azurecr\.io)$")

Registries = Iterable[Mapping[str, Any]]
"""The provider's `registryAuth`."""


def digest(name: str, registries: Registries, *, verify: bool) -> str:
    """Return the digest a registry holds under an image's name.

    Args:
        name: the image, with a tag or a digest; `latest` without either.
        registries: addresses and credentials; others are reached over https without credentials.
        verify: whether to verify the registry's certificate.

    Raises:
        SlipwayError: if the registry cannot be reached or does not know the image.
    """
    image = image_name.parse(name)
    host = _HUB if image.host == "docker.io" else image.host
    base, username, password = _login(host, image.host, registries)
    version = image.digest or image.tag or "latest"
    url = f"{base}/v2/{image.path}/manifests/{version}"
    headers = {"Accept": _MANIFESTS, **_authorization(host, username, password)}
    try:
        with requests.Session() as session:
            session.verify = verify
            session.auth = _unchanged
            adapter = GuardedAdapter(base)
            for prefix in ("http://", "https://"):
                session.mount(prefix, adapter)
            response = session.head(url, headers=headers, timeout=_SECONDS, allow_redirects=True)
            if response.status_code == requests.codes.unauthorized:
                scope = f"repository:{image.path}:pull"
                token = _token(session, response.headers.get("Www-Authenticate", ""), scope, username, password)
                headers["Authorization"] = f"Bearer {token}"
                response = session.head(url, headers=headers, timeout=_SECONDS, allow_redirects=True)
            if response.ok and "Docker-Content-Digest" not in response.headers:
                response = session.get(url, headers=headers, timeout=_SECONDS, stream=True)
                response.headers.setdefault(
                    "Docker-Content-Digest", f"sha256:{hashlib.sha256(_body(response)).hexdigest()}"
                )
    except (requests.RequestException, HTTPError, OverflowError, ValueError) as error:
        raise SlipwayError(
            f"getRegistryImage {name}: the registry {base} cannot be reached: {_reason(error)}"
        ) from error
    if not response.ok:
        raise SlipwayError(
            f"getRegistryImage {name}: got bad response from registry {base}: {response.status_code} "
            f"{one_line(response.reason)}"
        )
    stated = str(response.headers["Docker-Content-Digest"])
    if image.digest and stated != image.digest:
        raise SlipwayError(f"getRegistryImage {name}: the registry {base} sends another manifest, {one_line(stated)}")
    return stated


def _login(host: str, domain: str, registries: Registries) -> tuple[str, str, str]:
    """Return a registry's base URL, user and password."""
    for entry in registries:
        address = str(entry["address"])
        named = image_name.hostname(address)
        if named not in {host, domain} and image_name.registry_of(named, "") != image_name.registry_of(host, ""):
            continue
        scheme = "http" if address.startswith("http://") else "https"
        at = host if named == domain else named
        return f"{scheme}://{at}", *_credentials(named, entry)
    return f"https://{host}", "", ""


def _credentials(host: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """Read one entry of `registryAuth`: nothing, user and password, or a Docker configuration."""
    if entry.get("authDisabled"):
        return "", ""
    username = entry.get("username") or os.environ.get("DOCKER_REGISTRY_USER", "")
    if username:
        return username, entry.get("password") or os.environ.get("DOCKER_REGISTRY_PASS", "")
    import docker.auth  # noqa: PLC0415 - only where a configuration has to be read

    content, path = entry.get("configFileContent"), entry.get("configFile")
    try:
        if content:
            read = json.loads(content)
            configured = docker.auth.AuthConfig({**read, "auths": docker.auth.parse_auth(read.get("auths") or {})})
        else:
            configured = docker.auth.load_config(str(Path(path).expanduser()) if path else None)
        entry = configured.resolve_authconfig(image_name.registry_of(host, "")) or {}
    except (ValueError, docker.errors.DockerException) as error:
        raise SlipwayError(f"registryAuth {host}: the Docker configuration cannot be read: {error}") from error
    username, password = (entry.get(key) or entry.get(key.title()) or "" for key in ("username", "password"))
    return username, password


def _authorization(host: str, username: str, password: str) -> dict[str, str]:
    """Return the header of a first request; some registries have special forms of tokens."""
    if not username:
        return {}
    if _ECR.match(host):
        text = password if password.startswith("AWS:") else f"AWS:{password}"
        already = not password.startswith(("AWS:", "ey"))
        return {"Authorization": f"Basic {password if already else _base64(text)}"}
    if _TOKEN_REGISTRIES.match(host):
        return {"Authorization": f"Bearer {_base64(password)}"}
    return {"Authorization": f"Basic {_base64(f'{username}:{password}')}"}


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Send a request with the headers it has, without those of a .netrc."""
    return request


def _token(session: requests.Session, challenge: str, scope: str, username: str, password: str) -> str:
    """Fetch the token that a registry requires.

    Raises:
        SlipwayError: if the registry requires something else, or gives none.
    """
    kind, _, rest = challenge.partition(" ")
    parameters = dict(re.findall(r'\b(\w+)="([^"]*)"', rest))
    if kind.lower() != "bearer" or "realm" not in parameters:
        raise SlipwayError("getRegistryImage: bad credentials: 401 Unauthorized; check the provider's registryAuth")
    query = {"service": parameters.get("service", ""), "scope": parameters.get("scope") or scope}
    realm = parameters["realm"]
    encrypted = realm.startswith("https://")  # `requests` takes `HTTP://` too, and a space before it
    if username and not encrypted and not (realm.startswith("http://") and on_loopback(urlsplit(realm).netloc)):
        raise SlipwayError(f"getRegistryImage: {one_line(realm)} would get the login without encryption")
    for auth in ((username, password), _unchanged) if username else (_unchanged,):
        response = session.get(realm, params=query, auth=auth, timeout=_SECONDS, stream=True)
        if response.ok and (token := _granted(_body(response))):
            return token
    raise SlipwayError(
        f"getRegistryImage: {one_line(realm)} gives no token: {response.status_code} {one_line(response.reason)}"
    )


def _granted(body: bytes) -> str:
    """Return the token in a response, or an empty text: it may have any shape."""
    try:
        content = json.loads(body)
        token = content.get("token") or content.get("access_token")
    except (AttributeError, RecursionError, ValueError):
        return ""
    return token if isinstance(token, str) and re.fullmatch("[!-~]+", token) else ""


def _body(response: requests.Response) -> bytes:
    """Return a response's body. Raises ValueError if it is longer than any manifest."""
    content = bytearray()
    for chunk in response.iter_content(1 << 16):
        content += chunk
        if len(content) > _LONGEST:
            raise ValueError(f"it sends more than {_LONGEST >> 20} MiB")
    return bytes(content)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _reason(error: Exception) -> str:
    """Return the innermost reason of a failed request."""
    inner: Any = error.args[0] if error.args else error
    while getattr(inner, "reason", None) not in {None, inner} and isinstance(inner.reason, Exception):
        inner = inner.reason
    return str(getattr(inner, "strerror", None) or inner).rpartition(": ")[2]
