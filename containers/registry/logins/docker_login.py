"""The logins that Docker stores on this machine: in its client's configuration, or in a credential helper."""

from __future__ import annotations

import base64
import json
from typing import Any

_NAMES = dict.fromkeys(("docker.io", "index.docker.io", "registry-1.docker.io"), "https://index.docker.io/v1/")
"""Registries whose credentials Docker stores under another name."""


def name(host: str) -> str:
    """Return the name under which Docker stores a registry's credentials."""
    return _NAMES.get(host, host)


def configuration(host: str, username: str, password: str) -> str:
    """Return a Docker configuration with one login, in the format of ``config.json`` and of Kubernetes secrets."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {name(host): {"auth": pair}}})


def token_configuration(host: str) -> str:
    """Return a Docker configuration with the token that is stored for a registry in place of a password, if any is.

    Raises:
        ValueError: as for :func:`stored`.
    """
    token = {key.lower(): value for key, value in stored(host).items()}.get("identitytoken")
    return json.dumps({"auths": {name(host): {"identitytoken": token}} if token else {}})


def stored(host: str) -> dict[str, Any]:
    """Return the stored credentials of a registry under Docker's own keys; empty if there are none.

    Raises:
        ValueError: a configured credential helper fails.
    """
    import docker.auth  # noqa: PLC0415 - few runs need it, and it takes long to load
    import docker.errors  # noqa: PLC0415

    try:
        return docker.auth.load_config().resolve_authconfig(name(host)) or {}
    except docker.errors.DockerException as error:
        raise ValueError(f"the stored Docker login cannot be read: {error}") from None
