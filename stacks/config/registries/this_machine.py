"""``kind: local``: a registry on this machine."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field

from containers.registry.reference import on_loopback
from stacks.config.model import Host, RepositoryPath
from stacks.config.registries.registry_model import RegistryConfig

REGISTRY_VARIABLE = "SLIPWAY_REGISTRY"
"""Environment variable with the local registry's ``host:port``; set by the toolchain."""


class LocalRegistryConfig(RegistryConfig):
    """A registry on this machine: the one the toolchain starts, or another on loopback, by Docker's login for it."""

    kind: Literal["local"] = Field("local", description="A registry on this machine, with Docker's login for it.")
    address: Host = Field(
        default_factory=lambda: os.environ.get(REGISTRY_VARIABLE) or "127.0.0.1:5000",
        description=f"host:port of the registry. Default: ${REGISTRY_VARIABLE}, else 127.0.0.1:5000.",
    )
    path: RepositoryPath = Field("slipway", description="Path on the registry that the repositories are under.")

    @property
    def of_this_machine(self) -> bool:
        """Whether no address is given."""
        return "address" not in self.model_fields_set

    @property
    def trusted(self) -> bool:
        """Whether its address is on loopback: the one the toolchain starts lets its user alone push.

        Another one is trusted as it is: who may push there is its owner's choice.
        """
        return on_loopback(self.address)

    @property
    def repository(self) -> str:
        """The prefix of every image's name."""
        return f"{self.address}/{self.path}"
