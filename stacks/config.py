"""The models of a stack's configuration: every key, its type, its default and what it means.

Each flavor's module in :mod:`stacks.flavors` adds its own keys to :class:`StackConfig`. Keys are camelCase in YAML
and snake_case here. All models are frozen and refuse unknown keys.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from stacks.errors import SlipwayError, one_line, suggest
from stacks.source import NAMESPACE
from stacks.tags import check_tail
from stacks.versions import Incompatible
from stacks.versions.pytorch import check_companion, final_version, torch_release

Package = Literal["vision", "audio"]
"""The companions of torch that images carry."""

REGISTRY_VARIABLE = "SLIPWAY_REGISTRY"
"""Environment variable with the local registry's ``host:port``; set by the toolchain."""

ENCRYPTED = "[secret]"
"""What stands for a value that Pulumi encrypted, outside its programs."""

MIRRORS_VARIABLE = "SLIPWAY_MIRRORS"
"""Environment variable with a JSON ``mirrors`` block that applies where the stack's own says nothing."""


class Model(BaseModel):
    """What every configuration model shares: frozen, camelCase outside, unknown keys refused with the nearest."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
        validate_default=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in values:
                if key not in known:
                    raise ValueError(
                        f"unknown key '{one_line(key)}'{suggest(key, known)}; the keys here are: {', '.join(known)}"
                    )
        return values


# The grammar of image references is that of the OCI distribution specification.
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_NAME}(?:/{_NAME})*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PATH}")
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_PATH}(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?P<digest>@sha256:[0-9a-f]{{64}})?"
)


def _host(value: str) -> str:
    if not re.fullmatch(_HOST, value):
        raise ValueError("expected host:port, such as 127.0.0.1:5000")
    return value


def _path(value: str) -> str:
    if not re.fullmatch(_PATH, value):
        raise ValueError("expected a lower-case path of letters, digits and . _ - /, such as acme/images")
    return value


def _repository(value: str) -> str:
    host, slash, _ = value.partition("/")
    if not slash or not _REPOSITORY.fullmatch(value) or not ("." in host or ":" in host or host == "localhost"):
        raise ValueError("expected a host and a lower-case path without a tag, such as ghcr.io/acme/images")
    return value


def check_reference(value: str) -> str:
    """Return an image's reference; raises ValueError where it is none, or has neither tag nor digest."""
    match = _REFERENCE.fullmatch(value)
    if not match or not (match["tag"] or match["digest"]):
        raise ValueError("expected an image reference with a tag or a digest, such as debian:bookworm-slim")
    return value


def _url(value: str) -> str:
    # Anywhere, not only before the host: a password may itself hold a slash.
    if "@" in value:
        raise ValueError(
            "an address must not carry user:password@, because build arguments stay in the image's history; "
            "use a mirror that needs no credential"
        )
    if not re.fullmatch(r"https?://[!-~]+", value):
        raise ValueError("expected an http:// or https:// address")
    return value.rstrip("/")


def _version(value: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+_-]*", value):
        raise ValueError("expected a version such as 2.15.0: letters, digits and . + _ - only")
    return value


def switched(check: Callable[[str], str]) -> PlainValidator:
    """Return a validator of a value that can be switched off with ``false``, in YAML or as text; null stays null."""

    def validate(value: Any) -> str | Literal[False] | None:
        if value is False or value == "false":
            return False
        if value is None:
            return None
        if value is True or not isinstance(value, str | int | float):
            raise ValueError("expected a version, or false")
        return check(str(value))

    return PlainValidator(validate)


def _with_unit(value: Any) -> Any:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)? ?[KMGTkmgt]i?B", str(value)):
        raise ValueError("expected a size with its unit, such as 3.5 GB or 800 MiB")
    return value


def _certificate(value: str) -> str:
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----", value)
    if not blocks or "PRIVATE KEY" in value:
        raise ValueError("expected one or more PEM certificates (-----BEGIN CERTIFICATE-----) and no key")
    return "\n".join(blocks) + "\n"


Host = Annotated[str, AfterValidator(_host)]
Path = Annotated[str, AfterValidator(_path)]
Repository = Annotated[str, AfterValidator(_repository)]
Reference = Annotated[str, AfterValidator(check_reference)]
Url = Annotated[str, AfterValidator(_url)]
Version = Annotated[str, AfterValidator(_version)]
SwitchedVersion = Annotated[str | Literal[False] | None, switched(_version)]
Certificate = Annotated[str, AfterValidator(_certificate)]
Size = Annotated[ByteSize, BeforeValidator(_with_unit)]


class LocalRegistry(Model):
    """A registry on this machine, without credentials: the one the toolchain starts, or another on loopback."""

    kind: Literal["local"] = Field("local", description="A registry on this machine, without credentials.")
    address: Host = Field(
        default_factory=lambda: os.environ.get(REGISTRY_VARIABLE) or "127.0.0.1:5000",
        description=f"host:port of the registry. Default: ${REGISTRY_VARIABLE}, else 127.0.0.1:5000.",
    )
    path: Path = Field("slipway", description="Path on the registry below which the repositories stand.")

    @property
    def repository(self) -> str:
        """The prefix of every image's name."""
        return f"{self.address}/{self.path}"


class GenericRegistry(Model):
    """A registry that takes a user name and a password; without them the machine's own Docker login serves."""

    VARIABLES: ClassVar[Mapping[str, str]] = {
        "username": "SLIPWAY_REGISTRY_USERNAME",
        "password": "SLIPWAY_REGISTRY_PASSWORD",
    }
    """Environment variables that stand in for what the configuration leaves out."""

    kind: Literal["generic"] = Field(description="Any registry that takes a user name and a password.")
    repository: Repository = Field(description="Prefix of every image's name, such as harbor.example.com/ml.")
    username: str | None = Field(
        None, description="User name. Default: $SLIPWAY_REGISTRY_USERNAME, else the machine's own Docker login."
    )
    password: SecretStr | None = Field(
        None,
        description="Password or token, always a secret. Default: $SLIPWAY_REGISTRY_PASSWORD, else as username.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Any) -> Any:
        """Fill in from the environment, if both are there then: a fork's job has a user name, but no secrets."""
        if not isinstance(values, Mapping):
            return values
        found = {key: values.get(key) or os.environ.get(variable) for key, variable in cls.VARIABLES.items()}
        return {**values, **found} if all(found.values()) else values

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            raise ValueError(
                f"'{missing}' is missing: give username and password (or ${self.VARIABLES[missing]}), or neither "
                "to use the machine's Docker login"
            )
        return self


class GhcrRegistry(GenericRegistry):
    """GitHub's container registry; in GitHub Actions the job's own actor and token are the default."""

    VARIABLES: ClassVar[Mapping[str, str]] = {"username": "GITHUB_ACTOR", "password": "GITHUB_TOKEN"}

    kind: Literal["ghcr"] = Field(description="GitHub's container registry.")  # type: ignore[assignment]
    repository: Repository = Field(description="Prefix of every image's name, such as ghcr.io/acme/images.")
    username: str | None = Field(
        None, description="GitHub user name. Default: $GITHUB_ACTOR, else the machine's own Docker login."
    )
    password: SecretStr | None = Field(
        None,
        description="Token that may write packages, always a secret. Default: $GITHUB_TOKEN, else as username.",
    )


Registry = Annotated[LocalRegistry | GenericRegistry | GhcrRegistry, Field(discriminator="kind")]


class Mirrors(Model):
    """Where a build fetches from instead of the public addresses; no address may carry a credential."""

    images: dict[str, str] = Field(
        default_factory=dict,
        description="Parent images: a registry or repository (docker.io, docker.io/nvidia, docker.io/library/debian) "
        "to the prefix that replaces it. The longest match wins.",
    )
    apt: Url | None = Field(None, description="Base address of the distribution's archive.")
    python_index: Url | None = Field(None, description="Python package index (PEP 503).")
    torch_index: Url | None = Field(
        None,
        description="Index of torch, torchvision, torchaudio and what they pin. Default: the Python index.",
    )
    git: Url | None = Field(None, description="Base address that stands in for https://github.com.")
    downloads: dict[str, Url] = Field(
        default_factory=dict,
        description="Downloads: the public address that something stands below, to the address that replaces it. "
        "The longest match wins.",
    )
    ca_certificate: Certificate | None = Field(
        None,
        description="PEM of further root certificates that a build trusts, as behind an inspecting proxy.",
    )

    @field_validator("downloads")
    @classmethod
    def _addresses(cls, value: dict[str, str]) -> dict[str, str]:
        return {_url(source): target for source, target in value.items()}

    @field_validator("images")
    @classmethod
    def _prefixes(cls, value: dict[str, str]) -> dict[str, str]:
        for source, target in value.items():
            for side in (source, target):
                if not re.fullmatch(rf"{_HOST}(?:/{_PATH})?", side):
                    raise ValueError(f"'{one_line(side)}': expected a registry or repository without a tag")
        return value

    def image(self, reference: str) -> str:
        """Return where to pull ``reference`` from: itself, or the same name and tag below a mirror's prefix."""
        full = qualified(reference)
        for source in sorted(self.images, key=len, reverse=True):
            if full.startswith(source) and full[len(source) : len(source) + 1] in {"/", ":", "@"}:
                return self.images[source] + full[len(source) :]
        return reference


def qualified(reference: str) -> str:
    """Return a reference with its registry and path written out, as Docker reads it: docker.io/library/debian:tag."""
    host, slash, _ = reference.partition("/")
    if not slash:
        return f"docker.io/library/{reference}"
    return reference if "." in host or ":" in host or host == "localhost" else f"docker.io/{reference}"


class Torch(Model):
    """Which torch, and which torchvision and torchaudio with it."""

    version: Version = Field("2.14.1", description="Release of torch.")
    vision: Version | None = Field(
        None, description="Release of torchvision. Default: the newest that goes with this torch."
    )
    audio: SwitchedVersion = Field(
        None, description="Release of torchaudio, or false for none. Default: the newest that goes with this torch."
    )

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        torch_release(self.version)
        for package in get_args(Package):
            given = getattr(self, package)
            if given:
                check_companion(self.version, package, given)
            elif given is None and getattr(torch_release(self.version), package) is None:
                raise ValueError(f"no torch{package} goes with torch {self.version}; choose another release of torch")
        return self

    def companion(self, package: Package) -> str | None:
        """Return the companion's release: the one given, else the newest that goes with this torch; None for none."""
        given: str | Literal[False] | None = getattr(self, package)
        newest: str | None = getattr(torch_release(self.version), package)
        return newest if given is None else given or None


def check_published(torch: Torch) -> None:
    """Refuse release candidates where published wheels are installed: no index holds them.

    Raises:
        ValueError: naming the release to take.
    """
    versions = {"version": torch.version, "vision": torch.companion("vision"), "audio": torch.companion("audio")}
    for key, version in versions.items():
        if version and final_version(version) != version:
            raise ValueError(f"{key} '{version}': no index holds release candidates; take {final_version(version)}")


class StackConfig(Model):
    """What every stack may say, whatever its flavor."""

    flavor: str = Field(description="Which family of images the stack builds.")
    platform: Literal["linux/amd64", "linux/arm64"] = Field(
        "linux/amd64", description="Platform of every image of the stack."
    )
    publish: bool = Field(
        default=True, description="Push the images. false builds the whole chain and leaves it in the engine."
    )
    tag_suffix: Annotated[str, AfterValidator(check_tail)] | None = Field(
        None, description="Last part of the tags, to tell apart stacks that differ in what no field of a tag names."
    )
    registry: Registry = Field(default_factory=LocalRegistry, description="Where the images are pushed.")
    mirrors: Mirrors = Field(default_factory=Mirrors, description="Where builds fetch from instead.")
    budgets: dict[str, Size] = Field(
        default_factory=dict,
        description="Most compressed bytes that an image may have, by its name: {torch: 3.5 GB}. Above it, "
        "`python -m stacks diff` fails.",
    )


def from_pulumi(values: Mapping[str, str]) -> dict[str, Any]:
    """Turn the configuration that Pulumi hands a program (full keys, JSON for objects) into our own keys.

    Raises:
        SlipwayError: a value that starts like an object is not JSON.
    """
    prefix = f"{NAMESPACE}:"
    result: dict[str, Any] = {}
    for key, value in values.items():
        if not key.startswith(prefix):
            continue
        name = key[len(prefix) :]
        if value[:1] in {"{", "["}:
            try:
                result[name] = json.loads(value)
            except json.JSONDecodeError as error:
                raise SlipwayError(f"{key}: '{one_line(value)}' is not JSON: {error.msg}") from None
        else:
            result[name] = value
    return result


ConfigT = TypeVar("ConfigT", bound=StackConfig)


def build(model: type[ConfigT], values: Mapping[str, Any], where: str) -> ConfigT:
    """Make a stack's model from its values, mirrors from the environment below its own.

    Raises:
        SlipwayError: one line for each mistake, starting with ``where`` and the full key.
    """
    merged = {key: _without_secure(value) for key, value in values.items()}
    below = _mirrors_below()
    own = merged.get("mirrors") or {}
    if below and isinstance(own, Mapping):
        for key in ("images", "downloads"):
            entries = own.get(key) or {}
            if key in below and isinstance(entries, Mapping):
                own = {**own, key: {**below[key], **entries}}
        merged["mirrors"] = {**below, **own}
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, where))) from None


def _mirrors_below() -> dict[str, Any]:
    """Return the environment's mirrors, as a stack would write them."""
    text = os.environ.get(MIRRORS_VARIABLE)
    if not text:
        return {}
    try:
        return Mirrors.model_validate_json(text).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, f"${MIRRORS_VARIABLE}"))) from None


def _without_secure(value: Any) -> Any:
    """Replace what Pulumi encrypted (``{secure: ...}``), unreadable outside a program, by a placeholder."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return ENCRYPTED
        return {key: _without_secure(item) for key, item in value.items()}
    return [_without_secure(item) for item in value] if isinstance(value, list) else value


_SECRETS = {"password", "token"}


def _explain(error: ValidationError, where: str) -> list[str]:
    return [_line(detail, where) for detail in error.errors(include_url=False)]


def _line(detail: ErrorDetails, where: str) -> str:
    context = detail.get("ctx", {})
    if isinstance(context.get("error"), Incompatible):  # it names the field and the value itself
        return f"{where}: {NAMESPACE}:{context['error']}"
    # A discriminated union puts the tag into the location; the user wrote no such key.
    keys = [one_line(str(part)) for part in detail["loc"] if part not in {"local", "generic", "ghcr"}]
    name = f"{NAMESPACE}:" + ".".join(keys) if keys else "config"
    value = detail["input"]
    said = detail["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(value, Mapping | Model) or _SECRETS & set(keys) else f" '{one_line(value)}':"
    match detail["type"]:
        case "missing":
            shown, said = "", "is required"
        case "union_tag_not_found":
            shown, said = "", f"{context['discriminator']} is required"
        case "union_tag_invalid":
            name, shown = f"{name}.kind", f" '{one_line(context['tag'])}':"  # by which unions here are told apart
            allowed = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            said = f"expected one of {', '.join(allowed)}{suggest(context['tag'], allowed)}"
        case _ if value is None:
            shown, said = "", "has no value: write one, or leave the key out"
        case "model_type" | "model_attributes_type" | "dict_type":
            said = "expected a mapping of keys to values"
    return f"{where}: {name}:{shown} {said[:1].lower()}{said[1:]}"
