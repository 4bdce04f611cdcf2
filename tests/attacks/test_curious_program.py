"""A program that reads images, such as Syft, looks for all the logins that the deployer's machine has."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.evidence import cosign, programs
from containers.registry.credentials import Login
from stacks.config.signing import SignerConfig

IMAGE = "r.example/acme/app@sha256:" + "a" * 64
DIGEST = "sha256:" + "b" * 64
TRAP = """#!/bin/sh
cat "$DOCKER_CONFIG"/config.json "$HOME"/.docker/config.json "$REGISTRY_AUTH_FILE" 2> /dev/null > {loot}
for host in r.example prod.example ghcr.io; do
    for helper in keys vault; do
        grep -q "$helper" "$DOCKER_CONFIG/config.json" && echo "$host" | docker-credential-$helper get >> {loot}
    done
done
echo '{{}}'
"""
"""Keeps what it can read, and asks the helpers that its configuration names."""
HELPER = """#!/bin/sh
read -r host
echo "{\\"ServerURL\\": \\"$host\\", \\"Username\\": \\"me\\", \\"Secret\\": \\"of-$host\\"}"
"""


@pytest.fixture
def loot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what the programs have read; the deployer's logins are in a file, and in helpers."""
    loot, config = tmp_path / "loot", tmp_path / "docker"
    texts = {**dict.fromkeys(("cosign", "syft", "grype"), TRAP.format(loot=loot)), "docker-credential-vault": HELPER}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    config.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_CONFIG", str(config))
    return loot


def _store(**content: Any) -> None:
    Path(os.environ["DOCKER_CONFIG"], "config.json").write_text(json.dumps(content))


def _auth(host: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"me:of-{host}".encode()).decode()}


LOGINS: dict[str, Callable[[], None]] = {
    "in a file": lambda: _store(auths={host: _auth(host) for host in ("r.example", "prod.example", "ghcr.io")}),
    "in a helper": lambda: _store(credsStore="vault"),
    "in helpers of hosts": lambda: _store(
        credHelpers={"r.example": "vault", "prod.example": "vault"}, auths={"ghcr.io": _auth("ghcr.io")}
    ),
}


@pytest.mark.parametrize("store", LOGINS.values(), ids=LOGINS)
@pytest.mark.parametrize("login", [None, Login("other.example", "me", "of-other.example")], ids=["machine", "another"])
def test_program_reads_the_login_of_its_image_alone(loot: Path, store: Callable[[], None], login: Login | None) -> None:
    store()
    for program in ("cosign", "syft", "grype"):
        programs.run([program, "x"], IMAGE, IMAGE, login, {})
        assert json.loads(loot.read_text()) == {"auths": {"r.example": _auth("r.example")}}
    programs.run(["cosign", "version"], "slipway:signing", "", login, {})
    assert json.loads(loot.read_text()) == {}


def test_token_in_place_of_a_password_is_passed_on(loot: Path) -> None:
    _store(auths={"r.example": {"identitytoken": "t"}, "prod.example": {"identitytoken": "p"}})
    programs.run(["syft", "scan"], IMAGE, IMAGE, None, {})
    assert json.loads(loot.read_text()) == {"auths": {"r.example": {"identitytoken": "t"}}}


def test_login_of_the_stack_is_for_its_registry_alone(loot: Path) -> None:
    """A parent is verified with the login of its own registry, and gets none of the stack's."""
    _store(auths={"prod.example": _auth("prod.example")})
    login = Login("r.example", "bot", "of-stack")
    signer = SignerConfig.model_validate({"publicKey": "-----BEGIN PUBLIC KEY-----\nA\n-----END PUBLIC KEY-----\n"})
    cosign.verify(f"parent.example/cuda@{DIGEST}", signer, login)
    assert json.loads(loot.read_text()) == {"auths": {}}
    cosign.verify(IMAGE, signer, login)
    assert "of-stack" in base64.b64decode(json.loads(loot.read_text())["auths"]["r.example"]["auth"]).decode()


def test_failing_helper_of_a_program_is_one_line(loot: Path) -> None:
    _store(credHelpers={"r.example": "gone", "prod.example": "vault"})
    with pytest.raises(
        SlipwayError, match=r"^r\.example/acme/app@\S+: the stored Docker login cannot be read: "
    ) as refused:
        programs.run(["cosign", "verify"], IMAGE, IMAGE, None, {})
    assert "\n" not in str(refused.value)
    assert not loot.exists()
