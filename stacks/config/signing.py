"""``slipway:signing`` and ``slipway:trust``: who signs what is pushed, and whose signature outside parents must have.

cosign does the signing. Who signs is known by a key, or, without one, by an identity that an OpenID Connect issuer
vouches for, such as a job of GitHub Actions. No private key stands here: a key is named by where cosign finds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from stacks.config.model import Model
from stacks.references import covering

_KMS = r"(awskms|azurekms|gcpkms|hashivault)://[!-~]+"
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?")


def _key(value: str) -> str:
    if "PRIVATE KEY" in value:
        raise ValueError("a private key must not stand in a stack's file: give its path, env://NAME or a KMS's address")
    if not re.fullmatch(rf"env://[A-Za-z_][A-Za-z0-9_]*|{_KMS}|[^:\s]+", value):
        raise ValueError(
            "expected a file's path, env://NAME, or a key of a KMS: awskms://, azurekms://, gcpkms://, hashivault://"
        )
    return value


def _public_key(value: str) -> str:
    if not re.fullmatch(_KMS, value) and not _PEM.fullmatch(value):
        raise ValueError("expected a public key as PEM (-----BEGIN PUBLIC KEY-----), or the address of one in a KMS")
    return value


class Signer(Model):
    """Whose signature counts: a key's, or an identity's that an issuer vouches for."""

    public_key: Annotated[str, AfterValidator(_public_key)] | None = Field(
        None, description="Public key as PEM, or its address in a KMS."
    )
    identity: str | None = Field(
        None,
        description="Without a key: who signs, as the certificate names it, such as "
        "https://github.com/acme/images/.github/workflows/up.yml@refs/heads/main.",
    )
    issuer: str | None = Field(
        None, description="Who vouches for the identity, such as https://token.actions.githubusercontent.com."
    )
    transparency_log: bool = Field(
        default=True, description="Whether the signature is in Sigstore's public log; without a key it always is."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if (self.identity is None) != (self.issuer is None):
            missing = "issuer" if self.issuer is None else "identity"
            raise ValueError(f"'{missing}' is missing: identity and issuer go together")
        if (self.public_key is None) == (self.identity is None):
            raise ValueError("give publicKey, or identity and issuer: who signs is known by one of the two")
        if self.identity and not self.transparency_log:
            raise ValueError("transparencyLog: without a key the log is what proves when it was signed; leave it out")
        return self

    @property
    def who(self) -> str:
        """Who signs, in words."""
        if self.identity:
            return f"{self.identity} (by {self.issuer})"
        return "public key " + "".join(
            line for line in str(self.public_key).splitlines() if not line.startswith("-----")
        )

    def as_signer(self) -> dict[str, Any]:
        """Return who signs as a stack's YAML says it, and nothing of how."""
        return self.model_dump(by_alias=True, exclude_none=True, include=set(Signer.model_fields))


class Signing(Signer):
    """How images are signed after a push, and what is said of them under that signature."""

    key: Annotated[str, AfterValidator(_key)] | None = Field(
        None,
        description="Where cosign finds the private key: a file's path, env://NAME, or a key of a KMS "
        "(awskms://, azurekms://, gcpkms://, hashivault://). Default: none, signed as the job's own identity.",
    )
    transparency_log: bool = Field(
        default=False, description="Record signatures made with a key in Sigstore's public log; those without are."
    )
    sbom: bool = Field(default=True, description="Attest what each image consists of, as Syft finds it.")
    provenance: bool = Field(default=True, description="Attest source, revision, date, arguments and parents.")

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, values: Any) -> Any:
        """Fill in what follows: a KMS is asked for the public half of its key, and an identity is always in the log."""
        if not isinstance(values, Mapping):
            return values
        key = values.get("key")
        implied: dict[str, Any] = {}
        if isinstance(key, str) and re.fullmatch(_KMS, key):
            implied["publicKey"] = key
        if values.get("identity"):
            implied["transparencyLog"] = True
        return {**implied, **values}

    @model_validator(mode="after")
    def _key_and_public_key(self) -> Self:
        if self.identity and self.key:
            raise ValueError("give key, or identity and issuer: an image is signed by one of the two")
        if self.public_key and not self.key:
            raise ValueError("'key' is missing: where cosign finds the private key that goes with publicKey")
        return self


def trusted(trust: Mapping[str, Signer], reference: str) -> Signer | None:
    """Return whose signature an image must have, by the longest of the registries and repositories that have it."""
    found = covering(trust, reference)
    return trust[found[0]] if found else None
