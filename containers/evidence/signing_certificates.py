"""The claims in the certificates beside an image, about the jobs that signed its attestations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.x509.oid import ObjectIdentifier

from containers.evidence import cosign
from containers.registry.client import Repository
from containers.registry.credentials import Login

_ANNOTATION: Final = "dev.sigstore.cosign/certificate"
"""Annotation of a layer with the certificate of the attestation in it, as PEM (cosign v2.6.4, pkg/oci/static)."""
_ROOT: Final = "1.3.6.1.4.1.57264.1"
_CLAIMS: Final = {
    "signer": 9,
    "signerDigest": 10,
    "machine": 11,
    "repository": 12,
    "commit": 13,
    "ref": 14,
    "started": 18,
    "trigger": 20,
    "run": 21,
}
"""By claim, the number of its extension (sigstore/fulcio, docs/oid-info.md).

They are the workflow that the job is written in and its commit; who hosts the machine; the run's repository, commit and
ref; the workflow that was started, and by which event; the run's address.
"""

Claims = Mapping[str, str]
"""What a certificate states, by claim. What it does not state is not there."""


def claims(ref: str, login: Login | None) -> Claims:
    """Return what all certificates of an image's attestations state alike.

    cosign verifies at least one of them and does not say which. Whoever may push can add one with any certificate. So
    only what each of them states counts: then the verified one does.

    Raises SlipwayError: the registry does not have the attestations.
    """
    layers = Repository(cosign.attached(ref, "att"), login).manifest().content.get("layers", [])
    first, *others = [_claims(layer) for layer in layers] or [{}]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _claims(layer: Any) -> Claims:
    try:
        certificate = x509.load_pem_x509_certificate(layer["annotations"][_ANNOTATION].encode())
        extensions = certificate.extensions
    except (KeyError, TypeError, AttributeError, ValueError, x509.DuplicateExtension):
        return {}
    stated = {name: _stated(extensions, number) for name, number in _CLAIMS.items()}
    return {name: value for name, value in stated.items() if value}


def _stated(extensions: x509.Extensions, number: int) -> str:
    try:
        extension = extensions.get_extension_for_oid(ObjectIdentifier(f"{_ROOT}.{number}")).value
    except x509.ExtensionNotFound:
        return ""
    try:
        return asn1.decode_der(str, extension.value) if isinstance(extension, x509.UnrecognizedExtension) else ""
    except ValueError:  # no UTF8String
        return ""
