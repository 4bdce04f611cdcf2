"""Google as far as a login needs it: the exchange of tokens, IAM, OAuth and the metadata of a machine.

It checks what Google documents to check ("Workload Identity Federation", "Method: token"): the audience, the time and
the provider's condition of a job's token, and who may be which service account. ``lies`` replaces an answer.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qsl

NUMBER = "123456789012"
POOL = f"projects/{NUMBER}/locations/global/workloadIdentityPools/slipway-publish-4711"
PROVIDER = f"{POOL}/providers/github"
ACCOUNT = "slipway-publish-4711@acme-ml.iam.gserviceaccount.com"
SUBJECT = "repo:acme/images:environment:publish"
CLAIMS = {
    "aud": f"https://iam.googleapis.com/{PROVIDER}",
    "environment": "publish",
    "iss": "https://token.actions.githubusercontent.com",
    "ref": "refs/heads/main",
    "repository": "acme/images",
    "repository_id": "4711",
    "sub": SUBJECT,
}
"""What GitHub says of the job that publishes (GitHub's documentation, "OpenID Connect reference")."""

FOREIGN: Mapping[str, Mapping[str, str]] = {
    "another repository": {
        "repository": "evil/images",
        "repository_id": "4712",
        "sub": "repo:evil/images:environment:publish",
    },
    "the repository of the same name, made after ours was deleted": {"repository_id": "4712"},
    "another branch": {"ref": "refs/heads/feature"},
    "a tag": {"ref": "refs/tags/v1"},
    "another environment": {"environment": "preview", "sub": "repo:acme/images:environment:preview"},
    "a job without an environment": {"environment": "", "sub": "repo:acme/images:ref:refs/heads/main"},
    "a pull request": {"environment": "", "ref": "refs/pull/7/merge", "sub": "repo:acme/images:pull_request"},
    "a pull request in a fork": {
        "environment": "",
        "ref": "refs/pull/1/merge",
        "repository": "mallory/images",
        "repository_id": "4713",
        "sub": "repo:mallory/images:pull_request",
    },
    "a longer name": {"repository": "acme/images-2", "repository_id": "47111", "sub": f"{SUBJECT}-2"},
}
"""By whose it is: how another token differs from ours."""

_TERM = re.compile(r"assertion\.(\w+) == '([^'\\]*)'")


def jwt(**claims: Any) -> str:
    """Return a token of GitHub for a job, which nobody signed."""
    content = {**CLAIMS, "exp": int(time.time()) + 300, **claims}
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, content))


def claims_of(token: str) -> dict[str, Any]:
    """Return what a token says."""
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def admits(condition: str, claims: Mapping[str, Any]) -> bool:
    """Evaluate a condition in CEL that is of comparisons of claims with texts, all of which must hold.

    Raises:
        ValueError: it has another form.
    """
    terms = [_TERM.fullmatch(term) for term in condition.split(" && ")]
    if not all(terms):
        raise ValueError(f"not a conjunction of comparisons: {condition}")
    return all(claims.get(term[1], "") == term[2] for term in terms if term)


class Google(BaseHTTPRequestHandler):
    """The endpoints, with the requests that they received. Tokens are ``federated-N``, ``access-N``."""

    condition: ClassVar[str] = ""
    requests: ClassVar[list[tuple[str, Any]]] = []
    lies: ClassVar[dict[str, tuple[int, Any]]] = {}
    issued: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers["Metadata-Flavor"]))
        if self.headers["Metadata-Flavor"] != "Google":
            self._answer(403, "Missing Metadata-Flavor:Google header.")
        else:
            self._answer(200, {"access_token": self._issue("access"), "expires_in": 299, "token_type": "Bearer"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        json_ = self.headers["Content-Type"] == "application/json"
        sent = json.loads(body) if json_ else dict(parse_qsl(body))
        self.requests.append((self.path, sent))
        if self.path == "/v1/token":
            self._exchange(sent)
        elif self.path == "/token":
            fresh = sent == {
                "client_id": "id", "client_secret": "hush", "grant_type": "refresh_token", "refresh_token": "1//mine",
            }  # fmt: skip
            revoked = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
            self._answer(*((200, {"access_token": self._issue("access")}) if fresh else (400, revoked)))
        elif self.headers["Authorization"].removeprefix("Bearer ") not in self.issued:
            self._answer(401, {"error": {"code": 401, "message": "Invalid credentials", "status": "UNAUTHENTICATED"}})
        elif self.path == f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken":
            assert sent == {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}
            self._answer(200, {"accessToken": self._issue("access"), "expireTime": "2026-11-28T11:00:00Z"})
        else:
            message = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
            self._answer(403, {"error": {"code": 403, "message": message, "status": "PERMISSION_DENIED"}})

    def _exchange(self, sent: Mapping[str, str]) -> None:
        claims = claims_of(sent["subject_token"])
        if sent["audience"] != f"//iam.googleapis.com/{PROVIDER}":
            self._refuse("invalid_target", 'The target service indicated by the "audience" parameters is invalid.')
        elif claims["aud"] != CLAIMS["aud"]:
            self._refuse(
                "invalid_grant", f"The audience in ID Token [{claims['aud']}] does not match the expected audience."
            )
        elif claims["exp"] < time.time():
            self._refuse("invalid_grant", "ID Token is stale to sign-in.")
        elif not admits(self.condition, claims):
            self._refuse("unauthorized_client", "The given credential is rejected by the attribute condition.")
        else:
            self._answer(200, {"access_token": self._issue("federated"), "expires_in": 3599, "token_type": "Bearer"})

    def _refuse(self, error: str, description: str) -> None:
        self._answer(400, {"error": error, "error_description": description})

    def _issue(self, kind: str) -> str:
        token = f"{kind}-{len(self.issued)}"
        self.issued.add(token)
        return token

    def _answer(self, status: int, content: Any) -> None:
        status, content = self.lies.get(self.path, (status, content))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
