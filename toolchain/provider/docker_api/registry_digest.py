"""The digest of an image in its registry, for `getRegistryImage`."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from containers.errors import SlipwayError
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.logins import docker_login
from toolchain.provider import image_name

_ECR: Final = re.compile(r"^.*dkr\.ecr\..*\.amazonaws\.com$")
_REASONS: Final = {401: "bad credentials: 401 Unauthorized; check the provider's registryAuth", 404: "404 Not Found"}

Registries = Iterable[Mapping[str, Any]]
"""The provider's `registryAuth`."""


def digest(name: str, registries: Registries, *, verify: bool) -> str:
    """Return the digest a registry holds under an image's name, with a tag or a digest; `latest` without either.

    ``registries`` are addresses and credentials; others are reached over https without credentials. ``verify`` is
    whether to verify the registry's certificate.

    Raises SlipwayError: the registry cannot be reached or does not know the image.
    """
    image = image_name.parse(name)
    image = image if image.version else replace(image, tag="latest")
    scheme, login = _login(image.host, registries)
    try:
        return Repository(str(image), login, _REASONS, scheme=scheme, verify=verify).digest()
    except SlipwayError as error:
        raise SlipwayError(f"getRegistryImage: {scheme}://{error}") from None


def _login(host: str, registries: Registries) -> tuple[str, Login]:
    """Return the scheme of a registry's address, and its login; one without a user is anonymous."""
    server = image_name.registry_of(host, "")
    for entry in registries:
        address = str(entry["address"])
        if image_name.registry_of(address, "") == server:
            username, password = _credentials(server, entry)
            if _ECR.match(host) and username:
                username, password = "AWS", _ecr_password(password)
            return "http" if address.startswith("http://") else "https", Login(host, username, password)
    return "https", Login(host, "", "")


def _credentials(server: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """Read one entry of `registryAuth`: nothing, user and password, or a Docker configuration."""
    if entry.get("authDisabled"):
        return "", ""
    if username := entry.get("username") or os.environ.get("DOCKER_REGISTRY_USER", ""):
        return username, entry.get("password") or os.environ.get("DOCKER_REGISTRY_PASS", "")
    try:
        stored = docker_login.stored(server, entry.get("configFile") or "", entry.get("configFileContent") or "")
    except ValueError as error:
        raise SlipwayError(f"registryAuth {server}: {error}") from None
    return stored.get("username", ""), stored.get("password", "")


def _ecr_password(password: str) -> str:
    """Return the token of ECR's `authorizationToken`, which is the base64 of `AWS:<token>`; else the password."""
    try:
        text = base64.b64decode(password, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    return (text if text.startswith("AWS:") else password).removeprefix("AWS:")
