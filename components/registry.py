"""Registries: under which name images are pushed, and with what credentials."""

from __future__ import annotations

import pulumi
import pulumi_docker as docker


class Registry(pulumi.ComponentResource):
    """What every registry offers an image: a repository, credentials, and whether to push at all."""

    repository: str
    """The prefix of every image's name: host and path."""

    publish: bool
    """Whether images are pushed; without, a build needs no credential."""

    credentials: docker.RegistryArgs
    """Where to push and as whom; without user name and password the machine's own Docker login serves."""


class LocalRegistry(Registry):
    """A registry on this machine, without credentials."""

    def __init__(
        self, name: str, repository: str, *, publish: bool = True, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("slipway:registry:LocalRegistry", name, {"repository": repository}, opts)
        self.repository = repository
        self.publish = publish
        self.credentials = docker.RegistryArgs(server=repository.partition("/")[0])
        self.register_outputs({"repository": repository})


class PasswordRegistry(Registry):
    """A registry that takes a user name and a password or token, such as GHCR's; both stay secret."""

    def __init__(
        self,
        name: str,
        repository: str,
        *,
        username: str | None = None,
        password: pulumi.Input[str] | None = None,
        publish: bool = True,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("slipway:registry:PasswordRegistry", name, {"repository": repository}, opts)
        self.repository = repository
        self.publish = publish
        self.credentials = docker.RegistryArgs(
            server=repository.partition("/")[0],
            username=username,
            password=None if password is None else pulumi.Output.secret(password),
        )
        self.register_outputs({"repository": repository})
