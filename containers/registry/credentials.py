"""Registry credentials, and those of this machine. A stack's are in :mod:`containers.registry.logins.stack_login`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from containers.registry.logins import docker_login
from containers.registry.reference import covering

GITHUB: Final = {"username": "GITHUB_ACTOR", "password": "GITHUB_TOKEN"}
"""The variables of a GitHub job with its own login to GitHub's registry."""


@dataclass(frozen=True)
class Login:
    """A user name and a password or token for one registry, which is sent to no other host.

    With an ``identity_token``, as `docker login` gets from some registries, the password is empty: the registry's token
    server takes it alone.
    """

    host: str
    username: str
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def auth_config(self) -> dict[str, str]:
        """What the engine's API calls an AuthConfig, without what is empty."""
        values = {
            "username": self.username,
            "password": self.password,
            "serveraddress": self.host,
            "identitytoken": self.identity_token,
        }
        return {key: value for key, value in values.items() if value}

    def applies_to(self, reference: str) -> bool:
        """Return whether a reference names an image of this registry."""
        return covering([self.host], reference) is not None


def of_machine(host: str) -> Login | None:
    """Return this machine's login for a registry: a GitHub job's for ghcr.io, else Docker's.

    Raises ValueError: a Docker credential helper fails.
    """
    if host == "ghcr.io":
        values = {key: os.environ.get(variable, "") for key, variable in GITHUB.items()}
        if all(values.values()):
            return Login(host, **values)
    stored = docker_login.stored(host)
    username, password = stored.get("username"), stored.get("password")
    return Login(host, username, password) if username and password else None
