"""A package's setup, a plugin, a scanner reads its environment and finds the signing key in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ci import pulumi_stack
from containers.child_environment import WITHHELD
from containers.evidence import cosign
from stacks.config.signing import SigningConfig
from stacks.config.stack_file import ROOT
from tests.fakes.github.actions import workflow
from toolchain import ready
from toolchain.checkout import Checkout

REF = "r.example/x@sha256:" + "a" * 64
KEY = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
CANARIES = {
    name: f"canary-{name.lower()}"
    for name in (
        "COSIGN_PRIVATE_KEY",
        "COSIGN_PASSWORD",
        "GITHUB_TOKEN",
        "PULUMI_CONFIG_PASSPHRASE",
        "SLIPWAY_REGISTRY_PASSWORD",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    )
}
PROGRAM = """#!{python}
import base64, json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:2], dict(os.environ)]) + "\\n")
if sys.argv[1] == "verify-attestation":
    subject = {{"name": "r.example/x", "digest": {{"sha256": "a" * 64}}}}
    statement = {{"predicateType": "https://spdx.dev/Document", "subject": [subject], "predicate": {{}}}}
    print(json.dumps({{"payload": base64.b64encode(json.dumps(statement).encode()).decode()}}))
if sys.argv[1] == "scan":
    print("{{}}")
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that note the environment that they find, in an environment that has every canary."""
    for name in ("cosign", "syft", "pulumi"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM.format(python=sys.executable, log=str(tmp_path / "log")))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "log"


def found(log: Path) -> dict[str, set[str]]:
    """Return by command the canaries that its program had, in whatever variable."""
    hits: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
        (command,), environment = json.loads(line)
        values = "\n".join(environment.values())
        hits.setdefault(command, set()).update(name for name, value in CANARIES.items() if value in values)
    return hits


@pytest.mark.parametrize(
    ("signing", "needed"),
    [
        ({"key": "env://COSIGN_PRIVATE_KEY", "publicKey": KEY}, {"COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD"}),
        ({"key": "keys/cosign.key", "publicKey": KEY}, {"COSIGN_PASSWORD"}),
        ({"key": "awskms:///alias/slipway"}, set()),
        (
            {
                "identity": "https://github.com/a/b/.github/workflows/up.yml@refs/heads/main",
                "issuer": "https://i.example",
            },
            {"ACTIONS_ID_TOKEN_REQUEST_TOKEN"},
        ),
    ],
    ids=["key in a variable", "key in a file", "key in a KMS", "identity"],
)
def test_programs_of_signing_see_their_secrets_alone(log: Path, signing: dict[str, Any], needed: set[str]) -> None:
    signer = SigningConfig.model_validate(signing)
    cosign.check(SigningConfig.model_validate({"key": "env://COSIGN_PRIVATE_KEY", "publicKey": KEY}))
    cosign.sign(REF, signer, None, {})
    cosign.attest(REF, "sbom", cosign.sbom(REF, None), signer, None)
    assert found(log) == {
        "version": set(), "sign": needed, "verify": set(), "scan": set(), "attest": needed, "verify-attestation": set(),
    }  # fmt: skip


@pytest.mark.parametrize(("job", "verbs"), [("native", ["publish"]), ("up", ["publish", "push-warm"])])
def test_only_the_publishing_step_of_a_job_has_secrets(job: str, verbs: list[str]) -> None:
    """Of the two steps of ``up``, one runs."""
    up = workflow(ROOT, "up.yml")["jobs"][job]
    secretive = ("secrets.", "github.token")
    assert not [name for name, value in up.get("env", {}).items() if any(each in str(value) for each in secretive)]
    having = [
        step.get("run", step.get("uses"))
        for step in up["steps"]
        if any(each in str({**step.get("env", {}), **step.get("with", {})}) for each in secretive)
    ]
    assert [line.partition(" -m ci ")[2].partition(" ")[0] for line in having] == verbs


@contextmanager
def published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pulumi_stack.Stack]:
    """Open a shared stack as `ci publish` does, on a machine whose preparation runs a program too."""
    (folder / "stacks").mkdir()
    (folder / "stacks/Pulumi.local.yaml").write_text("config:\n  slipway:flavor: local\n")
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    monkeypatch.setattr(
        ready,
        "ready",
        lambda *_, **__: subprocess.run(["pulumi", "prepare"], check=True) and [],
    )
    with pulumi_stack.shared(Checkout(folder), "local") as stack:
        yield stack


def test_pulumi_and_its_plugins_never_see_the_signing_key(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    with published(root, monkeypatch) as stack:
        stack.up([])
        file = Path(os.environ[WITHHELD])
        assert file.stat().st_mode & 0o777 == 0o600
        cosign.check(SigningConfig.model_validate({"key": "env://COSIGN_PRIVATE_KEY", "publicKey": KEY, "sbom": False}))
        cosign.sign(REF, SigningConfig.model_validate({"key": "env://COSIGN_PRIVATE_KEY", "publicKey": KEY}), None, {})
    assert not file.exists()
    assert os.environ["COSIGN_PRIVATE_KEY"] == CANARIES["COSIGN_PRIVATE_KEY"]
    hits = found(log)
    assert hits["sign"] == {"COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD"}
    for command in {*hits} - {"sign"}:
        assert not hits[command] & {"COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD"}, command
    assert "PULUMI_CONFIG_PASSPHRASE" not in hits["prepare"]
    assert "PULUMI_CONFIG_PASSPHRASE" in hits["up"]
