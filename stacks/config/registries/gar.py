"""``kind: gar``: Google Artifact Registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from containers.registry.logins import google_login
from containers.registry.reference import Reference
from stacks.config.model import NonEmpty, Repository, Secret
from stacks.config.registries.generic import GenericRegistryConfig

_PATH = re.compile(r"(?P<project>[a-z][a-z0-9-]{4,28}[a-z0-9])/(?P<name>[a-z]([a-z0-9-]{0,61}[a-z0-9])?)(/.+)?")
"""A project's id, a repository's name, and what stands before an image's (Artifact Registry, "Repository and image
names"; Resource Manager, "Creating and managing projects")."""


class GarRegistryConfig(GenericRegistryConfig):
    """Google Artifact Registry, with application default credentials, a key of a service account, or a token."""

    VARIABLES: ClassVar[Mapping[str, str]] = {}
    HOSTS: ClassVar[re.Pattern[str] | None] = google_login.HOSTS
    EXAMPLE: ClassVar[str] = "<location>-docker.pkg.dev/<project>/<repository>"
    ANONYMOUS: ClassVar[bool] = False
    IDENTITY: ClassVar[str] = google_login.__name__

    kind: Literal["gar"] = Field(description="Google Artifact Registry.")  # type: ignore[assignment]
    repository: Repository = Field(
        description="Prefix of every image's name: location, project and repository, which must exist, such as "
        "europe-docker.pkg.dev/acme-ml/images."
    )
    username: NonEmpty | None = Field(
        None,
        description="_json_key_base64 for the key of a service account, oauth2accesstoken for a token. Default: "
        "application default credentials, else the machine's own Docker login.",
    )
    password: Secret | None = Field(
        None, description="The key in Base64, or the token, always a secret. Default: as username."
    )

    @field_validator("repository")
    @classmethod
    def _path_fits(cls, value: str) -> str:
        if not _PATH.fullmatch(Reference(value).path):
            raise ValueError(
                f"expected {cls.EXAMPLE}, with the id of a project of 6 to 30 characters and the name of a repository "
                "in it; one of a domain (example.com:project) is kind generic"
            )
        return value

    @property
    def place(self) -> tuple[str, str, str]:
        """Location, project and name of the repository."""
        reference = Reference(self.repository)
        host = re.sub(google_login.HOSTS, r"\g<multi>\g<region>", reference.host)
        project, name = PurePosixPath(reference.path).parts[:2]
        return host, project, name
