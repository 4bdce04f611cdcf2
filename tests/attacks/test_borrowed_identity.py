"""A stranger calls the public workflow that publishes, to sign images of its own as the repository that it belongs to."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from oci import cosign
from stacks.config.signing import Signer
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import WORKFLOWS, Actions, Event, Run
from tests.helpers import pushed_image
from tests.provider.conftest import private_registry
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

ISSUER = "https://token.actions.githubusercontent.com"
WORKFLOW = "https://github.com/acme/slipway/.github/workflows/up.yml@refs/heads/main"
MAIN = "refs/heads/main"
_EXTENSION = "1.3.6.1.4.1.57264.1"


def called_by(folder: Path, name: str, ref: str) -> Run:
    """Run ``up.yml`` of acme/slipway's main branch, called by a repository whose checkout has a program of its own."""
    repository, remote = folder / "work", folder / "remote.git"
    shutil.copytree(ROOT / WORKFLOWS, repository / WORKFLOWS)
    for file in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, repository)
    (repository / "toolchain").mkdir()
    (repository / "toolchain/__init__.py").touch()
    (repository / "toolchain/__main__.py").write_text("print('whatever I sign is signed as up.yml')\n")
    git = ["git", "-C", str(repository), "-c", "user.name=m", "-c", "user.email=m@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "mine"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", repository, remote], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "actions").mkdir()
    actions = Actions(folder / "actions", remote, {}, name=name, workflows=f"acme/slipway@{MAIN}")
    return actions.run("up.yml", Event("push", ref, sha), inputs={"stack": "local", "runner": '["mine"]'})


@pytest.mark.parametrize(
    ("name", "ref"), [("mallory/copy", MAIN), ("acme/slipway", "refs/heads/topic"), ("acme/slipway-2", MAIN)]
)
def test_foreign_caller_of_up_runs_nothing(tmp_path: Path, name: str, ref: str) -> None:
    run = called_by(tmp_path, name, ref)
    assert "whatever I sign" not in run.log
    assert run.results == {"caller": "failure", "native": "skipped", "up": "skipped"}


def test_own_caller_of_up_runs_its_program(tmp_path: Path) -> None:
    assert "whatever I sign" in called_by(tmp_path, "acme/slipway", MAIN).job("up").log


class Fulcio:
    """A certificate authority that vouches for jobs of GitHub as Fulcio does, and a key pair that it certifies."""

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

    def sign(self, image: str, claims: Mapping[str, str]) -> None:
        """Sign an image as a job with these claims of its identity token (docs/oid-info.md of Fulcio)."""
        numbers = {"issuer": 1, "repository": 5, "ref": 6}
        extensions: list[tuple[Any, bool]] = [
            (x509.UnrecognizedExtension(ObjectIdentifier(f"{_EXTENSION}.{number}"), claims[name].encode()), False)
            for name, number in numbers.items()
        ]
        extensions += [
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims["workflow"])]), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
        ]
        certificate = self._folder / "job.crt"
        certificate.write_bytes(self._certificate(self._job.public_key(), extensions))
        words = ["cosign", "sign", "--yes", "--tlog-upload=false", "--key", str(self.key), "--certificate"]
        subprocess.run(
            [*words, str(certificate), "--certificate-chain", str(self.root), image],
            env={**os.environ, "COSIGN_PASSWORD": ""}, check=True, capture_output=True,
        )  # fmt: skip


@pytest.fixture
def fulcio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fulcio:
    """An authority that cosign trusts, without the public log that this machine cannot reach."""
    checkout = Checkout.here()
    with golang.caches(checkout):
        real = Path(supply_chain_programs.get(checkout, supply_chain_programs.TOOLS[0]).used)
    monkeypatch.setenv("PATH", str(real.parent), prepend=os.pathsep)
    authority = Fulcio(tmp_path / "fulcio")
    wrapper = tmp_path / "wrapper"
    wrapper.mkdir()
    options = f"--ca-roots={authority.root} --insecure-ignore-sct --insecure-ignore-tlog"
    (wrapper / "cosign").write_text(f'#!/bin/sh\ncase $1 in verify*) set -- "$@" {options} ;; esac\nexec {real} "$@"\n')
    (wrapper / "cosign").chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper}{os.pathsep}{os.environ['PATH']}")
    return authority


@pytest.mark.slow
def test_identity_counts_with_its_repository_and_ref(fulcio: Fulcio, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    signer = Signer.model_validate({"identity": WORKFLOW, "issuer": ISSUER})
    own = {"workflow": WORKFLOW, "issuer": ISSUER, "repository": "acme/slipway", "ref": MAIN}
    with private_registry(tmp_path / "registry") as registry:
        image = pushed_image.push(f"{registry.address}/mine/image:1")
        for foreign in (
            {"repository": "mallory/copy"},
            {"ref": "refs/pull/1/merge"},
            {"issuer": "https://issuer.mallory.example"},
            {"workflow": WORKFLOW.replace("acme", "mallory")},
        ):
            fulcio.sign(image, {**own, **foreign})
            with pytest.raises(cosign.Unsigned):
                cosign.verify(image, signer, None)
        fulcio.sign(image, own)
        cosign.verify(image, signer, None)
        shared = {"identity": WORKFLOW, "issuer": ISSUER, "repository": "acme/other"}
        with pytest.raises(cosign.Unsigned):
            cosign.verify(image, Signer.model_validate(shared), None)
