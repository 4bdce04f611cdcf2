"""Types of single values: addresses, versions, commits, sizes, labels; each with the error for a wrong one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, PlainValidator, PositiveInt

from stacks.config.model import form, matching


def check_url(value: str) -> str:
    """Return an http(s) address without a slash at its end; raises ValueError for a credential in it, or no address."""
    # Anywhere, not only before the host: a password may itself hold a slash.
    if "@" in value:
        raise ValueError(
            "an address must not carry user:password@, because build arguments stay in the image's history; "
            "give its host's login in slipway:buildSecrets"
        )
    if not re.fullmatch(r"https?://[!-~]+", value):
        raise ValueError("expected an http:// or https:// address")
    _ = urlsplit(value).port  # raises ValueError for an invalid port
    return value.rstrip("/")


_version = matching(r"[0-9A-Za-z][0-9A-Za-z.+_-]*", "a version such as 2.15.0: letters, digits and . + _ - only")
_release = matching(r"[0-9]+(\.[0-9A-Za-z+_-]+)+", "a version such as 2.15.0, beginning with a number and a dot")


def _torch_release(value: str) -> str:
    tag = re.sub(r"(?<=[0-9])[._]?(?=rc[0-9]+$)", "-", _version(value).partition("+")[0])
    if tag != value:
        raise ValueError(f"expected a release as PyTorch's tags name it, without the v: write {tag}")
    return value


def switched(check: Callable[[str], str], *, null: bool = False) -> PlainValidator:
    """Return a validator of a value that can be switched off with ``false``, in YAML or as text.

    With ``null`` it may also be null, for a default that follows from other keys.
    """

    def validate(value: Any) -> str | Literal[False] | None:
        if value is False or value == "false":
            return False
        if value is None and null:
            return None
        if value is True or not isinstance(value, str | int | float):
            raise ValueError("expected a version, or false")
        return check(str(value))

    written = str | Literal[False] | None if null else str | Literal[False]
    return PlainValidator(validate, json_schema_input_type=written)


_COMMIT = r"[0-9a-f]{7,40}"
_PINNED_RELEASE = r"[0-9]+(?:\.[0-9]+)+(?:[.-]?(?:rc|post|dev)[0-9]+)?"


def is_commit(pin: str) -> bool:
    """Return whether a pin, tag or ref names a commit, also a short one, as ``common/build/fetch-source`` reads it."""
    return bool(re.fullmatch(_COMMIT, pin))


def ref(pin: str | Literal[False]) -> str:
    """Return the tag or commit that a pin names in its repository; empty where it is switched off."""
    return "" if not pin else pin if is_commit(pin) else f"v{pin}"


def pin(pattern: str = _PINNED_RELEASE, example: str = "0.9.4") -> PlainValidator:
    """Return a validator of a commit, or a version that a pattern matches, as the upstream's tags name it."""
    expected = f"a version such as {example}, a commit of 7 to 40 digits 0-9 a-f, or false"
    return switched(matching(rf"{_COMMIT}|{pattern}", expected))


def commit_pin(why: str = "its builds do not name their release") -> PlainValidator:
    """Return a validator of a commit; ``why`` says in the error why it cannot be a version."""
    return switched(matching(_COMMIT, f"a commit of 7 to 40 digits 0-9 a-f, or false: {why}"))


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _count(value: Any) -> Any:
    # pydantic alone would read true as 1.
    if value is None or isinstance(value, bool):
        raise ValueError("expected a number of compilers, such as 4")
    return value


def _with_unit(value: Any) -> Any:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)? ?[KMGTkmgt]i?B", str(value)):
        raise ValueError("expected a size with its unit, such as 3.5 GB or 800 MiB")
    return value


def _certificate(value: str) -> str:
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----", value)
    if not blocks or "PRIVATE KEY" in value:
        raise ValueError("expected one or more PEM certificates (-----BEGIN CERTIFICATE-----) and no key")
    return "\n".join(blocks) + "\n"


def _runner_label(value: str) -> str:
    if not value.isprintable() or "," in value or value != value.strip() or not 0 < len(value.encode()) < 256:
        raise ValueError(
            "expected a runner's label, such as gpu: text of less than 256 bytes on one line, without a comma, a line "
            "break, or a space at either end"
        )
    return value


def _distinct(value: tuple[str, ...]) -> tuple[str, ...]:
    if len({label.lower() for label in value}) < len(value):
        raise ValueError("expected each only once; GitHub ignores the case of labels")
    return value


Url = Annotated[str, AfterValidator(check_url)]
Version = Annotated[str, AfterValidator(_version)]
Release = Annotated[str, AfterValidator(_release)]
"""A version that is in no table. It is part of a download's name, so a wrong one fails in the build."""
SwitchedVersion = Annotated[str | Literal[False], switched(_version)]
SwitchedRelease = Annotated[str | Literal[False], switched(_release)]
Driver = Annotated[str, form(r"[1-9][0-9]{2}(\.[0-9]{1,3}){0,2}", "a driver of NVIDIA's such as 570.172.08, or 570")]
TorchRelease = Annotated[str, AfterValidator(_torch_release)]
"""A release of torch or of its companions: PyTorch's tag without the v, such as 2.0.1 or 2.0.1-rc1."""
DefaultedTorchRelease = Annotated[str | Literal[False] | None, switched(_torch_release, null=True)]
Certificate = Annotated[str, AfterValidator(_certificate)]
Size = Annotated[ByteSize, BeforeValidator(_with_unit, json_schema_input_type=str)]
Label = Annotated[str, AfterValidator(_runner_label)]
"""A label of runners, as GitHub takes it of a scale set and of a runner."""
Labels = Annotated[tuple[Label, ...], AfterValidator(_distinct)]
Commit = Annotated[str, form(_COMMIT, "a commit: 7 to 40 digits 0-9 a-f")]
Pin = Annotated[str | Literal[False], pin()]
CommitPin = Annotated[str | Literal[False], commit_pin()]
"""A pin that cannot be a version: Apex is 0.1 in all releases, and FlashAttention 3 has no version."""
March = Annotated[
    str,
    form(
        r"(?!native$)[a-z0-9][a-z0-9.+_-]*",
        "a processor such as haswell or armv8.2-a; native would be the builder's own",
    ),
]
"""A processor, as gcc's ``-march`` names it."""
ArchList = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[str])]
"""Compute capabilities, as text or as a list."""
JobCount = Annotated[PositiveInt | None, BeforeValidator(_count), Field(validate_default=False)]
"""How many compilers run at once. The default, None, leaves it to the build; a stack's file cannot set it to null."""


_ENGINE: Final = "expected ssh://[user@]host[:port], unix:///path/of/socket or tcp://host:port"


def _engine_address(value: str) -> str:
    url = urlsplit(value)
    try:
        port = url.port
    except ValueError:
        raise ValueError(_ENGINE) from None
    if url.password is not None:
        raise ValueError("a password would be in the stack's file and in errors: give ssh a key")
    if url.scheme == "unix" and url.netloc == "" and url.path.startswith("/"):
        return value
    # A host that begins with a dash would be an option of ssh.
    fits = url.scheme in ("ssh", "tcp") and url.hostname and not url.hostname.startswith("-") and not url.query
    if not fits or (url.scheme == "tcp" and (not port or url.path)) or (url.username or "").startswith("-"):
        raise ValueError(_ENGINE)
    return value


def listed(value: Any) -> Any:
    """Return a text as a list of it alone."""
    return [value] if isinstance(value, str) else value


def _pool(value: Sequence[str]) -> Sequence[str]:
    if not value:
        raise ValueError("has no engine: give one, or leave the platform out")
    if len(set(value)) < len(value):
        raise ValueError("one of them is repeated; remove it")
    return value


Engine = Annotated[str, AfterValidator(_engine_address)]
"""The address of a Docker engine."""

Engines = Annotated[
    tuple[Engine, ...], AfterValidator(_pool), BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...])
]
"""The engines that share a platform's images; one may be given without a list."""


_Platforms = Literal["linux/amd64", "linux/arm64"]
PLATFORMS: Final = get_args(_Platforms)
"""The platforms that a stack may have."""


def _without_variant(value: object) -> object:
    """Refuse the variant that the architectures here always have (containerd, platforms/database.go)."""
    plain = posixpath.dirname(str(value))
    if plain in PLATFORMS:
        raise ValueError(f"images of {plain} are for all its variants here: expected {plain}")
    return value


Platform = Annotated[_Platforms, BeforeValidator(_without_variant)]
"""A platform of images, as Docker names it."""
