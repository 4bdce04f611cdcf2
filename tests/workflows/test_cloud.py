"""Logging in to Pulumi Cloud as a job: the real CLI, and a stand-in of the service that exchanges tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ci import pulumi_stack
from tests.fakes.loopback import serving

TOKEN = "eyJhbGciOiJub25lIn0.e30.c2ln"
"""A token in form, of nobody."""


class Cloud(BaseHTTPRequestHandler):
    """Gives a token of its own for GitHub's, and knows whose it is."""

    requests: list[dict[str, list[str]]]

    def do_POST(self) -> None:
        assert self.path == "/api/oauth/token"
        self.requests.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self._send({"access_token": "pul-job", "token_type": "token", "expires_in": 86400})

    def do_GET(self) -> None:
        assert self.path == "/api/user"
        assert self.headers["Authorization"] == "token pul-job"
        self._send({"githubLogin": "acme", "organizations": [{"githubLogin": "acme", "name": "acme"}]})

    def _send(self, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def cloud() -> Iterator[str]:
    Cloud.requests = []
    with serving(Cloud) as address:
        yield f"http://{address}"


def test_cloud_login_of_job_uses_its_identity_and_ends(
    cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audiences: list[str] = []
    monkeypatch.setattr(pulumi_stack, "token", lambda audience: (audiences.append(audience), TOKEN)[1])
    folder = tmp_path / "with space & ü"
    folder.mkdir()
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PULUMI_HOME": str(tmp_path / "pulumi")}
    credentials = tmp_path / "pulumi/credentials.json"
    with pulumi_stack._login("acme", cloud, folder, variables):
        assert json.loads(credentials.read_text())["accessTokens"][cloud] == "pul-job"
    assert audiences == ["urn:pulumi:org:acme"]
    (request,) = Cloud.requests
    assert request["subject_token"] == [TOKEN]
    assert request["audience"] == ["urn:pulumi:org:acme"]
    assert request["requested_token_type"] == ["urn:pulumi:token-type:access_token:organization"]
    assert not credentials.exists()


@pytest.mark.parametrize(("organization", "more"), [("", {}), ("acme", {"PULUMI_ACCESS_TOKEN": "pul-own"})])
def test_cloud_login_is_skipped_for_other_backends_and_tokens(
    cloud: str, tmp_path: Path, organization: str, more: dict[str, str]
) -> None:
    with pulumi_stack._login(organization, cloud, tmp_path, more):
        assert not list(tmp_path.iterdir())
    assert not Cloud.requests
