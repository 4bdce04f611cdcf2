"""``slipway:registry``: where a stack's images are pushed, one model for each kind of registry.

All kinds answer the same questions: under which prefix images stand (``repository``), where a build pulls a parent from
(``pulled``). Credentials are secrets of the configuration or come from the environment; :mod:`oci.credentials` says
whether there are any, and nothing asks for them before something is pushed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from stacks.config.model import Given, Model, Secret
from stacks.errors import one_line, suggest
from stacks.references import Host, Path, Repository, qualified

REGISTRY_VARIABLE = "SLIPWAY_REGISTRY"
"""Environment variable with the local registry's ``host:port``; set by the toolchain."""


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


class _Registry(Model):
    """What every kind offers; ``repository``, the prefix of every image's name, is each kind's own."""

    def check_half(self) -> None:
        """Refuse credentials that are only half there. Called where images are pushed.

        Raises:
            ValueError: naming what is missing and how to give it.
        """

    @property
    def own(self) -> bool:
        """Whether it is the toolchain's, which nothing beyond this machine reaches."""
        return False

    def owned(self, images: Iterable[str]) -> frozenset[str]:  # noqa: ARG002 - most registries make repositories by themselves
        """Return the full names of the repositories that a stack with these images creates, and so alone may have."""
        return frozenset()

    def pulled(self, reference: str) -> str:
        """Return where a build pulls an outside parent from: the reference itself, but for a registry that caches."""
        return reference

    @property
    def cached(self) -> Mapping[str, str]:
        """The registries that are pulled through this one, with where their repositories stand in it."""
        return {}


class LocalRegistry(_Registry):
    """A registry on this machine, without credentials: the one the toolchain starts, or another on loopback."""

    kind: Literal["local"] = Field("local", description="A registry on this machine, without credentials.")
    address: Host = Field(
        default_factory=lambda: os.environ.get(REGISTRY_VARIABLE) or "127.0.0.1:5000",
        description=f"host:port of the registry. Default: ${REGISTRY_VARIABLE}, else 127.0.0.1:5000.",
    )
    path: Path = Field("slipway", description="Path on the registry below which the repositories stand.")

    @property
    def own(self) -> bool:
        """Whether no address is given."""
        return "address" not in self.model_fields_set

    @property
    def repository(self) -> str:
        """The prefix of every image's name."""
        return f"{self.address}/{self.path}"


class GenericRegistry(_Registry):
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

    def check_half(self) -> None:
        """Refuse a user name without a password, and the reverse."""
        if (self.username is None) != (self.password is None):
            missing, given = ("password", "username") if self.password is None else ("username", "password")
            raise ValueError(
                f"'{missing}' is missing: give username and password (or ${self.VARIABLES[missing]}, where "
                f"${self.VARIABLES[given]} is not another's), or neither to use the machine's Docker login"
            )


class GhcrRegistry(GenericRegistry):
    """GitHub's container registry; in GitHub Actions the job's own actor and token are the default."""

    VARIABLES: ClassVar[Mapping[str, str]] = {"username": "GITHUB_ACTOR", "password": "GITHUB_TOKEN"}
    # GitHub Enterprise has it at a subdomain of its own.
    HOSTS: ClassVar[re.Pattern[str] | None] = re.compile(r"ghcr\.io|containers\.[a-z0-9.-]+(:[0-9]+)?")
    EXAMPLE: ClassVar[str] = "ghcr.io/<owner>/<path>, or containers.<host>/... of GitHub Enterprise"
    ANONYMOUS: ClassVar[bool] = False

    kind: Literal["ghcr"] = Field(description="GitHub's container registry.")  # type: ignore[assignment]
    repository: Repository = Field(description="Prefix of every image's name, such as ghcr.io/acme/images.")
    username: Given | None = Field(
        None, description="GitHub user name. Default: $GITHUB_ACTOR, else the machine's own Docker login."
    )
    password: Secret | None = Field(
        None,
        description="Token that may write packages, always a secret. Default: $GITHUB_TOKEN, else as username.",
    )


class AcrRegistry(GenericRegistry):
    """Azure's container registry, with a service principal, a token of the registry's own, or who the job is."""

    VARIABLES: ClassVar[Mapping[str, str]] = {"username": "AZURE_CLIENT_ID", "password": "AZURE_CLIENT_SECRET"}
    # Names, with a domain label's hash, and regional endpoints; the suffixes are Azure's clouds.
    HOSTS: ClassVar[re.Pattern[str] | None] = re.compile(
        r"[a-z0-9]{5,50}(-[a-z0-9]+)?(\.[a-z0-9-]+)*\.azurecr\.(io|cn|us)"
    )
    EXAMPLE: ClassVar[str] = "<registry>.azurecr.io/<path>"
    ANONYMOUS: ClassVar[bool] = False
    IDENTITY: ClassVar[tuple[str, ...]] = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")

    kind: Literal["acr"] = Field(description="Azure's container registry.")  # type: ignore[assignment]
    repository: Repository = Field(description="Prefix of every image's name, such as acme.azurecr.io/images.")
    username: Given | None = Field(
        None,
        description="Client id of a service principal, or name of a token of the registry. Default: $AZURE_CLIENT_ID, "
        "else the machine's own Docker login.",
    )
    password: Secret | None = Field(
        None,
        description="Its secret, or the token's password, always a secret. Default: $AZURE_CLIENT_SECRET, else as "
        "username.",
    )


_UPSTREAMS = {
    "docker.io": True,
    "ghcr.io": True,
    "registry.gitlab.com": True,
    "public.ecr.aws": False,
    "quay.io": False,
    "registry.k8s.io": False,
}
"""Registries that ECR can cache, and whether it wants a credential for them (ECR user guide, pull through cache)."""

_PREFIX = re.compile(r"(?=.{2,30}$)[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_SECRET = re.compile(r"arn:aws(?:-\w+)*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:ecr-pullthroughcache/[\w/+=.@-]+")
_KMS_KEY = re.compile(r"arn:aws(?:-\w+)*:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+")
_ECR_HOST = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z]{2,4}(?:-[a-z]+)+-[0-9])\.[a-z0-9.-]+(?::[0-9]+)?"
)
"""An account's ECR in a region, in any of AWS's partitions and forms (`.dkr.ecr.`, `.dkr-ecr.`, FIPS)."""


def _prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError("expected 2 to 30 lower-case letters, digits and . _ - /")
    return value


def _secret(value: str) -> str:
    if not _SECRET.fullmatch(value):
        raise ValueError(
            "expected the ARN of a Secrets Manager secret named ecr-pullthroughcache/...: ECR takes no other"
        )
    return value


class PullThroughCache(Model):
    """How ECR caches one registry."""

    prefix: Annotated[str, AfterValidator(_prefix)] | None = Field(
        None, description="First part of the cached repositories' names. Default: the registry's own name."
    )
    credential: Annotated[str, AfterValidator(_secret)] | None = Field(
        None,
        description="ARN of the secret in Secrets Manager, named ecr-pullthroughcache/..., with which ECR logs in.",
    )


class EcrRegistry(_Registry):
    """Amazon's container registry. AWS's own environment and configuration say who asks; no secret stands here."""

    kind: Literal["ecr"] = Field(description="Amazon's Elastic Container Registry.")
    repository: Repository = Field(
        description="Prefix of every image's name, such as 123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml.",
    )
    account: str = Field(
        "",
        pattern="^([0-9]{12})?$",
        description="AWS account, 12 digits. Default: the host's; needed where the host is a name of your own.",
    )
    region: str = Field("", description="AWS region. Default: the host's, as account.")
    create: bool = Field(
        default=True,
        description="Create and own the repositories and cache rules. false where another stack does, or where they "
        "are there already.",
    )
    keep_newest: int = Field(
        30,
        ge=1,
        description="Images that each repository keeps beside those that a stack exports now; older ones expire.",
    )
    kms_key: str | None = Field(
        None,
        description="ARN of the KMS key that encrypts the repositories, in their region; a repository's cannot be "
        "changed later. Default: AES-256 with AWS's own key.",
    )
    force_delete: bool = Field(
        default=False, description="Delete repositories with the images in them when the stack is destroyed."
    )
    pull_through_cache: dict[str, PullThroughCache] = Field(
        default_factory=dict,
        description="Registries that ECR caches, by name (docker.io, quay.io, ...); parents from there are then pulled "
        "through ECR.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_host(cls, values: Any) -> Any:
        """Read account and region from the host, where they are not given."""
        if not isinstance(values, Mapping) or not isinstance(values.get("repository"), str):
            return values
        host = _ECR_HOST.fullmatch(values["repository"].partition("/")[0])
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
    def _upstreams(cls, value: dict[str, PullThroughCache]) -> dict[str, PullThroughCache]:
        for name, cache in value.items():
            if name not in _UPSTREAMS:
                raise ValueError(
                    f"'{one_line(name)}' is none that ECR caches{suggest(name, _UPSTREAMS)}; "
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
                raise ValueError(f"prefix '{prefix}' is there twice: ECR has one for each registry; give another")
        return value

    @property
    def host(self) -> str:
        """``host[:port]`` of the registry."""
        return self.repository.partition("/")[0]

    @property
    def prefixes(self) -> dict[str, str]:
        """The cached registries, with the first part of their repositories' names."""
        return {name: cache.prefix or name for name, cache in self.pull_through_cache.items()}

    def owned(self, images: Iterable[str]) -> frozenset[str]:
        """Return a repository for each image, unless another stack has them."""
        return frozenset(f"{self.repository}/{image}" for image in images) if self.create else frozenset()

    @property
    def cached(self) -> Mapping[str, str]:
        """The registries that ECR caches, with where their repositories stand in it."""
        return {name: f"{self.host}/{prefix}" for name, prefix in self.prefixes.items()}

    def pulled(self, reference: str) -> str:
        """Return the name under which ECR caches a parent; the reference itself where it caches none of its kind."""
        upstream, _, rest = qualified(reference).partition("/")
        return f"{self.cached[upstream]}/{rest}" if upstream in self.cached else reference


Registry = Annotated[
    LocalRegistry | EcrRegistry | GhcrRegistry | AcrRegistry | GenericRegistry, Field(discriminator="kind")
]
