"""What the docker provider is told for one update, because ``docker.Image`` has no input for it.

That is the secrets of builds, which would be in the state as inputs, and the compression of layers. A function of the
embedded provider takes both, and keeps them in memory. The official provider (pulumi-docker 5.2.0) has no such
function.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final, Self

import pulumi

from containers.errors import SlipwayError
from stacks.config.fetching.build_logins import KEY, netrc_files, passwords
from stacks.config.publishing.compression import ZstdConfig
from stacks.placement import Placement

FUNCTION: Final = "docker:index/updateSettings:updateSettings"
"""The function of the embedded provider."""
PROVIDER_VARIABLE: Final = "SLIPWAY_DOCKER_PROVIDER"
"""The environment variable by which the toolchain says which provider it installed."""


@dataclass(frozen=True)
class UpdateSettings:
    """What builds of one update may request, by the ``id`` of a mount, and the texts to mask in their output.

    ``levels`` has the level of zstd of each image whose layers the provider compresses, by the name of its build.
    """

    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    masked: tuple[str, ...] = field(default=(), repr=False)
    levels: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, placement: Placement) -> Self:
        """Return the settings of a placed plan. A preview, which builds nothing, needs none.

        Raises:
            pulumi.RunError: the provider takes none, or a secret is not where the configuration says.
        """
        config = placement.plan.config
        logins = config.build_secrets
        needs = {
            (KEY, "give a build a secret"): bool(logins),
            ("slipway:compression", "compress layers with zstd"): isinstance(config.compression, ZstdConfig),
        }
        for (key, what), needed in needs.items():
            if needed and os.environ.get(PROVIDER_VARIABLE) != "embedded":
                raise pulumi.RunError(
                    f"{key}: the official docker provider cannot {what}: use the embedded one "
                    f"(set {PROVIDER_VARIABLE}=embedded, then `slipway up` again), or leave the key out"
                )
        if pulumi.runtime.is_dry_run():
            return cls()
        levels = {placed.built_as: placed.level for placed in placement.images if placed.level is not None}
        try:
            values = passwords(logins)
        except SlipwayError as error:
            raise pulumi.RunError(str(error)) from None
        secrets = netrc_files(logins, values, config.mirrors) if logins else {}
        return cls(secrets, tuple(values.values()), levels)

    def lend(self, engine: pulumi.ProviderResource | None) -> None:
        """Give the settings to the provider that builds: ``engine``, or the default one. They stay in its memory."""
        if not (self.secrets or self.levels):
            return
        options = pulumi.InvokeOptions(provider=engine, version=metadata.version("pulumi-docker"))
        arguments: dict[str, Any] = {"secrets": self.secrets, "masked": list(self.masked), "levels": self.levels}
        pulumi.runtime.invoke(FUNCTION, arguments, options)
