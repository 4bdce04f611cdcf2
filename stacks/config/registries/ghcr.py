"""``kind: ghcr``: GitHub's container registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from stacks.config.model import NonEmpty, Repository, Secret
from stacks.config.registries.generic import GenericRegistryConfig


class GhcrRegistryConfig(GenericRegistryConfig):
    """GitHub's container registry; in GitHub Actions the job's own actor and token are the default."""

    VARIABLES: ClassVar[Mapping[str, str]] = {"username": "GITHUB_ACTOR", "password": "GITHUB_TOKEN"}
    # GitHub Enterprise has it at a separate subdomain.
    HOSTS: ClassVar[re.Pattern[str] | None] = re.compile(r"ghcr\.io|containers\.[a-z0-9.-]+(:[0-9]+)?")
    EXAMPLE: ClassVar[str] = "ghcr.io/<owner>/<path>, or containers.<host>/... of GitHub Enterprise"
    ANONYMOUS: ClassVar[bool] = False

    kind: Literal["ghcr"] = Field(description="GitHub's container registry.")  # type: ignore[assignment]
    repository: Repository = Field(description="Prefix of every image's name, such as ghcr.io/acme/images.")
    username: NonEmpty | None = Field(
        None, description="GitHub user name. Default: $GITHUB_ACTOR, else the machine's own Docker login."
    )
    password: Secret | None = Field(
        None, description="Token that may write packages, always a secret. Default: $GITHUB_TOKEN, else as username."
    )
