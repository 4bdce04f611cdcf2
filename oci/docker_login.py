"""The machine's own Docker login: what the Docker client's configuration, or a helper that it names, knows."""

from __future__ import annotations

import base64
import json
from typing import Any

_NAMES = dict.fromkeys(("docker.io", "index.docker.io"), "https://index.docker.io/v1/")
"""Registries whose credentials Docker keeps under another name."""


def name(host: str) -> str:
    """Return the name under which Docker keeps a registry's credentials."""
    return _NAMES.get(host, host)


def configuration(host: str, username: str, password: str) -> str:
    """Return a Docker configuration that holds one login, as ``config.json`` and Kubernetes' secrets have it."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {name(host): {"auth": pair}}})


def stored(host: str) -> dict[str, Any]:
    """Return what is stored for a registry, by Docker's own keys; empty where nothing is.

    Raises:
        ValueError: a helper that is named there does not work here.
    """
    import docker.auth  # noqa: PLC0415 - few runs need it, and it takes long to load
    import docker.errors  # noqa: PLC0415

    try:
        return docker.auth.load_config().resolve_authconfig(name(host)) or {}
    except docker.errors.DockerException as error:
        raise ValueError(f"the Docker login for it cannot be read: {error}") from None
