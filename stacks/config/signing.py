"""``slipway:signing`` and ``slipway:trust``: the signer of the images, and the signers of outside parents.

cosign signs. A signer is a key, or an identity that an OpenID Connect issuer vouches for, such as a job of GitHub
Actions. A stack's file holds no private key, only the place where cosign reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from containers.registry.reference import covering
from stacks.config.model import Line, Model

_KMS = r"(awskms|azurekms|gcpkms|hashivault)://[!-~]+"
_WORKFLOW = re.compile(r"https://[^/]+/([^/]+/[^/]+)/\.github/workflows/[^/@]+@(refs/[!-~]+|[0-9a-f]{40})")
"""The identity of a job of GitHub Actions: the workflow that it is written in, and that workflow's ref or commit.

In a called workflow, this is the called one, whoever calls it (sigstore/fulcio v1.8.8,
pkg/identity/github/principal.go, line 198). The certificate has the caller's repository and ref in extensions of their
own (lines 208 and 209).
"""
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?")


def _key(value: str) -> str:
    if "PRIVATE KEY" in value:
        raise ValueError("a stack's file must hold no private key: give its path, env://NAME or a KMS's address")
    if not re.fullmatch(rf"env://[A-Za-z_][A-Za-z0-9_]*|{_KMS}|[^:\s]+", value):
        raise ValueError(
            "expected a file's path, env://NAME, or a key of a KMS: awskms://, azurekms://, gcpkms://, hashivault://"
        )
    return value


def _public_key(value: str) -> str:
    if not re.fullmatch(_KMS, value) and not _PEM.fullmatch(value):
        raise ValueError("expected a public key as PEM (-----BEGIN PUBLIC KEY-----), or the address of one in a KMS")
    return value


class SignerConfig(Model):
    """A signer: a key, or an identity that an issuer vouches for."""

    public_key: Annotated[str, AfterValidator(_public_key)] | None = Field(
        None, description="Public key as PEM, or its address in a KMS."
    )
    identity: Line | None = Field(
        None,
        description="Without a key: the signer's identity in the certificate, such as "
        "https://github.com/acme/images/.github/workflows/up.yml@refs/heads/main.",
    )
    issuer: Line | None = Field(
        None, description="OpenID Connect issuer of the identity, such as https://token.actions.githubusercontent.com."
    )
    repository: str | None = Field(
        None,
        pattern=r"^[\w.-]+/[\w.-]+$",
        description="Without a key, for a workflow of GitHub that other repositories may call: the only repository, "
        "OWNER/NAME, whose call counts. Default: the repository in identity.",
    )
    ref: str | None = Field(
        None,
        pattern=r"^refs/[!-~]+$",
        description="Likewise the only branch or tag whose run counts, such as refs/heads/main. "
        "Default: the ref in identity.",
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
            raise ValueError("give publicKey, or identity and issuer: either identifies the signer")
        for name in ("repository", "ref"):
            if self.public_key and getattr(self, name):
                raise ValueError(f"{name}: a key has no {name}; leave this out, or give identity and issuer")
        if self.identity and not self.transparency_log:
            raise ValueError(
                "transparencyLog: without a key, only the log proves when an image was signed; leave this key out"
            )
        if (ref := self.origin[1]) and not ref.startswith("refs/"):
            raise ValueError(
                "ref: missing: identity names a commit; give the branch or tag whose runs count: refs/heads/main"
            )
        return self

    @property
    def who(self) -> str:
        """The signer, for messages."""
        if self.identity:
            stated = [f"{name} {value}" for name in ("repository", "ref") if (value := getattr(self, name))]
            return f"{self.identity} ({', '.join([f'by {self.issuer}', *stated])})"
        return "public key " + "".join(
            line for line in str(self.public_key).splitlines() if not line.startswith("-----")
        )

    @property
    def origin(self) -> tuple[str | None, str | None]:
        """The repository and the ref whose run may sign; None where the identity is no workflow of GitHub."""
        match = _WORKFLOW.fullmatch(self.identity or "")
        repository, ref = match.groups() if match else (None, None)
        return self.repository or repository, self.ref or ref

    def is_same(self, other: SignerConfig) -> bool:
        """Return whether a signature of one is the other's too, whether or not the public log has it."""
        return self._itself == other._itself

    @property
    def _itself(self) -> tuple[str | None, ...]:
        return ("".join((self.public_key or "").split()), self.identity, self.issuer, *self.origin)

    def as_signer(self) -> dict[str, Any]:
        """Return the signer as a stack's YAML has it, without the private key and what is attested."""
        return self.model_dump(by_alias=True, exclude_none=True, include=set(SignerConfig.model_fields))


class PolicyConfig(Model):
    """What ``slipway verify`` requires of published images besides signatures. Unset keys require nothing."""

    repository: str | None = Field(
        None,
        pattern=r"^[\w.-]+(:\d+)?/[!-~]+$",
        description="Repository of the source, HOST/PATH, such as github.com/acme/images.",
    )
    ref: str | None = Field(
        None, pattern=r"^refs/[!-~]+$", description="Branch or tag of the source, such as refs/heads/main."
    )
    builder: str | None = Field(
        None,
        pattern=r"^[!-~]+$",
        description="The builder.id of the provenance: the workflow's identity, as in signing.identity, or "
        "urn:slipway:by-hand.",
    )
    committed: bool = Field(default=False, description="Refuse images of a checkout with uncommitted changes.")
    attestations: tuple[Literal["sbom", "provenance", "loading", "scan"], ...] = Field(
        (), description="Attestations that each image must have, whatever signing attests today."
    )
    max_age_days: int | None = Field(None, ge=1, description="Days after its build that an image counts.")

    @property
    def of_provenance(self) -> bool:
        """Whether it requires anything that the provenance states."""
        return bool(self.repository or self.ref or self.builder or self.committed or self.max_age_days)


class SigningConfig(SignerConfig):
    """How images are signed after a push, and what is attested."""

    key: Annotated[str, AfterValidator(_key)] | None = Field(
        None,
        description="Where cosign finds the private key: a file's path, env://NAME, or a key of a KMS "
        "(awskms://, azurekms://, gcpkms://, hashivault://). Default: none, signed as the job's own identity.",
    )
    transparency_log: bool = Field(
        default=False, description="Record signatures in Sigstore's public log; without a key they always are."
    )
    sbom: bool = Field(default=True, description="Attest an SBOM of each image, made by Syft.")
    provenance: bool = Field(default=True, description="Attest source, revision, date, arguments and parents.")
    policy: PolicyConfig = Field(
        default_factory=PolicyConfig, description="What `slipway verify` requires of images besides their signatures."
    )

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, values: Any) -> Any:
        """Fill in what follows: a KMS gives the public half of its key, and the log has every identity's signature."""
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
        if self.policy.of_provenance and not self.provenance:
            raise ValueError("policy requires what only the provenance states; leave provenance: false out")
        return self


def trusted(trust: Mapping[str, SignerConfig], reference: str) -> SignerConfig | None:
    """Return the signer that an image needs: that of the longest registry or repository above it, or None."""
    match = covering(trust, reference)
    return trust[match[0]] if match else None
