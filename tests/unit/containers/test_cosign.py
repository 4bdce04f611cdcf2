"""The command lines of cosign."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from containers.evidence import cosign
from stacks.config.signing import SignerConfig, SigningConfig
from tests.helpers.refusals import refusal_line

REF = "r.example/x@sha256:" + "a" * 64
IDENTITY = "https://github.com/acme/slipway/.github/workflows/publish.yml@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"
KEY = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cosign that verifies everything; return the file that it writes its arguments to, one a line."""
    program, file = tmp_path / "cosign", tmp_path / "arguments"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {file}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return file


def test_verify_keyless_trusts_one_identity_of_one_issuer(arguments: Path) -> None:
    cosign.verify(REF, SignerConfig.model_validate({"identity": IDENTITY, "issuer": ISSUER}), None)
    command, *options, ref = arguments.read_text().splitlines()
    assert (command, ref) == ("verify", REF)
    assert options[2:6] == ["--certificate-identity", IDENTITY, "--certificate-oidc-issuer", ISSUER]
    assert not any(option.endswith("-regexp") or option.startswith("--insecure") for option in options)


@pytest.mark.parametrize(
    ("signer", "repository", "ref"),
    [
        ({}, "acme/slipway", "refs/heads/main"),
        ({"repository": "acme/images", "ref": "refs/tags/v1"}, "acme/images", "refs/tags/v1"),
        ({"identity": "https://gitlab.com/acme/x//.gitlab-ci.yml@refs/heads/main"}, None, None),
        ({"identity": "me@example.com"}, None, None),
    ],
    ids=["of the identity", "stated", "of GitLab", "of a person"],
)
def test_verify_keyless_checks_the_callers_origin(
    arguments: Path, signer: dict[str, str], repository: str | None, ref: str | None
) -> None:
    cosign.verify(REF, SignerConfig.model_validate({"identity": IDENTITY, "issuer": ISSUER, **signer}), None)
    words = arguments.read_text().splitlines()
    options = dict(itertools.pairwise(words))
    assert options.get("--certificate-github-workflow-repository") == repository
    assert options.get("--certificate-github-workflow-ref") == ref


@pytest.mark.parametrize(
    ("log", "expected"), [(True, []), (False, ["--insecure-ignore-tlog=true"])], ids=["with log", "without log"]
)
def test_verify_with_a_key_in_a_kms_names_it(arguments: Path, log: bool, expected: list[str]) -> None:
    signer = SignerConfig.model_validate({"publicKey": "awskms:///alias/slipway", "transparencyLog": log})
    cosign.verify(REF, signer, None)
    options = arguments.read_text().splitlines()[1:-1]
    assert options[options.index("--key") :] == ["--key", "awskms:///alias/slipway", *expected]
    assert "--certificate-identity" not in json.dumps(options)


@pytest.mark.parametrize(
    ("key", "variables", "error"),
    [
        ("awskms:///alias/slipway", {}, ""),
        ("env://SIGNING_KEY", {}, "slipway:signing.key: 'env://SIGNING_KEY': the variable is not set; "),
        ("env://SIGNING_KEY", {"SIGNING_KEY": "k"}, "slipway:signing.key: $COSIGN_PASSWORD is not set; "),
        ("env://SIGNING_KEY", {"SIGNING_KEY": "k", "COSIGN_PASSWORD": ""}, ""),
        ("cosign.key", {}, "slipway:signing.key: 'cosign.key': no such file; "),
    ],
)
def test_check_requires_what_the_kind_of_key_needs(
    arguments: Path, monkeypatch: pytest.MonkeyPatch, key: str, variables: dict[str, str], error: str
) -> None:
    monkeypatch.chdir(arguments.parent)
    for name in ("SIGNING_KEY", "COSIGN_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    signing = SigningConfig.model_validate({"key": key, "publicKey": KEY, "sbom": False})
    if error:
        assert refusal_line(cosign.check, signing).startswith(error)
    else:
        cosign.check(signing)
    assert arguments.read_text() == "version\n"
