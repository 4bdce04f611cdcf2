"""What the certificates beside an image say of the machines where its attestations were signed."""

from __future__ import annotations

from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import ObjectIdentifier

from oci import cosign
from oci.client import Repository
from oci.credentials import Login

_ANNOTATION: Final = "dev.sigstore.cosign/certificate"
"""Annotation of a layer with the certificate of the attestation in it, as PEM (cosign v2.6.4, pkg/oci/static)."""
_ENVIRONMENT: Final = ObjectIdentifier("1.3.6.1.4.1.57264.1.11")
"""Extension with the runner's environment (sigstore/fulcio, docs/oid-info.md)."""
_HOSTED: Final = b"\x0c\x0dgithub-hosted"
"""As a DER-encoded UTF8String."""


def hosted(ref: str, login: Login | None) -> bool:
    """Return whether every attestation of an image was signed on a machine that GitHub hosts.

    cosign verifies at least one of them and does not say which. Whoever may push can add one with any certificate. So
    each must say it: then the verified one does.

    Raises:
        SlipwayError: the registry does not have the attestations.
    """
    layers = Repository(cosign.attached(ref, "att"), login).manifest().content.get("layers", [])
    return bool(layers) and all(_is_hosted(layer) for layer in layers)


def _is_hosted(layer: Any) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(layer["annotations"][_ANNOTATION].encode())
        extension = certificate.extensions.get_extension_for_oid(_ENVIRONMENT).value
    except (KeyError, TypeError, AttributeError, ValueError, x509.ExtensionNotFound):
        return False
    return isinstance(extension, x509.UnrecognizedExtension) and extension.value == _HOSTED
