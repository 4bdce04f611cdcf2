"""The command lines of cosign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oci import cosign
from stacks.config.signing import Signer, Signing
from tests.helpers.refusals import refusal_line

REF = "r.example/x@sha256:" + "a" * 64
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
    identity = "https://github.com/acme/slipway/.github/workflows/publish.yml@refs/heads/main"
    issuer = "https://token.actions.githubusercontent.com"
    cosign.verify(REF, Signer.model_validate({"identity": identity, "issuer": issuer}), None)
    command, *options, ref = arguments.read_text().splitlines()
    assert (command, ref) == ("verify", REF)
    assert options[-4:] == ["--certificate-identity", identity, "--certificate-oidc-issuer", issuer]
    assert not any(option.endswith("-regexp") or option.startswith("--insecure") for option in options)


@pytest.mark.parametrize(
    ("log", "expected"), [(True, []), (False, ["--insecure-ignore-tlog=true"])], ids=["with log", "without log"]
)
def test_verify_with_a_key_in_a_kms_names_it(arguments: Path, log: bool, expected: list[str]) -> None:
    signer = Signer.model_validate({"publicKey": "awskms:///alias/slipway", "transparencyLog": log})
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
    signing = Signing.model_validate({"key": key, "publicKey": KEY, "sbom": False})
    if error:
        assert refusal_line(cosign.check, signing).startswith(error)
    else:
        cosign.check(signing)
    assert arguments.read_text() == "version\n"
