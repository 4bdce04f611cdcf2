"""A stranger calls the webhook's open address as often as it can: each call shall cost nothing but itself."""

from __future__ import annotations

import hashlib
import hmac
import json
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import aws, webhook

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:webhook-AbCdEf"
BODY = json.dumps({"zen": "Design for failure."})


class Vault:
    """Secrets Manager, which counts how often it is read, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text, self.reads, self.now = "ours", 0, 1_800_000_000.0
        self.down = False
        for module in (aws, webhook):
            monkeypatch.setattr(module, "client", lambda _: self)
        monkeypatch.setattr(aws, "time", SimpleNamespace(time=lambda: self.now), raising=False)
        monkeypatch.setattr(aws, "_SECRETS", {}, raising=False)
        monkeypatch.setenv("WEBHOOK_SECRET", ARN)

    def get_secret_value(self, **_: Any) -> dict[str, str]:
        self.reads += 1
        if self.down:
            raise aws.FAILURES[1]({"Error": {"Code": "Throttling", "Message": ""}}, "GetSecretValue")
        return {"SecretString": self.text}


def call(signature: str | None) -> int:
    headers = {"x-github-event": "ping", "content-type": "application/json"}
    headers |= {"x-hub-signature-256": signature} if signature is not None else {}
    status: int = webhook.handle({"headers": headers, "body": BODY}, None)["statusCode"]
    return status


def signed(key: str) -> str:
    return f"sha256={hmac.new(key.encode(), BODY.encode(), hashlib.sha256).hexdigest()}"


@pytest.mark.parametrize(
    "signature", [None, "", "sha256=", "sha1=" + "0" * 40, f"sha256={'0' * 63}é", "sha256=" + "0" * 64]
)
def test_forged_deliveries_ask_for_almost_no_secret(monkeypatch: pytest.MonkeyPatch, signature: str | None) -> None:
    vault = Vault(monkeypatch)
    for _ in range(500):
        assert call(signature) == 401
        vault.now += 0.1
    assert vault.reads <= (2 if signature == "sha256=" + "0" * 64 else 0)


def test_genuine_deliveries_read_their_secret_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(monkeypatch)
    assert {call(signed("ours")) for _ in range(50)} == {200}
    assert vault.reads == 1


def test_replaced_secret_counts_within_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(monkeypatch)
    assert call(signed("ours")) == 200
    vault.text, vault.now = "newer", vault.now + 31
    assert call(signed("newer")) == 200
    assert call(signed("ours")) == 401


def test_known_secret_outlives_an_outage_of_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(monkeypatch)
    assert call(signed("ours")) == 200
    vault.down, vault.now = True, vault.now + 7200
    assert call(signed("ours")) == 200
