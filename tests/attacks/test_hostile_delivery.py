"""A stranger, and whoever got the webhook's secret, send what GitHub never sends: each gets a 4xx, and nothing is noted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from scaler import webhook
from tests.attacks.test_flooded_webhook import Vault

FORGED = f"sha256={'0' * 64}"
JOB: dict[str, Any] = {
    "id": 7,
    "labels": ["slipway"],
    "created_at": "2027-01-15T08:00:00Z",
    "conclusion": None,
    "runner_name": None,
    "run_attempt": 1,
}
PAYLOAD: dict[str, Any] = {"action": "queued", "repository": {"full_name": "acme/x"}, "workflow_job": JOB}


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Vault:
    vault = Vault(monkeypatch)
    for name, value in {"OWN_LABELS": "slipway", "LABELS": "slipway", "GITHUB_SCOPE": "acme", "JOBS": "t"}.items():
        monkeypatch.setenv(name, value)
    return vault


def status(body: Any, signature: str | None, **more: Any) -> int:
    headers = {"x-github-event": "workflow_job", "content-type": "application/json", "x-hub-signature-256": signature}
    event = {"headers": {name: value for name, value in headers.items() if value is not None}, "body": body, **more}
    answer = webhook.handle(event, None)
    assert "Traceback" not in answer["body"]
    assert "ours" not in answer["body"]
    code: int = answer["statusCode"]
    return code


@pytest.mark.parametrize("body", ["%%%", "=", "YQ=", "é", "YWJj\n", "\ud800", "A" * 6_000_001])
def test_malformed_base64_is_refused_without_the_secret(vault: Vault, body: str) -> None:
    assert status(body, FORGED, isBase64Encoded=True) == 400
    assert status(body, "sha256=", isBase64Encoded=True) == 401
    assert vault.reads == 0


@pytest.mark.parametrize("event", [{}, {"headers": None}, {"headers": {}, "body": None}, {"headers": {"a": "b"}}])
def test_empty_event_is_refused_without_the_secret(vault: Vault, event: dict[str, Any]) -> None:
    assert webhook.handle(event, None)["statusCode"] == 401
    assert vault.reads == 0


def test_surrogate_in_a_body_is_refused_without_the_secret(vault: Vault) -> None:
    assert status("\ud800", FORGED) == 400
    assert vault.reads == 0


def changed(**values: Any) -> str:
    return json.dumps({**PAYLOAD, **values})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "null",
        "[]",
        '"workflow_job"',
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        changed(workflow_job=None),
        changed(workflow_job=[]),
        changed(repository="acme/x"),
        changed(repository={"full_name": None}),
        changed(repository={"full_name": "acme/../../other/x"}),
        changed(repository={"full_name": "acme/.."}),
        changed(repository={"full_name": "acme/x?per_page=1#"}),
        changed(repository={"full_name": "acme/x\r\nHost: other"}),
        changed(workflow_job={**JOB, "labels": None}),
        changed(workflow_job={**JOB, "labels": [1]}),
        changed(workflow_job={**JOB, "labels": {"slipway": 1}, "id": []}),
        changed(workflow_job={**JOB, "id": "seven"}),
        changed(workflow_job={**JOB, "id": float("inf")}),
        changed(workflow_job={**JOB, "created_at": "yesterday"}),
        changed(workflow_job={**JOB, "created_at": 7}),
        changed(workflow_job={**JOB, "conclusion": {"a": 1}}),
        changed(workflow_job={**JOB, "runner_name": 1}),
        changed(workflow_job={**JOB, "run_attempt": "first"}),
    ],
    ids=lambda content: content[:40],
)
@pytest.mark.parametrize("encoded", [False, True], ids=["text", "base64"])
def test_signed_content_of_no_job_is_refused(vault: Vault, content: str, encoded: bool) -> None:
    signature = f"sha256={hmac.new(b'ours', content.encode(), hashlib.sha256).hexdigest()}"
    body = base64.b64encode(content.encode()).decode() if encoded else content
    assert status(body, signature, isBase64Encoded=encoded) == 422
    assert vault.reads == 1  # a table was not written: this vault has none
