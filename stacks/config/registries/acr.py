"""``kind: acr``: Azure's container registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from containers.registry.logins import azure_login
from stacks.config.model import NonEmpty, Repository, Secret
from stacks.config.registries.generic import GenericRegistryConfig


class AcrRegistryConfig(GenericRegistryConfig):
    """Azure's container registry, with a service principal, a token of the registry, or the job's identity."""

    VARIABLES: ClassVar[Mapping[str, str]] = {"username": "AZURE_CLIENT_ID", "password": "AZURE_CLIENT_SECRET"}
    HOSTS: ClassVar[re.Pattern[str] | None] = azure_login.HOSTS
    EXAMPLE: ClassVar[str] = "<registry>.azurecr.io/<path>"
    ANONYMOUS: ClassVar[bool] = False
    IDENTITY: ClassVar[str] = azure_login.__name__

    kind: Literal["acr"] = Field(description="Azure's container registry.")  # type: ignore[assignment]
    repository: Repository = Field(description="Prefix of every image's name, such as acme.azurecr.io/images.")
    username: NonEmpty | None = Field(
        None,
        description="Client id of a service principal, or name of a token of the registry. Default: $AZURE_CLIENT_ID, "
        "else the machine's own Docker login.",
    )
    password: Secret | None = Field(
        None,
        description="Its secret, or the token's password, always a secret. Default: $AZURE_CLIENT_SECRET, else as "
        "username.",
    )
