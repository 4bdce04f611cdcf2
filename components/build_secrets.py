"""Secrets of builds, lent to the docker provider for one update.

``docker.Image`` has no input for them, and what is an input is in the state. A function of the embedded provider takes
them instead: it keeps them in memory, and BuildKit requests them in the session of a build. The official provider
(pulumi-docker 5.2.0) has no such function.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Self

import pulumi

from containers.errors import SlipwayError
from stacks.config.fetching.build_logins import KEY, netrc_files, passwords
from stacks.config.stack_config import StackConfig

FUNCTION = "docker:index/buildSecrets:buildSecrets"
"""The function of the embedded provider."""
PROVIDER_VARIABLE = "SLIPWAY_DOCKER_PROVIDER"
"""The environment variable by which the toolchain says which provider it installed."""


@dataclass(frozen=True)
class BuildSecrets:
    """What builds of one update may request, by the ``id`` of a mount, and the texts to mask in their output."""

    values: dict[str, str] = field(default_factory=dict, repr=False)
    masked: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, config: StackConfig) -> Self:
        """Return the secrets of a stack. A preview, which builds nothing, needs none of their values.

        Raises:
            pulumi.RunError: the provider takes no secrets, or a value is not where the configuration says.
        """
        logins = config.build_secrets
        if not logins:
            return cls()
        if os.environ.get(PROVIDER_VARIABLE) != "embedded":
            raise pulumi.RunError(
                f"{KEY}: the official docker provider cannot give a build a secret: use the embedded one "
                f"({PROVIDER_VARIABLE}=embedded make ready, then load .slipway/env), or leave the key out"
            )
        if pulumi.runtime.is_dry_run():
            return cls()
        try:
            values = passwords(logins)
        except SlipwayError as error:
            raise pulumi.RunError(str(error)) from None
        return cls(netrc_files(logins, values, config.mirrors), tuple(values.values()))

    def lend(self, engine: pulumi.ProviderResource | None) -> None:
        """Give the secrets to the provider that builds: ``engine``, or the default one. They stay in its memory."""
        if not self.values:
            return
        options = pulumi.InvokeOptions(provider=engine, version=metadata.version("pulumi-docker"))
        arguments: dict[str, Any] = {"secrets": self.values, "masked": list(self.masked)}
        pulumi.runtime.invoke(FUNCTION, arguments, options)
