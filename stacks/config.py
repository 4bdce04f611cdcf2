"""The models of a stack's configuration: every key, its type, its default and what it means.

Each flavor's module in :mod:`stacks.flavors` adds its own keys to :class:`StackConfig`. Keys are camelCase in YAML
and snake_case here. All models are frozen and refuse unknown keys.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from stacks import registries, runners
from stacks.errors import SlipwayError, one_line, suggest
from stacks.model import Model, check_prefixes, covering, named_by, qualified
from stacks.registries import LocalRegistry, Registry
from stacks.runners import KubernetesRunners, Runners
from stacks.signing import Signer, Signing
from stacks.source import NAMESPACE
from stacks.tags import check_extra, check_tail
from stacks.versions import Incompatible
from stacks.versions.pytorch import check_companion, final_version, torch_release

Package = Literal["vision", "audio"]
"""The companions of torch that images carry."""

_MOST_MOVING = 3
"""Extra tags in ECR."""

ENCRYPTED = "[secret]"
"""What stands for a value that Pulumi encrypted, outside its programs."""

MIRRORS_VARIABLE = "SLIPWAY_MIRRORS"
"""Environment variable with a JSON ``mirrors`` block that applies where the stack's own says nothing."""


def _url(value: str) -> str:
    # Anywhere, not only before the host: a password may itself hold a slash.
    if "@" in value:
        raise ValueError(
            "an address must not carry user:password@, because build arguments stay in the image's history; "
            "use a mirror that needs no credential"
        )
    if not re.fullmatch(r"https?://[!-~]+", value):
        raise ValueError("expected an http:// or https:// address")
    _ = urlsplit(value).port  # a ValueError for what is none
    return value.rstrip("/")


def _label(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise ValueError("expected a runner's label, such as self-hosted: letters, digits and . _ - only")
    return value


def _version(value: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+_-]*", value):
        raise ValueError("expected a version such as 2.15.0: letters, digits and . + _ - only")
    return value


def _release(value: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9A-Za-z+_-]+)+", value):
        raise ValueError("expected a version such as 2.15.0, with a number and a dot at its beginning")
    return value


def _torch_release(value: str) -> str:
    tag = re.sub(r"(?<=[0-9])[._]?(?=rc[0-9]+$)", "-", _version(value).partition("+")[0])
    if tag != value:
        raise ValueError(f"expected a release as PyTorch's tags name it, without the v: write {tag}")
    return value


def switched(check: Callable[[str], str], *, null: bool = False) -> PlainValidator:
    """Return a validator of a value that can be switched off with ``false``, in YAML or as text.

    With ``null`` it may also be null, which stands for a default that follows from other keys.
    """

    def validate(value: Any) -> str | Literal[False] | None:
        if value is False or value == "false":
            return False
        if value is None and null:
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


Url = Annotated[str, AfterValidator(_url)]
Version = Annotated[str, AfterValidator(_version)]
Release = Annotated[str, AfterValidator(_release)]
"""A version that no table knows, and that is fetched by its name: words that name none would fail in the build."""
SwitchedVersion = Annotated[str | Literal[False], switched(_version)]
SwitchedRelease = Annotated[str | Literal[False], switched(_release)]
TorchRelease = Annotated[str, AfterValidator(_torch_release)]
"""A release of torch or of its companions: 2.0.1 or 2.0.1-rc1, of which the tag is v2.0.1-rc1."""
DefaultedTorchRelease = Annotated[str | Literal[False] | None, switched(_torch_release, null=True)]
Certificate = Annotated[str, AfterValidator(_certificate)]
Size = Annotated[ByteSize, BeforeValidator(_with_unit)]
Label = Annotated[str, AfterValidator(_label)]


class Mirrors(Model):
    """Where a build fetches from instead of the public addresses; no address may carry a credential."""

    images: dict[str, str] = Field(
        default_factory=dict,
        description="Parent images: a registry or repository (docker.io, docker.io/nvidia, docker.io/library/debian) "
        "to the prefix that replaces it. The longest match wins.",
    )
    apt: Url | None = Field(
        None,
        description="What stands before /debian, /debian-security, /ubuntu or /ubuntu-ports in the address of a mirror "
        "of the distribution's archive. Default: the parent's.",
    )
    python_index: Url | None = Field(None, description="Python package index (PEP 503). Default: pip's own.")
    torch_index: Url | None = Field(
        None,
        description="The one index of torch, torchvision and torchaudio; what they need comes from it or the Python "
        "index. Default: the Python index.",
    )
    git: Url | None = Field(None, description="Base address that stands in for https://github.com, of submodules too.")
    downloads: dict[str, Url] = Field(
        default_factory=dict,
        description="Downloads: the public address that something stands below, to the address that replaces it. "
        "The longest match wins.",
    )
    ca_certificate: Certificate | None = Field(
        None,
        description="PEM of further root certificates that a build and its image trust, as behind an inspecting proxy.",
    )

    @field_validator("downloads")
    @classmethod
    def _addresses(cls, value: dict[str, str]) -> dict[str, str]:
        return {_url(source): target for source, target in value.items()}

    @field_validator("images")
    @classmethod
    def _prefixes(cls, value: dict[str, str]) -> dict[str, str]:
        check_prefixes(value)
        for target in value.values():
            check_prefixes([target])
        return value

    def image(self, reference: str) -> str:
        """Return where to pull ``reference`` from: itself, or the same name and tag below a mirror's prefix."""
        found = covering(self.images, reference)
        return self.images[found[0]] + found[1] if found else reference


class Torch(Model):
    """Which torch, and which torchvision and torchaudio with it."""

    version: TorchRelease = Field("2.14.1", description="Release of torch.")
    vision: TorchRelease | None = Field(
        None, description="Release of torchvision. Default: the newest that goes with this torch."
    )
    audio: DefaultedTorchRelease = Field(
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
    runs_on: tuple[Label, ...] = Field(
        (), description="Labels of the GitHub Actions runners that publish the stack. Default: GitHub's own."
    )
    runners: Runners | None = Field(None, description="Machines for GitHub's jobs, and to build images on.")
    build_on: Literal["engine", "runners"] = Field(
        "engine",
        description="Where images are built: the machine's Docker engine, or the build service of the runners.",
    )
    budgets: dict[str, Size] = Field(
        default_factory=dict,
        description="Most compressed bytes that an image may have, by its name: {torch: 3.5 GB}. Above it, "
        "`python -m stacks diff` fails.",
    )
    extra_tags: tuple[Annotated[str, AfterValidator(check_extra)], ...] = Field(
        (),
        description="Tags that each image gets beside its own and that move to the newest, such as latest. On another "
        "branch than main its name stands before them.",
    )
    signing: Signing | None = Field(
        None, description="How images are signed once they are pushed, and what is attested of them. Default: not."
    )
    trust: dict[str, Signer] = Field(
        default_factory=dict,
        description="Whose signature parents that others publish must have, by registry or repository; the longest "
        "match wins.",
    )

    @property
    def doubts(self) -> list[str]:
        """One line for each thing that the tables know neither to be possible nor not: what to warn of."""
        return []

    @field_validator("extra_tags")
    @classmethod
    def _movable(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("one of them is there twice; leave one out")
        if len(value) > _MOST_MOVING and getattr(info.data.get("registry"), "kind", "") == "ecr":
            raise ValueError(
                f"at most {_MOST_MOVING} in ECR: it lets five kinds of tags move (ECR user guide, tag immutability), "
                "two of which are Slipway's own and signatures'"
            )
        return value

    @field_validator("trust")
    @classmethod
    def _prefixes(cls, value: dict[str, Signer]) -> dict[str, Signer]:
        check_prefixes(value)
        return value

    @field_validator("registry")
    @classmethod
    def _login(cls, value: Registry, info: ValidationInfo) -> Registry:
        if info.data.get("publish"):
            value.check_half()
        return value

    @field_validator("build_on")
    @classmethod
    def _built(cls, value: str, info: ValidationInfo) -> str:
        if value == "runners" and "runners" in info.data:
            runners = info.data["runners"]
            if runners is None or runners.build is None:
                raise ValueError("the stack has no build service: give it runners with runners.build")
            if isinstance(runners, KubernetesRunners) and runners.build.rootless:
                raise ValueError("runners.build.rootless has no Docker API, which images are built with: leave one out")
            platform = info.data.get("platform")
            if platform and isinstance(runners, KubernetesRunners) and (why := runners.cannot_run(platform)):
                raise ValueError(f"{why}: leave one out")
            registry = info.data.get("registry")
            if info.data.get("publish") and registry and registry.own:
                raise ValueError(
                    f"{registry.address} is this machine's own registry, which runners do not reach: give "
                    "slipway:registry another, or publish: false"
                )
        return value

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports of the registry and the mirrors, where they are named: what a build reaches beside the web.

        No build elsewhere reaches this machine's own registry, and each machine has it at another port.
        """
        mirrors = self.mirrors
        hosts = [*([] if self.registry.own else [self.registry.repository]), *mirrors.images.values()]
        urls = [mirrors.apt, mirrors.python_index, mirrors.torch_index, mirrors.git, *mirrors.downloads.values()]
        found = [urlsplit(f"//{host}").port for host in hosts] + [urlsplit(url).port for url in urls if url]
        return tuple(sorted({port for port in found if port}))

    def pulled(self, reference: str) -> str:
        """Return where a build pulls an outside parent from: a mirror, and what the registry caches through it.

        Without pushing nobody is logged in to the registry, so nothing is pulled through it.
        """
        mirrored = self.mirrors.image(reference)
        return self.registry.pulled(mirrored) if self.publish else mirrored

    def public(self, pulled: str) -> list[str]:
        """Return the names for which :meth:`pulled` gives this one: public ones before those of mirrors and caches."""
        names = [pulled]
        elsewhere = [*self.mirrors.images.items(), *self.registry.cached.items()]
        for name in names:
            for source, target in elsewhere:
                found = covering([target], name)
                public = source + found[1] if found else name
                if public not in names and qualified(self.pulled(public)) == qualified(pulled):
                    names.append(public)
        return names[::-1]


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
    if mistakes := [f"{where}: {line}" for line in _no_text(values, ())]:
        raise SlipwayError("\n".join(mistakes))
    merged = {key: without_secure(value) for key, value in values.items()}
    below = _mirrors_below()
    own = merged.get("mirrors") or {}
    if below and isinstance(own, Mapping):
        for key, named in _NAMED.items():
            entries = own.get(key) or {}
            if key in below and isinstance(entries, Mapping):
                names = {name for entry in entries for name in named(str(entry))}
                kept = {entry: to for entry, to in below[key].items() if names.isdisjoint(named(entry))}
                own = {**own, key: {**kept, **entries}}
        merged["mirrors"] = {**below, **own}
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, where))) from None


def _no_text(value: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each key in a value, itself at ``keys``, that is no text, as only a program can write them."""
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(key, str):
            yield from _no_text(item, (*keys, key))
        else:
            yield f"{_full(keys)}: the key '{one_line(key)}' is no text: quote it"
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        yield from _no_text(item, (*keys, str(index)))


_NAMED: Mapping[str, Callable[[str], tuple[str, ...]]] = {"images": named_by, "downloads": lambda address: (address,)}
"""The mirrors that are a mapping: by key, what an entry stands for, however it is spelled."""


def _mirrors_below() -> dict[str, Any]:
    """Return the environment's mirrors, as a stack would write them."""
    text = os.environ.get(MIRRORS_VARIABLE)
    if not text:
        return {}
    try:
        return Mirrors.model_validate_json(text).model_dump(by_alias=True, exclude_unset=True)
    except ValidationError as error:
        raise SlipwayError("\n".join(_explain(error, f"${MIRRORS_VARIABLE}"))) from None


def without_secure(value: Any) -> Any:
    """Replace what Pulumi encrypted (``{secure: ...}``), unreadable outside a program, by a placeholder."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return ENCRYPTED
        return {key: without_secure(item) for key, item in value.items()}
    return [without_secure(item) for item in value] if isinstance(value, list) else value


_TAGS = {*registries.KINDS, *runners.KINDS}
"""What pydantic names between a key that is one of several models and the key in it."""

_SECRETS = {"kubeconfig", "password", "privateKey", "secret", "token", "webhookSecret"}


def _full(keys: Sequence[str]) -> str:
    """Return a key as it is written in a stack's file; the file's block of keys for none."""
    return f"{NAMESPACE}:" + ".".join(keys) if keys else "config"


def _explain(error: ValidationError, where: str) -> list[str]:
    return [_line(detail, where) for detail in error.errors(include_url=False)]


def _line(detail: ErrorDetails, where: str) -> str:
    context = detail.get("ctx", {})
    if isinstance(context.get("error"), Incompatible):  # it names the field and the value itself
        return f"{where}: {NAMESPACE}:{context['error']}"
    # A discriminated union puts the tag into the location; the user wrote no such key.
    keys = [one_line(str(part)) for part in detail["loc"] if part not in _TAGS]
    name = _full(keys)
    value = detail["input"]
    said = detail["msg"].removeprefix("Value error, ")
    hidden = isinstance(value, Mapping | Model) or _SECRETS & set(keys) or "PRIVATE KEY" in str(value)
    shown = "" if hidden else f" '{one_line(value)}':"
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
