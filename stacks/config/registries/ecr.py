"""``kind: ecr``: Amazon's container registry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from containers.errors import one_line, suggest
from containers.registry.reference import Reference
from stacks.config.model import Model, Repository, matching
from stacks.config.registries.registry_model import RegistryConfig

_UPSTREAMS = {
    "docker.io": True,
    "ghcr.io": True,
    "registry.gitlab.com": True,
    "public.ecr.aws": False,
    "quay.io": False,
    "registry.k8s.io": False,
}
"""Registries that ECR can cache, and whether it needs a credential for them (ECR user guide, pull through cache)."""

_PREFIX = re.compile(r"(?=.{2,30}$)[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_SECRET = re.compile(r"arn:aws(?:-\w+)*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:ecr-pullthroughcache/[\w/+=.@-]+")
_KMS_KEY = re.compile(r"arn:aws(?:-\w+)*:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+")
_ECR_HOST = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z]{2,4}(?:-[a-z]+)+-[0-9])\.[a-z0-9.-]+(?::[0-9]+)?"
)
"""The host of an account's ECR in a region, in every partition and form (`.dkr.ecr.`, `.dkr-ecr.`, FIPS)."""


_prefix = matching(_PREFIX, "2 to 30 lower-case letters, digits and . _ - /")
_secret = matching(_SECRET, "the ARN of a Secrets Manager secret named ecr-pullthroughcache/...: ECR takes no other")


class PullThroughCacheConfig(Model):
    """The settings of ECR's cache of one registry."""

    prefix: Annotated[str, AfterValidator(_prefix)] | None = Field(
        None, description="First part of the cached repositories' names. Default: the registry's own name."
    )
    credential: Annotated[str, AfterValidator(_secret)] | None = Field(
        None,
        description="ARN of the secret in Secrets Manager, named ecr-pullthroughcache/..., with which ECR logs in.",
    )


class EcrRegistryConfig(RegistryConfig):
    """Amazon's container registry. The credentials are AWS's own, from its environment and files."""

    kind: Literal["ecr"] = Field(description="Amazon's Elastic Container Registry.")
    repository: Repository = Field(
        description="Prefix of every image's name, such as 123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml."
    )
    account: str = Field(
        "",
        pattern="^([0-9]{12})?$",
        description="AWS account, 12 digits. Default: the host's; needed where the host is a name of your own.",
    )
    region: str = Field("", description="AWS region. Default: the host's; needed where the host is a name of your own.")
    create: bool = Field(
        default=True,
        description="Create and own the repositories and cache rules. false: they exist, or another stack owns them.",
    )
    keep_newest: int = Field(
        30,
        ge=1,
        description="Newest images that each repository keeps, besides those that a stack exports; older ones expire. "
        "An index counts as one image with what it names.",
    )
    kms_key: str | None = Field(
        None,
        description="ARN of the KMS key that encrypts the repositories, in their region; a repository's cannot be "
        "changed later. Default: AES-256 with AWS's own key.",
    )
    force_delete: bool = Field(
        default=False, description="Delete repositories with the images in them when the stack is destroyed."
    )
    pull_through_cache: dict[str, PullThroughCacheConfig] = Field(
        default_factory=dict,
        description="Registries that ECR caches, by name (docker.io, quay.io, ...); parents from there are then pulled "
        "through ECR.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_host(cls, values: Any) -> Any:
        """Take account and region from the host, unless they are given."""
        if not isinstance(values, Mapping) or not isinstance(values.get("repository"), str):
            return values
        host = _ECR_HOST.fullmatch(Reference(values["repository"]).host)
        return {**host.groupdict(), **values} if host else values

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.account or not self.region:
            raise ValueError(
                f"repository '{one_line(self.repository)}': expected <account>.dkr.ecr.<region>.amazonaws.com/<path>; "
                "where a name of your own stands in front of ECR, give account and region as well"
            )
        host = _ECR_HOST.fullmatch(self.host)
        for name in ("account", "region"):
            if host and host[name] != getattr(self, name):
                raise ValueError(f"{name} '{getattr(self, name)}' is not the repository's, {host[name]}")
        if self.kms_key is not None:
            key = _KMS_KEY.fullmatch(self.kms_key)
            if not key:
                raise ValueError(
                    f"kmsKey '{one_line(self.kms_key)}': expected a key's ARN, "
                    "arn:aws:kms:<region>:<account>:key/<id>; an alias or a bare id is none"
                )
            if key["region"] != self.region:
                raise ValueError(f"kmsKey is in {key['region']}, but the repositories are in {self.region}")
        return self

    @field_validator("pull_through_cache")
    @classmethod
    def _upstreams(cls, value: dict[str, PullThroughCacheConfig]) -> dict[str, PullThroughCacheConfig]:
        for name, cache in value.items():
            if name not in _UPSTREAMS:
                raise ValueError(
                    f"'{one_line(name)}' is not a registry that ECR caches{suggest(name, _UPSTREAMS)}; "
                    f"allowed: {', '.join(_UPSTREAMS)}"
                )
            if _UPSTREAMS[name] and cache.credential is None:
                raise ValueError(
                    f"{name}: 'credential' is missing: ECR caches it only with a login; give the ARN of a secret "
                    "named ecr-pullthroughcache/..."
                )
        prefixes = [cache.prefix or name for name, cache in value.items()]
        for prefix in prefixes:
            if prefixes.count(prefix) > 1:
                raise ValueError(f"prefix '{prefix}' is used twice: each registry needs one of its own; choose another")
        return value

    @property
    def host(self) -> str:
        """``host[:port]`` of the registry."""
        return Reference(self.repository).host

    @property
    def prefixes(self) -> dict[str, str]:
        """The cached registries, with the first part of their repositories' names."""
        return {name: cache.prefix or name for name, cache in self.pull_through_cache.items()}

    def created_repositories(self, images: Iterable[str]) -> frozenset[str]:
        """Return a repository for each image, unless ``create`` is false."""
        return frozenset(f"{self.repository}/{image}" for image in images) if self.create else frozenset()

    @property
    def cached(self) -> Mapping[str, str]:
        """The registries that ECR caches, with the prefix of their repositories in it."""
        return {name: f"{self.host}/{prefix}" for name, prefix in self.prefixes.items()}

    def pull_reference(self, reference: str) -> str:
        """Return the name under which ECR caches a parent; the reference itself where it is not cached."""
        image = Reference.of(reference).normal
        cached = self.cached.get(image.host)
        return str(replace(image, repository=f"{cached}/{image.path}")) if cached else reference
