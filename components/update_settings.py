"""What the docker provider is told for one update, because ``docker.Image`` has no input for it.

These are the secrets of builds and the compression of layers; as inputs, secrets would be in the state. A function of
the embedded provider takes both, and keeps them in memory. The official provider (pulumi-docker 5.2.0) has no such
function: it gives a build no secret, and :class:`components.registry.compressed_push.CompressedPush` pushes for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final, Self

import pulumi

from containers.errors import SlipwayError
from stacks.config.fetching.build_logins import KEY, netrc_files, passwords
from stacks.config.stack_config import StackConfig
from stacks.placement import Placement

FUNCTION: Final = "docker:index/updateSettings:updateSettings"
"""The function of the embedded provider."""
PROVIDER_VARIABLE: Final = "SLIPWAY_DOCKER_PROVIDER"
"""The environment variable by which the toolchain says which provider it installed."""


def is_embedded() -> bool:
    """Return whether the docker provider is the embedded one."""
    return os.environ.get(PROVIDER_VARIABLE) == "embedded"


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

        Raises pulumi.RunError: the provider takes none, or a secret is not where the configuration says.
        """
        config = placement.plan.config
        logins = config.build_secrets
        # With certificates, the official one takes this variable in place of the provider's own address
        # (pulumi-docker 237b789, provider/image.go, `configureDockerClientInner`: FromEnv after WithHost).
        elsewhere = _has_certificates(config) and bool(os.environ.get("DOCKER_HOST"))
        needs = {
            (KEY, "give a build a secret", "leave the key out"): bool(logins),
            ("slipway:buildOn", "build on the runners while DOCKER_HOST is set", "unset that"): elsewhere,
        }
        for (key, what, instead), needed in needs.items():
            if needed and not is_embedded():
                raise pulumi.RunError(
                    f"{key}: the official docker provider cannot {what}: use the embedded one "
                    f"(set {PROVIDER_VARIABLE}=embedded, then `slipway up` again), or {instead}"
                )
        if pulumi.runtime.is_dry_run():
            return cls()
        compressed = placement.images if is_embedded() else ()
        levels = {placed.built_as: placed.level for placed in compressed if placed.level is not None}
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


def _has_certificates(config: StackConfig) -> bool:
    """Return whether a provider reaches a build service by its certificates: several replicas have a socket here."""
    pools = config.cluster_runners.build_pools if config.build_on == "runners" and config.cluster_runners else {}
    return any(pool.replicas == 1 for pool in pools.values())
