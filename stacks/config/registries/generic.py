"""``kind: generic``: any registry that takes a user name and a password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from containers.registry.logins.stack_login import LoginSources
from containers.registry.reference import Reference
from stacks.config.model import ENCRYPTED, NonEmpty, Repository, Secret
from stacks.config.registries.registry_model import RegistryConfig


class GenericRegistryConfig(RegistryConfig):
    """A registry with a user name and a password; without them the machine's Docker login is used."""

    VARIABLES: ClassVar[Mapping[str, str]] = {
        "username": "SLIPWAY_REGISTRY_USERNAME",
        "password": "SLIPWAY_REGISTRY_PASSWORD",
    }
    """Environment variables with the defaults of both."""

    HOSTS: ClassVar[re.Pattern[str] | None] = None
    """The pattern of the registry's host; None for any host."""

    EXAMPLE: ClassVar[str] = ""
    """A repository with such a host, for the error."""

    ANONYMOUS: ClassVar[bool] = True
    """Whether registries of this kind may accept an anonymous push."""

    IDENTITY: ClassVar[str] = ""
    """The module that logs in with the program's identity; ``stack_login`` says what it has."""

    kind: Literal["generic"] = Field(description="Any registry that takes a user name and a password.")
    repository: Repository = Field(description="Prefix of every image's name, such as harbor.example.com/ml.")
    username: NonEmpty | None = Field(
        None, description="User name. Default: $SLIPWAY_REGISTRY_USERNAME, else the machine's own Docker login."
    )
    password: Secret | None = Field(
        None, description="Password or token, always a secret. Default: $SLIPWAY_REGISTRY_PASSWORD, else as username."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        """Take missing values from the environment, if they complete the pair.

        A fork's job has a user name but no secret. If a given value differs from the environment's, the environment is
        another account's and is ignored.
        """
        if not isinstance(values, Mapping):
            return values
        environment = {key: os.environ.get(variable) or None for key, variable in cls.VARIABLES.items()}
        present = {key: values[key] for key in environment if values.get(key) is not None}
        if any(environment[key] not in {None, _plain(value)} for key, value in present.items()):
            return values
        login = {**environment, **present}
        return values if None in login.values() else {**values, **login}

    @field_validator("repository")
    @classmethod
    def _host_fits(cls, value: str) -> str:
        if cls.HOSTS and not cls.HOSTS.fullmatch(Reference(value).host):
            raise ValueError(f"expected {cls.EXAMPLE}; a registry at another host is kind generic")
        return value

    @property
    def login_sources(self) -> LoginSources:
        """Where its login comes from."""
        password = self.password.get_secret_value() if self.password else None
        return LoginSources(
            host=Reference(self.repository).host,
            username=self.username,
            password="" if password == ENCRYPTED else password,
            variables=tuple(self.VARIABLES.values()),
            anonymous=self.ANONYMOUS,
            identity=self.IDENTITY,
        )

    def check_complete(self) -> None:
        """Refuse a user name without a password, and the reverse."""
        if (self.username is None) != (self.password is None):
            missing, present = ("password", "username") if self.password is None else ("username", "password")
            variables = self.VARIABLES
            other = f" (or ${variables[missing]}, where ${variables[present]} is not another's)" if variables else ""
            raise ValueError(
                f"'{missing}' is missing: give username and password{other}, or neither to use the machine's "
                "Docker login"
            )


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
