"""Types of single values: addresses, versions, certificates, sizes and labels, each with the error for a wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ByteSize, PlainValidator


def check_url(value: str) -> str:
    """Return an http(s) address without a slash at its end; raises ValueError for a credential in it, or no address."""
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


Url = Annotated[str, AfterValidator(check_url)]
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
