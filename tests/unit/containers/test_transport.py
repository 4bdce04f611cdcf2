"""What is asked of a registry's token server."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest

from containers.registry import credentials, transport
from containers.registry.credentials import Login
from tests.fakes.loopback import serving
from tests.helpers.every import every


class TokenServer:
    """A response with a token, and the parameters of the request for it."""

    ok, status_code = True, 200

    def __init__(self) -> None:
        self.method = ""
        self.parameters: dict[str, str] = {}

    def request(self, method: str, _: str, **exchange: Any) -> TokenServer:
        self.method, self.parameters = method, exchange.get("params") or exchange["data"]
        return self

    def __enter__(self) -> TokenServer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@every(
    "scope, requested", [(',scope="repository:a/b:pull,push"', "repository:a/b:pull,push"), ("", "repository:a/b:pull")]
)
def test_token_request_has_a_scope(scope: str, requested: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server, connection = TokenServer(), transport.Transport("r.example/a/b:1", "r.example", "a/b", None)
    monkeypatch.setattr(credentials, "of_machine", lambda _: None)
    monkeypatch.setattr(connection._session, "request", server.request)
    monkeypatch.setattr(connection, "body", lambda _: b'{"token": "t"}')
    header = connection._authenticate(f'Bearer realm="https://r.example/token",service="r.example"{scope}')
    assert header == "Bearer t"
    assert server.parameters == {"service": "r.example", "scope": requested}


@every("realm", ["https://r.example/token", "http://r.example/token"])
def test_identity_token_is_exchanged_and_not_in_clear(realm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    login = credentials.Login("r.example", "<token>", "", "secret")
    server, connection = TokenServer(), transport.Transport("r.example/a/b:1", "r.example", "a/b", login)
    monkeypatch.setattr(connection._session, "request", server.request)
    monkeypatch.setattr(connection, "body", lambda _: b'{"access_token": "t"}')
    challenge = f'Bearer realm="{realm}",service="r.example",scope="repository:a/b:pull,push"'
    assert "secret" not in repr(login)
    if realm.startswith("http:"):
        with pytest.raises(ValueError, match="would get the login without encryption"):
            connection._authenticate(challenge)
        assert server.parameters == {}
        return
    assert connection._authenticate(challenge) == "Bearer t"
    assert (server.method, connection._authorization) == ("POST", "")
    assert server.parameters == {
        "service": "r.example",
        "scope": "repository:a/b:pull,push",
        "grant_type": "refresh_token",
        "refresh_token": "secret",
        "client_id": "slipway",
    }


class Scoped(BaseHTTPRequestHandler):
    """A registry that wants another token for a push than for the rest, and gives that one once it is let."""

    heard: ClassVar[list[str]] = []
    asked: ClassVar[threading.Event] = threading.Event()
    let: ClassVar[threading.Event] = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        scope = "push" if "push" in self.path else "pull"
        if scope == "push":
            self.asked.set()
            self.let.wait(20)
        self._answer(200, {}, f'{{"token": "{scope}"}}'.encode())

    def do_HEAD(self) -> None:
        self._guarded("pull")

    def do_POST(self) -> None:
        self._guarded("push")

    def _guarded(self, scope: str) -> None:
        given = self.headers.get("Authorization", "")
        self.heard.append(given)
        realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="s",scope="repository:a/b:{scope}"'
        if self.headers["User-Agent"] != "slipway":  # by which a registry's logs know us
            self._answer(400, {})
        elif given == f"Bearer {scope}":
            self._answer(200, {})
        else:
            self._answer(401, {"WWW-Authenticate": realm})

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def test_login_for_tokens_is_not_sent_to_the_registry() -> None:
    """Several layers are pushed at once. While one waits for another token, the others go with the one that there is."""
    with serving(Scoped) as address:
        connection = transport.Transport(f"{address}/a/b:1", address, "a/b", Login(address, "user", "secret"))
        assert connection.request("HEAD", "blobs/1", "*/*").ok
        pushed: list[int] = []
        push = threading.Thread(
            target=lambda: pushed.append(connection.request("POST", "blobs/uploads/", "*/*", b"").status_code)
        )
        push.start()
        assert Scoped.asked.wait(20)
        assert connection.request("HEAD", "blobs/1", "*/*").ok
        Scoped.let.set()
        push.join()
    assert pushed == [200]
    assert Scoped.heard == ["", "Bearer pull", "Bearer pull", "Bearer pull", "Bearer push"]
