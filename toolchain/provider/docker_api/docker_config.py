"""Credentials for registries: the program's own first, else those of the Docker client's configuration."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from containers.engine.engine import json_header
from containers.errors import SlipwayError
from containers.registry.credentials import Login
from containers.registry.logins import docker_login, stack_login
from toolchain.provider import image_name
from toolchain.provider.inputs import ImageInputs

_FRESH: Final = 60.0
"""Seconds for which the program's credential is not asked for again: a machine of Google gives tokens of 5 minutes."""


class Keychain:
    """The credentials for the registries that one image needs. For any other registry there is none.

    The image's user and password count for its own registry, if both are given. Its build pulls from the hosts
    ``registries``. ``warning`` is about a username without a password, or the reverse; "" for none.
    """

    def __init__(self, image: ImageInputs, registries: Iterable[str] = ()) -> None:
        registry = image.registry
        self.warning = ""
        self._given: Login | None = None
        self._short_lived = registry.short_lived
        self._since = time.monotonic()
        self._servers = {_key(host): image_name.registry_of(host, "") for host in registries}
        self._own = ""
        if registry.username and registry.password:
            self._own = image_name.registry_of(registry.server, image.name)
            self._given = Login(self._own, registry.username, registry.password)
        else:
            for present, missing in (("username", "password"), ("password", "username")):
                if getattr(registry, present):
                    self.warning = f"{missing} was not set, although {present} was; using host credentials file"
        if not image.skip_push:
            self._own = self._own or image_name.registry_of(registry.server, image.name)
            self._servers[_key(self._own)] = self._own
            self.for_host(self._own)  # an unreadable file fails before the build

    def for_host(self, host: str) -> Login:
        """Return the login for a registry: the program's, else that of the Docker client's; all empty if there is none.

        A credential helper returns a new token each time, so the push after a long build has a fresh one. The official
        provider reads it once, before the build.
        """
        server = self._servers.get(_key(host))
        if server is None:
            return Login("", "", "")
        if self._given and _key(server) == _key(self._own):
            return self._renewed(self._given)
        return self._configured(server)

    def _renewed(self, given: Login) -> Login:
        """Return the program's credential; a new one where a cloud's identity gave it, and a build has run since.

        One that is configured may be another identity's, with the same user name.
        """
        if self._short_lived and time.monotonic() - self._since > _FRESH:
            self._given = stack_login.renewed(given)
            self._since = time.monotonic()
        return self._given or given

    def everything(self) -> str:
        """Return the value of `X-Registry-Config`, which the first builder needs."""
        credentials = {server: self.for_host(server).auth_config for server in self._servers.values()}
        return json_header({server: payload for server, payload in credentials.items() if payload})

    def _configured(self, server: str) -> Login:
        try:
            entry = docker_login.stored(server)
        except ValueError as error:
            raise SlipwayError(f"credentials for {server}: {error}") from error
        return Login(
            entry.get("serveraddress", server),
            entry.get("username", ""),
            entry.get("password", ""),
            entry.get("identitytoken", ""),
        )


def _key(host: str) -> str:
    """Return what all spellings of a registry's host have in common."""
    return image_name.registry_of(host.lower(), "")
