"""``runners.network``: what is unusual in the cluster's network."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.alias_generators import to_camel

from stacks.config.model import Model, number


def _mirror(value: str) -> str:
    """Return an address that dockerd takes for a mirror (moby v28.5.2, registry/config.go:300)."""
    match = re.fullmatch(r"https?://[A-Za-z0-9.-]+(?::([1-9][0-9]{0,4}))?(?:/[\w./-]*)?", value)
    if not match or int(match[1] or 443) > 65535:
        raise ValueError("expected an http:// or https:// address without a login, such as https://mirror.example.com")
    return value


class NetworkConfig(Model):
    """How the pods of a cluster reach other machines, where it is not the usual way."""

    mtu: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the networks that Docker daemons make, which must not be above that of the cluster's pods. "
        "Default: Docker's, 1500.",
    )
    ports: tuple[Annotated[int, BeforeValidator(number), Field(ge=1, le=65535)], ...] = Field(
        (),
        description="TCP ports that network policies let out, besides 80, 443 and those of slipway:registry and "
        "slipway:mirrors: [3128].",
    )
    docker_mirrors: tuple[Annotated[str, AfterValidator(_mirror)], ...] = Field(
        (),
        description="Mirrors of Docker Hub that Docker daemons ask before it: [https://mirror.example.com]. Network "
        "policies let out their ports.",
    )

    def refuse_docker(self) -> None:
        """Raise ValueError for the first key that only a Docker daemon reads."""
        for key in ("mtu", "docker_mirrors"):
            if getattr(self, key):
                raise ValueError(f"network.{to_camel(key)} has no effect, because no Docker daemon runs: leave it out")
