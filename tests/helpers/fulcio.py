"""A certificate authority that vouches for jobs of GitHub as Fulcio does, and that the real cosign trusts."""

from __future__ import annotations

import base64
import datetime
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

_EXTENSION = "1.3.6.1.4.1.57264.1"
_RAW = {"issuer": 1, "repository": 5, "ref": 6}
_DER = {
    "signer": 9, "signerDigest": 10, "machine": 11, "sourceRepository": 12, "commit": 13, "sourceRef": 14,
    "started": 18, "trigger": 20, "run": 21,
}  # fmt: skip
"""Numbers of the extensions by claim (docs/oid-info.md of Fulcio): the first ones are bare, those from 8 on are DER."""


def der(text: str) -> bytes:
    """Return a text as DER's UTF8String."""
    content = text.encode()
    length = bytes([len(content)]) if len(content) < 128 else bytes([0x81, len(content)])
    return b"\x0c" + length + content


class Fulcio:
    """An authority, and the key pair of a job that it certifies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.root, self.key, self.public = (folder / name for name in ("root.pem", "job.key", "job.pub"))
        self._folder = folder
        self._authority = ec.generate_private_key(ec.SECP256R1())
        self._job = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fulcio")])
        self.root.write_bytes(self._certificate(self._authority.public_key(), []))
        pem = self._job.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "job.pem").write_bytes(pem)
        subprocess.run(
            ["cosign", "import-key-pair", "--key", "job.pem", "--output-key-prefix", "job"],
            cwd=folder, env={**os.environ, "COSIGN_PASSWORD": ""}, check=True, capture_output=True,
        )  # fmt: skip

    @classmethod
    def trusted(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fulcio:
        """Return an authority that cosign trusts, without the public log that this machine cannot reach."""
        checkout = Checkout.here()
        with golang.caches(checkout):
            real = Path(supply_chain_programs.get(checkout, supply_chain_programs.TOOLS[0]).used)
        monkeypatch.setenv("PATH", str(real.parent), prepend=os.pathsep)
        authority = cls(folder / "fulcio")
        wrapper = folder / "wrapper"
        wrapper.mkdir()
        options = f"--ca-roots={authority.root} --insecure-ignore-sct --insecure-ignore-tlog"
        (wrapper / "cosign").write_text(
            f'#!/bin/sh\ncase $1 in\nverify*) set -- "$@" {options} ;;\n'
            f'sign|attest) [ ! -f {folder}/options ] || set -- "$@" $(cat {folder}/options) ;;\nesac\n'
            f'export COSIGN_PASSWORD=""\nexec {real} "$@"\n'
        )
        (wrapper / "cosign").chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper}{os.pathsep}{os.environ['PATH']}")
        return authority

    def _certificate(self, public: ec.EllipticCurvePublicKey, extensions: list[tuple[Any, bool]]) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self._name if not extensions else x509.Name([]))
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(minutes=30))
            .add_extension(x509.BasicConstraints(ca=not extensions, path_length=None), critical=True)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _options(self, claims: Mapping[str, str | None]) -> list[str]:
        """Return cosign's options to sign as a job with these claims of its identity token."""
        values = {
            **{number: claims[name].encode() for name, number in _RAW.items()},  # type: ignore[union-attr]
            **{number: der(value) for name, number in _DER.items() if (value := claims.get(name))},
        }
        extensions: list[tuple[Any, bool]] = [
            (x509.UnrecognizedExtension(ObjectIdentifier(f"{_EXTENSION}.{number}"), value), False)
            for number, value in values.items()
        ]
        extensions += [
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(claims["workflow"]))]), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
        ]
        certificate = self._folder / "job.crt"
        certificate.write_bytes(self._certificate(self._job.public_key(), extensions))
        words = ["--yes", "--tlog-upload=false", "--key", str(self.key), "--certificate", str(certificate)]
        return [*words, "--certificate-chain", str(self.root)]

    def _cosign(self, *words: str) -> None:
        subprocess.run(["cosign", *words], env={**os.environ, "COSIGN_PASSWORD": ""}, check=True, capture_output=True)

    def certify(self, claims: Mapping[str, str | None]) -> None:
        """Let cosign sign without a key from now on, as a job with these claims."""
        (self._folder.parent / "options").write_text(" ".join(self._options(claims)))

    def sign(self, image: str, claims: Mapping[str, str | None]) -> None:
        """Sign an image as a job with these claims."""
        self._cosign("sign", *self._options(claims), image)

    def attest(self, image: str, predicate: Mapping[str, Any], claims: Mapping[str, str | None]) -> None:
        """Attest the provenance of an image as a job with these claims, beside what is attested."""
        file = self._folder / "predicate.json"
        file.write_text(json.dumps(predicate))
        words = ["attest", "--type", "slsaprovenance1", "--predicate", str(file)]
        self._cosign(*words, *self._options(claims), image)

    def envelope(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        """Return a statement of in-toto in an envelope (DSSE) that the job's key signs."""
        kind, payload = "application/vnd.in-toto+json", json.dumps(statement).encode()
        signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        signature = base64.b64encode(self._job.sign(signed, ec.ECDSA(hashes.SHA256()))).decode()
        content = base64.b64encode(payload).decode()
        return {"payloadType": kind, "payload": content, "signatures": [{"keyid": "", "sig": signature}]}
