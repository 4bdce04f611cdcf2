"""Signatures and attestations of images, by the programs cosign and Syft.

``make up`` installs both for a stack that signs. Images are named by digest, so the signed image is the pushed one.
cosign stores signatures in the image's repository, under tags made of its digest.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from containers.child_environment import PASSWORD, WITHHELD
from containers.errors import SlipwayError, one_line
from containers.evidence import programs, shape
from containers.evidence.signer import ImageSigner, ImageSigning
from containers.registry.credentials import Login
from containers.registry.reference import Reference, hexadecimal

Kind = Literal["sbom", "provenance", "scan", "vex", "loading", "gpu", "warm"]

PREDICATES: Final[Mapping[Kind, tuple[str, str]]] = {
    "sbom": ("spdxjson", "https://spdx.dev/Document"),
    "provenance": ("slsaprovenance1", "https://slsa.dev/provenance/v1"),
    "scan": ("vuln", "https://cosign.sigstore.dev/attestation/vuln/v1"),
    "vex": ("https://openvex.dev/ns/v0.2.0", "https://openvex.dev/ns/v0.2.0"),
    "loading": ("urn:slipway:loading:v1", "urn:slipway:loading:v1"),
    "gpu": ("urn:slipway:gpu-checks:v1", "urn:slipway:gpu-checks:v1"),
    "warm": ("urn:slipway:warm:v1", "urn:slipway:warm:v1"),
}
"""By kind of attestation: cosign's name for it, and the type of its predicate."""

_IDENTITY: Final = (
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "SIGSTORE_ID_TOKEN",
    "SPIFFE_ENDPOINT_SOCKET",
)
"""The variables by which cosign proves the job's identity (cosign v2.6.3, pkg/providers), to sign without a key."""

SIGNATURE: Final = "signature"
"""The kind of a statement that is a signature's annotations."""

STATEMENTS: Final = "SLIPWAY_STATEMENTS"
"""Environment variable with the file of statements that the job `attest` signs, a JSON object a line."""

_MAJOR: Final = 2
"""The major version of cosign with these options and this format of signatures."""
_UNSIGNED: Final = range(10, 14)
"""Exit codes of cosign for an image that lacks the required signature (its package errors)."""
_ORIGIN: Final = ("--certificate-github-workflow-repository", "--certificate-github-workflow-ref")
"""cosign's options for the repository and the ref that a job of GitHub ran for (v2.6.3,
cmd/cosign/cli/options/certificate.go; pkg/cosign/verify.go, ``validateCertExtensions``)."""
_ATTESTATION_LIMIT: Final = "2GB"
"""Size limit of a verified attestation; cosign's default of 128 MiB is too small for SBOMs of large images."""


class Unsigned(SlipwayError):
    """An image lacks the signature of the required signer."""


def check(signing: ImageSigning | None) -> None:
    """Check the programs and the key that signing needs; without ``signing``, those that verifying parents needs.

    Raises SlipwayError: a program, the key or its password is missing.
    """
    where = "slipway:signing" if signing else "slipway:trust"
    version = re.search(r"GitVersion:\s*(v?(\d+)\.\d+\.\d+\S*)", _run(["cosign", "version"], where, "", None))
    if version and int(version[2]) != _MAJOR:
        raise SlipwayError(
            f"{where}: the cosign on PATH is {version[1]}, whose signatures have another format; `slipway up` installs "
            f"version {_MAJOR}"
        )
    if signing is None:
        return
    if signing.sbom and not shutil.which("syft"):
        raise SlipwayError(f"slipway:signing.sbom: {programs.missing('syft')}")
    key = signing.key
    if key is None or ("://" in key and not key.startswith("env://")):
        return
    where = "slipway:signing.key"
    if key.startswith("env://") and not _variable(key.removeprefix("env://")):
        raise SlipwayError(f"{where}: '{key}': the variable is not set; set it to the private key")
    if "://" not in key and not Path(key).is_file():
        raise SlipwayError(f"{where}: '{one_line(key)}': no such file; `cosign generate-key-pair` makes one")
    if _variable(PASSWORD) is None:
        raise SlipwayError(f"{where}: ${PASSWORD} is not set; set it to the key's password, empty if it has none")


def sign(ref: str, signing: ImageSigning, login: Login | None, annotations: Mapping[str, str]) -> str:
    """Sign an image with annotations, verify the signature, and return its reference.

    The annotations are the image's ``tag`` and ``fingerprint``, so that the signature is worth nothing under another
    name.

    Raises SlipwayError: signing or verification fails.
    """
    if _left_to_another_job(signing, {"ref": ref, "kind": SIGNATURE, "states": dict(annotations)}):
        return attached(ref, "sig")
    words = ["cosign", "sign", "--yes", *_signing_options(signing), *_stated(annotations)]
    _run([*words, ref], ref, ref, login, _secrets(signing))
    verify(ref, signing, login, annotations)
    return attached(ref, "sig")


def attest(ref: str, kind: Kind, predicate: Mapping[str, Any], signing: ImageSigning, login: Login | None) -> str:
    """Attest a predicate of an image in place of an earlier one of its kind; return the attestation's reference.

    Raises SlipwayError: attesting or verification fails.
    """
    if _left_to_another_job(signing, {"ref": ref, "kind": kind, "states": dict(predicate)}):
        return attached(ref, "att")
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        file = Path(folder, f"{kind}.json")
        file.write_text(json.dumps(predicate), encoding="utf-8")
        words = ["cosign", "attest", "--yes", "--replace", "--type", PREDICATES[kind][0], "--predicate", str(file)]
        _run([*words, *_signing_options(signing), ref], ref, ref, login, _secrets(signing))
    attested(ref, kind, signing, login)
    return attached(ref, "att")


def verify(ref: str, signer: ImageSigner, login: Login | None, annotations: Mapping[str, str] | None = None) -> None:
    """Verify that an image has a signature by a signer, with these annotations.

    Raises:
        Unsigned: it is not.
        SlipwayError: cosign or the registry fails.
    """
    with _options(signer) as options:
        words = ["cosign", "verify", "--output", "json", *options]
        try:
            _run([*words, *_stated(annotations or {}), ref], ref, ref, login)
        except Unsigned:
            if not annotations:
                raise
            signatures = json.loads(_run([*words, ref], ref, ref, login))
            raise Unsigned(f"{ref}: {_difference(signatures, annotations)}") from None


def attested(ref: str, kind: Kind, signer: ImageSigner, login: Login | None) -> Mapping[str, Any]:
    """Return a predicate that a signer attested of an image, verified.

    Raises SlipwayError: the signer made no such attestation.
    """
    return every_attested(ref, kind, signer, login)[0]


def every_attested(ref: str, kind: Kind, signer: ImageSigner, login: Login | None) -> list[Mapping[str, Any]]:
    """Return the predicates of one kind that a signer attested of an image, verified; at least one.

    Whoever may push can put an earlier attestation back beside a later one: the registry keeps any number.

    Raises SlipwayError: the signer made no such attestation.
    """
    name, uri = PREDICATES[kind]
    with _options(signer) as options:
        words = ["cosign", "verify-attestation", "--output", "json", "--type", name]
        output = _run([*words, *options, ref], f"{ref}: {kind}", ref, login)
    with shape.expected(f"{ref}: {kind}"):
        payloads = [json.loads(line)["payload"] for line in output.splitlines()]
        statements = [json.loads(base64.b64decode(payload)) for payload in payloads]
        ours = [statement for statement in statements if statement["predicateType"] == uri]
        alone = [{"sha256": hexadecimal(ref)}]  # cosign is content with one of several
        predicates = [each["predicate"] for each in ours if [about["digest"] for about in each["subject"]] == alone]
    if not ours:
        raise SlipwayError(f"{ref}: {kind}: cosign verified an attestation, but returned none of type {uri}")
    if not predicates:
        raise Unsigned(f"{ref}: {kind}: what is attested names other images too; publish the image again")
    return predicates


def sbom(ref: str, login: Login | None) -> Mapping[str, Any]:
    """Return the packages of an image as SPDX, read from the registry by Syft. Raises SlipwayError: Syft fails."""
    words = ["syft", "scan", f"registry:{ref}", "--output", "spdx-json", "--quiet"]
    document: Mapping[str, Any] = json.loads(_run(words, ref, ref, login))
    # Files and their relationships would be most of a large image's document, and are no packages.
    relationships = [each for each in document.get("relationships", []) if not _of_file(each)]
    return {**{key: value for key, value in document.items() if key != "files"}, "relationships": relationships}


def _of_file(relationship: Mapping[str, str]) -> bool:
    ends = (relationship.get("spdxElementId", ""), relationship.get("relatedSpdxElement", ""))
    return any(end.startswith("SPDXRef-File-") for end in ends)


def attached(ref: str, suffix: str) -> str:
    """Return the reference under which cosign stores signatures (``sig``) or attestations (``att``) of an image."""
    image = Reference.of(ref)
    return f"{image.repository}:{image.digest.replace(':', '-')}.{suffix}"


def _left_to_another_job(signing: ImageSigning, statement: Mapping[str, Any]) -> bool:
    """Write down a statement that another job signs, if this one builds under another identity; return whether so."""
    file = os.environ.get(STATEMENTS)
    if not file or signing.identity is None:
        return False
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(statement) + "\n")
    return True


def _signing_options(signing: ImageSigning) -> list[str]:
    if signing.key is None:
        return []
    return ["--key", signing.key, f"--tlog-upload={str(signing.transparency_log).lower()}"]


def _stated(annotations: Mapping[str, str]) -> list[str]:
    """Return the options of annotations, which one signature must have all (cosign v2.6.4, pkg/cosign/verifiers.go)."""
    return [word for name, value in annotations.items() for word in ("--annotations", f"{name}={value}")]


def _difference(signatures: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]) -> str:
    """Return how the annotations of verified signatures differ from those that an image needs."""
    stated = [signature.get("optional") or {} for signature in signatures]
    needed = sorted(annotations.items(), reverse=True)  # the tag first; Pulumi gives them in any order
    for name, value in needed:
        values = sorted({one_line(str(each[name]), 128) for each in stated if name in each})
        if not values:
            return f"the signature states no {name}: Slipway did not make it, and it may be another image's"
        if value not in values:
            return f"signed with the {name} {', '.join(values)}, not {value}; this is another image, or an older one"
    return f"no signature has all of {', '.join(f'{name} {value}' for name, value in needed)}"


@contextlib.contextmanager
def _options(signer: ImageSigner) -> Iterator[Sequence[str]]:
    """Yield the options by which cosign recognizes a signer; a public key is written to a temporary file."""
    if signer.identity and signer.issuer:
        options = {
            "--certificate-identity": signer.identity,
            "--certificate-oidc-issuer": signer.issuer,
            **dict(zip(_ORIGIN, signer.origin, strict=True)),
        }
        yield [word for name, value in options.items() if value for word in (name, value)]
        return
    key = str(signer.public_key)
    ignore_log = [] if signer.transparency_log else ["--insecure-ignore-tlog=true"]
    if "://" in key:
        yield ["--key", key, *ignore_log]
        return
    with tempfile.NamedTemporaryFile("w", prefix="slipway-", suffix=".pub") as file:
        file.write(key)
        file.flush()
        yield ["--key", file.name, *ignore_log]


def _secrets(signing: ImageSigning) -> Sequence[str]:
    """Return the names of the variables for signing, beyond those of every program."""
    if signing.key is None:
        return _IDENTITY
    if signing.key.startswith("env://"):
        return signing.key.removeprefix("env://"), PASSWORD
    return () if "://" in signing.key else (PASSWORD,)


def _variable(name: str) -> str | None:
    """Return a variable of the environment, or of the file with those that are withheld from it."""
    if name in os.environ:
        return os.environ[name]
    file = os.environ.get(WITHHELD)
    if not file:
        return None
    try:
        value: str | None = json.loads(Path(file).read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError):
        raise SlipwayError(f"{WITHHELD}: '{one_line(file)}' is no readable JSON file; unset the variable") from None
    return value


def _run(words: Sequence[str], subject: str, ref: str, login: Login | None, secrets: Sequence[str] = ()) -> str:
    """Run a program on an image, and return its output; ``secrets`` are the variables that it alone needs.

    Raises:
        Unsigned: cosign finds no signature of the required signer.
        SlipwayError: the program fails.
    """
    needed = {name: value for name in secrets if (value := _variable(name)) is not None}
    settings = {"COSIGN_MAX_ATTACHMENT_SIZE": _ATTESTATION_LIMIT, "COSIGN_EXPERIMENTAL": "0"}
    try:
        return programs.run(words, subject, ref, login, {**needed, **settings})
    except programs.ProgramFailed as error:
        if words[0] == "cosign" and error.status in _UNSIGNED:
            raise Unsigned(str(error)) from None
        raise
