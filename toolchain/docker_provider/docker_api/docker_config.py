"""Credentials for registries: the program's own first, else those of the Docker client's configuration."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

import docker.auth
import docker.errors

from toolchain.docker_provider import image_name
from toolchain.docker_provider.inputs import Image
from toolchain.provider_base import ProviderError


@dataclass(frozen=True)
class Credential:
    """The credential for one registry. All fields are empty if there is none."""

    server: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    def payload(self) -> dict[str, str]:
        """Return the engine API's AuthConfig."""
        values = {
            "username": self.username,
            "password": self.password,
            "serveraddress": self.server,
            "identitytoken": self.identity_token,
        }
        return {key: value for key, value in values.items() if value}

    def header(self) -> str:
        """Return the value of `X-Registry-Auth`."""
        return encoded(self.payload())


class Keychain:
    """All credentials one image may need.

    Args:
        image: the image; its registry's user and password count for its own registry, if both are given.

    Attributes:
        warning: the warning about a username without a password, or the reverse; "" for none.
    """

    def __init__(self, image: Image) -> None:
        registry = image.registry
        self.warning = ""
        self._given: Credential | None = None
        self._server = self._looked_up = ""
        if registry.username and registry.password:
            self._server = image_name.registry_of(registry.server, image.name)
            self._given = Credential(self._server, registry.username, registry.password)
            return
        for present, missing in (("username", "password"), ("password", "username")):
            if getattr(registry, present):
                self.warning = f"{missing} was not set, although {present} was; using host credentials file"
        if image.build.cache_from or not image.skip_push:
            self._looked_up = image_name.registry_of(registry.server, image.name)
            self._configured(self._looked_up)  # an unreadable file fails before the build

    @property
    def for_push(self) -> Credential:
        """The credential for the image's registry: the program's, else that of the Docker client's configuration.

        A credential helper returns a new token each time, so the push after a long build has a fresh one. The official
        provider reads it once, before the build.
        """
        if self._given:
            return self._given
        return self._configured(self._looked_up) if self._looked_up else Credential()

    def for_host(self, host: str) -> Credential:
        """Return the credential for a registry that a build pulls from."""
        server = image_name.registry_of(host, "")
        return self.for_push if self._server and server == self._server else self._configured(server)

    def everything(self) -> str:
        """Return the value of `X-Registry-Config`, which the first builder needs."""
        auths = docker.auth.load_config().auths or {}
        known = {server: self._configured(server).payload() for server in auths}
        if self._server:
            known[self._server] = self.for_push.payload()
        return encoded(known)

    def _configured(self, server: str) -> Credential:
        try:
            entry = docker.auth.load_config().resolve_authconfig(server)
        except docker.errors.DockerException as error:
            raise ProviderError(f"credentials for {server}: {' '.join(str(error).split())}") from error
        if not entry:
            return Credential(server)
        lowered = {key.lower(): value for key, value in entry.items() if isinstance(value, str)}
        return Credential(
            lowered.get("serveraddress", server),
            lowered.get("username", ""),
            lowered.get("password", ""),
            lowered.get("identitytoken", ""),
        )


def encoded(payload: object) -> str:
    """Encode a header's JSON as the engine reads it."""
    return base64.urlsafe_b64encode(json.dumps(payload).encode()).decode("ascii")
