"""What is asked of cosign: sign an image, attest something of it, verify both.

cosign is a program on PATH (``make up`` gets it for a stack that signs). Images are named by digest, so that what is
signed is what was pushed. Signatures stand beside the image, under tags of its digest.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from oci import docker_login
from oci.credentials import Login
from stacks.config.signing import Signer, Signing
from stacks.errors import SlipwayError, one_line

Kind = Literal["sbom", "provenance"]

PREDICATES: Final[Mapping[Kind, tuple[str, str]]] = {
    "sbom": ("spdxjson", "https://spdx.dev/Document"),
    "provenance": ("slsaprovenance1", "https://slsa.dev/provenance/v1"),
}
"""What cosign calls each kind of attestation, and the type of its predicate."""

PASSWORD: Final = "COSIGN_PASSWORD"  # noqa: S105 - the variable's name
"""Environment variable with the password of a private key that is a file or a variable; may be empty."""

_MAJOR: Final = 2
"""The version of cosign whose options and form of signatures these are."""
_UNSIGNED: Final = range(10, 14)
"""How cosign exits where a registry answers, and what is there is not signed as asked (its errors' exit codes)."""
_SECONDS: Final = 1800
"""How long a program may take: Syft reads all of an image."""
_MOST: Final = "2GB"
"""How large an attestation may be that is verified; cosign's own limit, 128 MiB, is for those of others."""


class Unsigned(SlipwayError):
    """An image is not signed by who must have signed it."""


def check(signing: Signing | None) -> None:
    """Refuse to build what could not be signed; without ``signing``, what stands on parents that could not be verified.

    Raises:
        SlipwayError: a program or the key's password is missing, or the key.
    """
    where = "slipway:signing" if signing else "slipway:trust"
    _program("cosign", where)
    version = re.search(r"GitVersion:\s*(v?(\d+)\.\d+\.\d+\S*)", _run(["cosign", "version"], where, None))
    if version and int(version[2]) != _MAJOR:
        raise SlipwayError(
            f"{where}: the cosign on PATH is {version[1]}, which keeps signatures in another form; `make up` gets "
            f"version {_MAJOR}"
        )
    if signing is None:
        return
    if signing.sbom:
        _program("syft", "slipway:signing.sbom")
    key = signing.key
    if key is None or ("://" in key and not key.startswith("env://")):
        return
    where = "slipway:signing.key"
    if key.startswith("env://") and not os.environ.get(key.removeprefix("env://")):
        raise SlipwayError(f"{where}: '{key}': there is no such variable in the environment; set it to the private key")
    if "://" not in key and not Path(key).is_file():
        raise SlipwayError(f"{where}: '{one_line(key)}': there is no such file; `cosign generate-key-pair` makes one")
    if PASSWORD not in os.environ:
        raise SlipwayError(f"{where}: ${PASSWORD} is not set; set it to the key's password, empty if it has none")


def sign(ref: str, signing: Signing, login: Login | None) -> str:
    """Sign an image and return where the signature is.

    Raises:
        SlipwayError: cosign fails, or what it has signed does not verify.
    """
    _run(["cosign", "sign", "--yes", *_signing_options(signing), ref], ref, login)
    verify(ref, signing, login)
    return _beside(ref, "sig")


def attest(ref: str, kind: Kind, predicate: Mapping[str, Any], signing: Signing, login: Login | None) -> str:
    """Attest something of an image, in place of what was attested of its kind; return where that is.

    Raises:
        SlipwayError: as :func:`sign` says.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        file = Path(folder, f"{kind}.json")
        file.write_text(json.dumps(predicate), encoding="utf-8")
        words = ["cosign", "attest", "--yes", "--replace", "--type", PREDICATES[kind][0], "--predicate", str(file)]
        _run([*words, *_signing_options(signing), ref], ref, login)
    attested(ref, kind, signing, login)
    return _beside(ref, "att")


def verify(ref: str, signer: Signer, login: Login | None) -> None:
    """Verify that an image is signed by a signer.

    Raises:
        Unsigned: it is not.
        SlipwayError: that cannot be asked.
    """
    with _options(signer) as options:
        _run(["cosign", "verify", "--output", "json", *options, ref], ref, login)


def attested(ref: str, kind: Kind, signer: Signer, login: Login | None) -> Mapping[str, Any]:
    """Return what a signer has attested of an image, verified.

    Raises:
        SlipwayError: nothing of that kind, or not by that signer.
    """
    name, uri = PREDICATES[kind]
    with _options(signer) as options:
        words = ["cosign", "verify-attestation", "--output", "json", "--type", name]
        said = _run([*words, *options, ref], f"{ref}: {kind}", login)
    for line in said.splitlines():
        statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
        if statement["predicateType"] == uri:
            predicate: Mapping[str, Any] = statement["predicate"]
            return predicate
    raise SlipwayError(f"{ref}: {kind}: cosign verified it, but gives none of the type {uri}")


def sbom(ref: str, login: Login | None) -> Mapping[str, Any]:
    """Return what an image consists of, as SPDX, read from the registry by Syft.

    Raises:
        SlipwayError: Syft fails.
    """
    words = ["syft", "scan", f"registry:{ref}", "--output", "spdx-json", "--quiet"]
    found: Mapping[str, Any] = json.loads(_run(words, ref, login))
    # A relationship of each file would be most of a large image's document, and says nothing of packages.
    kept = [one for one in found.get("relationships", []) if not _of_file(one)]
    return {**{key: value for key, value in found.items() if key != "files"}, "relationships": kept}


def _of_file(relationship: Mapping[str, str]) -> bool:
    ends = (relationship.get("spdxElementId", ""), relationship.get("relatedSpdxElement", ""))
    return any(end.startswith("SPDXRef-File-") for end in ends)


def _beside(ref: str, suffix: str) -> str:
    repository, _, digest = ref.partition("@")
    return f"{repository}:{digest.replace(':', '-')}.{suffix}"


def _signing_options(signing: Signing) -> list[str]:
    if signing.key is None:
        return []
    return ["--key", signing.key, f"--tlog-upload={str(signing.transparency_log).lower()}"]


@contextlib.contextmanager
def _options(signer: Signer) -> Iterator[Sequence[str]]:
    """Yield the options by which cosign knows a signer; a public key lies in a file as long as that."""
    if signer.identity and signer.issuer:
        yield ["--certificate-identity", signer.identity, "--certificate-oidc-issuer", signer.issuer]
        return
    key = str(signer.public_key)
    log = [] if signer.transparency_log else ["--insecure-ignore-tlog=true"]
    if "://" in key:
        yield ["--key", key, *log]
        return
    with tempfile.NamedTemporaryFile("w", prefix="slipway-", suffix=".pub") as file:
        file.write(key)
        file.flush()
        yield ["--key", file.name, *log]


def _run(words: Sequence[str], what: str, login: Login | None) -> str:
    """Run a program and return what it prints; ``what`` it is about begins the error."""
    with _docker_config(login) as variables:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, **variables, "COSIGN_MAX_ATTACHMENT_SIZE": _MOST, "COSIGN_EXPERIMENTAL": "0"},
                timeout=_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise SlipwayError(f"{what}: {_missing(words[0])}") from None
        except subprocess.TimeoutExpired:
            raise SlipwayError(f"{what}: {words[0]} did not end within {_SECONDS // 60} minutes") from None
    if done.returncode:
        kind = Unsigned if words[0] == "cosign" and done.returncode in _UNSIGNED else SlipwayError
        raise kind(f"{what}: {' '.join(words[:2])}: {_said(done.stderr)}")
    return done.stdout


def _said(text: str) -> str:
    """Return what a program says of its failure: its error, without what it warns of beside."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return one_line((errors or lines or ["it fails and says nothing"])[0 if errors else -1], 300)


@contextlib.contextmanager
def _docker_config(login: Login | None) -> Iterator[Mapping[str, str]]:
    """Yield the environment by which both programs log in: a Docker configuration, unless the machine's own will do."""
    if login is None:
        yield {}
        return
    text = docker_login.configuration(login.host, login.username, login.password)
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        Path(folder, "config.json").write_text(text, encoding="utf-8")
        yield {"DOCKER_CONFIG": folder}


def _program(name: str, key: str) -> None:
    if not shutil.which(name):
        raise SlipwayError(f"{key}: {_missing(name)}")


def _missing(name: str) -> str:
    return f"{name} is not on PATH; `make up` gets it, or install it, or leave that key out"
