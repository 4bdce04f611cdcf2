"""``kind: generic``: any registry that takes a user name and a password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from stacks.config.model import Given, Secret
from stacks.config.registries.registry_model import RegistryModel
from stacks.references import Repository


class GenericRegistry(RegistryModel):
    """A registry that takes a user name and a password; without them the machine's own Docker login serves."""

    VARIABLES: ClassVar[Mapping[str, str]] = {
        "username": "SLIPWAY_REGISTRY_USERNAME",
        "password": "SLIPWAY_REGISTRY_PASSWORD",
    }
    """Environment variables that stand in for what the configuration leaves out."""

    HOSTS: ClassVar[re.Pattern[str] | None] = None
    """What the registry's host looks like; None where it may be any."""

    EXAMPLE: ClassVar[str] = ""
    """A repository whose host fits."""

    ANONYMOUS: ClassVar[bool] = True
    """Whether there are registries of this kind that take a push from anybody."""

    IDENTITY: ClassVar[tuple[str, ...]] = ()
    """Environment variables that will do in their place: who the program is, for a login that does not last."""

    kind: Literal["generic"] = Field(description="Any registry that takes a user name and a password.")
    repository: Repository = Field(description="Prefix of every image's name, such as harbor.example.com/ml.")
    username: Given | None = Field(
        None, description="User name. Default: $SLIPWAY_REGISTRY_USERNAME, else the machine's own Docker login."
    )
    password: Secret | None = Field(
        None,
        description="Password or token, always a secret. Default: $SLIPWAY_REGISTRY_PASSWORD, else as username.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        """Fill in from the environment, if both are there then: a fork's job has a user name, but no secrets.

        What is given and is another there, shows that the other half there is somebody else's.
        """
        if not isinstance(values, Mapping):
            return values
        there = {key: os.environ.get(variable) or None for key, variable in cls.VARIABLES.items()}
        given = {key: values[key] for key in there if values.get(key) is not None}
        if any(there[key] not in {None, _plain(value)} for key, value in given.items()):
            return values
        found = {**there, **given}
        return values if None in found.values() else {**values, **found}

    @field_validator("repository")
    @classmethod
    def _host_fits(cls, value: str) -> str:
        if cls.HOSTS and not cls.HOSTS.fullmatch(value.partition("/")[0]):
            raise ValueError(f"expected {cls.EXAMPLE}; a registry at another host is kind generic")
        return value

    def check_complete(self) -> None:
        """Refuse a user name without a password, and the reverse."""
        if (self.username is None) != (self.password is None):
            missing, given = ("password", "username") if self.password is None else ("username", "password")
            raise ValueError(
                f"'{missing}' is missing: give username and password (or ${self.VARIABLES[missing]}, where "
                f"${self.VARIABLES[given]} is not another's), or neither to use the machine's Docker login"
            )


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
