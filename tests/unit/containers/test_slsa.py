"""The SLSA level that evidence shows, and what a policy refuses."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ObjectIdentifier
from pydantic import ValidationError

from containers.evidence import signing_certificates, slsa
from stacks.config.signing import PolicyConfig, SignerConfig, SigningConfig
from tests.fakes.registry import MANIFEST, Registry, serve
from tests.helpers.every import every

WORKFLOW = "https://github.com/acme/images/.github/workflows/up.yml@refs/heads/main"
KEYLESS = {"identity": WORKFLOW, "issuer": "https://token.actions.githubusercontent.com"}
KEY = {"publicKey": "awskms:///alias/slipway"}
NOW = datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC)
DIGEST = "sha256:" + "a" * 64


def provenance(**more: Any) -> dict[str, Any]:
    """Return the provenance of a clean build of the main branch, two days ago; ``more`` replaces internal parameters."""
    return {
        "buildDefinition": {
            "externalParameters": {
                "configSource": {"uri": "git+https://github.com/acme/images", "digest": {"sha1": "c" * 40}}
            },
            "internalParameters": {"engine": "machine", "ref": "refs/heads/main", "uncommitted": False, **more},
            "resolvedDependencies": [],
        },
        "runDetails": {
            "builder": {"id": WORKFLOW},
            "metadata": {"finishedOn": "2026-11-22T00:00:00.123456789Z"},
        },
    }


@every(
    "signer, hosted, internal, level",
    [
        (KEYLESS, True, {}, 2),
        (KEYLESS, False, {}, 1),
        (KEYLESS, True, {"engine": "remote"}, 1),
        (KEYLESS, True, {"engine": None}, 1),
        ({**KEYLESS, "issuer": "https://gitlab.com"}, True, {}, 1),
        (KEY, True, {}, 1),
    ],
)
def test_level_is_no_more_than_the_evidence_shows(
    signer: dict[str, str], hosted: bool, internal: dict[str, Any], level: int
) -> None:
    claims = {"machine": "github-hosted" if hosted else "self-hosted"}
    shown, reason = slsa.level(provenance(**internal), SignerConfig.model_validate(signer), claims)
    assert shown == level
    assert reason


ALL = {
    "repository": "github.com/acme/images",
    "ref": "refs/heads/main",
    "builder": WORKFLOW,
    "committed": True,
    "maxAgeDays": 3,
}


def refused(document: dict[str, Any], **policy: Any) -> list[str]:
    return list(slsa.violations(document, PolicyConfig.model_validate(policy), NOW))


def test_parents_that_the_evidence_leaves_out_are_none() -> None:
    """An image on `scratch` has none, and cosign leaves an empty list out."""
    assert slsa.parents({"buildDefinition": {}}) == []


def test_source_without_an_address_is_no_parent() -> None:
    """Of a checkout without a public remote, cosign leaves the empty URI out, and the time that nobody knows."""
    document = provenance()
    parent = {"uri": f"pkg:docker/docker.io/library/debian@{DIGEST}?platform=linux%2Famd64"}
    document["buildDefinition"]["resolvedDependencies"] = [{"digest": {"gitCommit": "c" * 40}}, parent]
    document["runDetails"]["metadata"] = {}
    document["buildDefinition"]["externalParameters"]["configSource"] = {"path": "dockerfiles/torch/Dockerfile"}
    assert slsa.parents(document) == [f"docker.io/library/debian@{DIGEST}"]
    assert slsa.summary(document) == {"source": "", "revision": "", "date": ""}
    assert refused(document, repository="github.com/acme/images") == [
        "repository is not stated, but must be 'github.com/acme/images'"
    ]


def test_policy_that_is_met_or_empty_refuses_nothing() -> None:
    assert refused(provenance(), **ALL) == []
    assert refused(provenance(uncommitted=True, ref="")) == []


@every(
    "policy, message",
    [
        ({"repository": "github.com/acme/image"}, "repository is 'github.com/acme/images', but must be 'github.com/acme/image'"),
        ({"ref": "refs/tags/v1"}, "ref is 'refs/heads/main', but must be 'refs/tags/v1'"),
        ({"builder": "urn:slipway:by-hand"}, f"builder is '{WORKFLOW}', but must be 'urn:slipway:by-hand'"),
        ({"maxAgeDays": 1}, "built 2026-11-22T00:00:00.123456789Z, 1 days ago; at most 1 are allowed: publish it again"),
    ],
)  # fmt: skip
def test_policy_that_is_violated_is_one_line(policy: dict[str, Any], message: str) -> None:
    assert refused(provenance(), **policy) == [message]


def test_policy_of_what_provenance_lacks_is_violated() -> None:
    document = provenance()
    document["buildDefinition"]["internalParameters"] = {}
    document["runDetails"] = {"metadata": {"finishedOn": "2026-11-22"}}
    document["buildDefinition"]["externalParameters"]["configSource"]["uri"] = ""
    lines = refused(document, **ALL)
    assert lines[:3] == [
        "repository is not stated, but must be 'github.com/acme/images'",
        "ref is not stated, but must be 'refs/heads/main'",
        f"builder is not stated, but must be '{WORKFLOW}'",
    ]
    assert lines[3:] == [
        "the source has uncommitted changes",
        "the time of the build is '2026-11-22', so its age is unknown; at most 3 days are allowed",
    ]


@every("date, refusal", [("", "is ''"), ("yesterday", "is 'yesterday'"), ("2027-01-01T00:00:00Z", "future")])
def test_policy_of_age_without_a_past_date_is_violated(date: str, refusal: str) -> None:
    document = provenance()
    document["runDetails"]["metadata"]["finishedOn"] = date
    (line,) = refused(document, maxAgeDays=30)
    assert refusal in line


def test_policy_without_provenance_is_refused() -> None:
    signing = {"key": "awskms:///k", "provenance": False}
    assert SigningConfig.model_validate({**signing, "policy": {"attestations": ["sbom"]}}).policy.attestations == (
        "sbom",
    )
    for policy in ({"committed": True}, {"maxAgeDays": 1}, {"ref": "refs/heads/main"}):
        with pytest.raises(ValidationError, match="policy requires what only the provenance states"):
            SigningConfig.model_validate({**signing, "policy": policy})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve() as served:
        yield served


def certificate(environment: str | None) -> str:
    """Return a certificate as Fulcio makes it for a job on a machine of that environment, but of nobody's authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(minutes=10))
    )
    if environment is not None:
        value = bytes([0x0C, len(environment)]) + environment.encode()
        number = ObjectIdentifier("1.3.6.1.4.1.57264.1.11")
        builder = builder.add_extension(x509.UnrecognizedExtension(number, value), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("environments", "hosted"),
    [
        (["github-hosted"], True),
        (["github-hosted", "github-hosted"], True),
        (["self-hosted"], False),
        # Whoever may push adds one that cosign does not verify.
        (["self-hosted", "github-hosted"], False),
        (["github-hosted", None], False),
        ([], False),
    ],
)
def test_attestations_are_hosted_if_each_certificate_says_so(
    registry: Registry, environments: list[str | None], hosted: bool
) -> None:
    layers = [
        {"annotations": {"dev.sigstore.cosign/certificate": certificate(environment)}} for environment in environments
    ]
    registry.manifest(f"a/torch:{DIGEST.replace(':', '-')}.att", MANIFEST, {"layers": layers})
    claims = signing_certificates.claims(f"{registry.address}/a/torch@{DIGEST}", None)
    assert (claims.get("machine") == "github-hosted") is hosted


@pytest.mark.parametrize(
    "layer", [{}, {"annotations": None}, {"annotations": {"dev.sigstore.cosign/certificate": "x"}}, "x"]
)
def test_attestation_without_a_certificate_is_not_hosted(registry: Registry, layer: Any) -> None:
    registry.manifest(f"a/torch:{DIGEST.replace(':', '-')}.att", MANIFEST, {"layers": [layer]})
    assert not signing_certificates.claims(f"{registry.address}/a/torch@{DIGEST}", None)
