"""The logins that Docker stores on this machine: in its client's configuration, or in a credential helper."""

from __future__ import annotations

import base64
import json
from pathlib import Path

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

    Raises ValueError: as for :func:`stored`.
    """
    token = stored(host).get("identitytoken")
    return json.dumps({"auths": {name(host): {"identitytoken": token}} if token else {}})


def stored(host: str, file: str = "", content: str = "") -> dict[str, str]:
    """Return the stored credentials of a registry under Docker's own keys, in lower case; empty if there are none.

    ``file`` is the configuration, by default that of Docker's client; ``content`` is the text of one that is read in
    its place.

    Raises ValueError: the text is not a configuration, or a configured credential helper fails.
    """
    import docker.auth  # noqa: PLC0415 - few runs need it, and it takes long to load
    import docker.errors  # noqa: PLC0415

    path = str(Path(file).expanduser()) if file else None
    try:
        configuration = docker.auth.load_config(path, json.loads(content) if content else None)
        entry = configuration.resolve_authconfig(name(host)) or {}
    except (AttributeError, ValueError, docker.errors.DockerException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the stored Docker login cannot be read: {reason}") from None
    return {key.lower(): value for key, value in entry.items() if isinstance(value, str)}
