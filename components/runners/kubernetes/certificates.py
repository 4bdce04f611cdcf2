"""``Certificates``: the TLS certificates of a service and its clients, kept in the stack's state."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider

YEARS = 5
"""Years of validity. `pulumi up --replace` of the resource renews the certificates."""

_UNUSED = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
"""Key usages that the authority does not have."""

_INPUTS = ("hosts", "jobs")
_KEYS = ("ca", "server_cert", "server_key", "client_cert", "client_key")


@dataclass(frozen=True)
class CertificatesArgs:
    """The host names and IP addresses of the service, and whether jobs are its clients."""

    hosts: Sequence[str]
    jobs: bool


class MakeCertificates(ResourceProvider):
    """Makes the certificates; the state has its name, see :class:`components.action.Action`."""

    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make all certificates."""
        return CreateResult("certificates", {**{key: props[key] for key in _INPUTS}, **make(props["hosts"])})

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Replace the certificates when the hosts change, or when jobs begin or cease to have their key."""
        # States without ``jobs`` are from when every job had it.
        changed = [key for key in _INPUTS if {"jobs": True, **olds}[key] != news[key]]
        return DiffResult(changes=bool(changed), replaces=changed)


class Certificates(Resource, module="runners", name="Certificates"):
    """A certificate authority, and the certificates it signed for a service and for its clients.

    The authority's key is discarded, so that it signs nothing more. All keys are secrets.
    """

    ca: pulumi.Output[str]
    server_cert: pulumi.Output[str]
    server_key: pulumi.Output[str]
    client_cert: pulumi.Output[str]
    client_key: pulumi.Output[str]

    def __init__(self, name: str, args: CertificatesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["server_key", "client_key"])
        props = {"hosts": list(args.hosts), "jobs": args.jobs, **dict.fromkeys(_KEYS)}
        super().__init__(MakeCertificates(), name, props, pulumi.ResourceOptions.merge(opts, secret))

    @property
    def pem(self) -> dict[str, pulumi.Output[str]]:
        """Certificates and keys by name. The keys are secrets within this program too."""
        keys: dict[str, Any] = {"server_key": self.server_key, "client_key": self.client_key}
        secret = {name: pulumi.Output.secret(value) for name, value in keys.items()}
        return {"ca": self.ca, "server_cert": self.server_cert, "client_cert": self.client_cert, **secret}


def make(hosts: Sequence[str]) -> dict[str, str]:
    """Return PEM: ``ca``, ``server_cert`` for ``hosts``, ``client_cert``, and the keys of the latter two."""
    # Imported here: only a build service needs it.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    now = datetime.now(UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slipway build service")])

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=365 * YEARS))
            # Python refuses certificates without these from 3.13 on (ssl.VERIFY_X509_STRICT, RFC 5280).
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        )

    def pem(certificate: x509.CertificateBuilder) -> str:
        return certificate.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def signed(name: str, usage: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        certificate = certificate.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        certificate = certificate.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(names), critical=False)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return pem(certificate), text.decode()

    root = builder(issuer, authority).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(key_cert_sign=True, **dict.fromkeys(_UNUSED, False))
    root = root.add_extension(usage, critical=True)
    server = signed("server", ExtendedKeyUsageOID.SERVER_AUTH, [_name(host) for host in hosts])
    client = signed("client", ExtendedKeyUsageOID.CLIENT_AUTH, [])
    return dict(zip(_KEYS, (pem(root), *server, *client), strict=True))


def _name(host: str) -> Any:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
