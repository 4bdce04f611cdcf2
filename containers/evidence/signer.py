"""An image's signer, and the required attestations, as the reader of an image needs them."""

from __future__ import annotations

from typing import Protocol


class ImageSigner(Protocol):
    """A signer: a key, or an identity that an issuer vouches for."""

    @property
    def public_key(self) -> str | None:
        """The public key as PEM, or its address in a KMS."""

    @property
    def identity(self) -> str | None:
        """Without a key: the identity in the certificate."""

    @property
    def issuer(self) -> str | None:
        """The OpenID Connect issuer of the identity."""

    @property
    def transparency_log(self) -> bool:
        """Whether the signature is in Sigstore's public log."""

    @property
    def origin(self) -> tuple[str | None, str | None]:
        """The repository and the ref whose run may sign; None for any."""


class ImageSigning(ImageSigner, Protocol):
    """How images are signed."""

    @property
    def key(self) -> str | None:
        """Where cosign finds the private key; None for the job's own identity."""

    @property
    def sbom(self) -> bool:
        """Whether an SBOM is attested."""


class ProvenancePolicy(Protocol):
    """What is required of a provenance; None requires nothing."""

    @property
    def repository(self) -> str | None:
        """The repository of the source, ``HOST/PATH``."""

    @property
    def ref(self) -> str | None:
        """The branch or tag of the source."""

    @property
    def builder(self) -> str | None:
        """The id of the builder."""

    @property
    def committed(self) -> bool:
        """Whether uncommitted changes are refused."""

    @property
    def max_age_days(self) -> int | None:
        """The days after its build that an image counts."""
