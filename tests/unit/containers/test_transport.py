"""What is asked of a registry's token server."""

from __future__ import annotations

from typing import Any

import pytest

from containers.registry import credentials, transport


class TokenServer:
    """A response with a token, and the parameters of the request for it."""

    ok = True

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


@pytest.mark.parametrize(
    ("scope", "requested"),
    [(',scope="repository:a/b:pull,push"', "repository:a/b:pull,push"), ("", "repository:a/b:pull")],
    ids=["of the challenge", "of its own"],
)
def test_token_request_has_a_scope(scope: str, requested: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server, connection = TokenServer(), transport.Transport("r.example/a/b:1", "r.example", "a/b", None)
    monkeypatch.setattr(credentials, "of_machine", lambda _: None)
    monkeypatch.setattr(connection._session, "request", server.request)
    monkeypatch.setattr(connection, "body", lambda _: b'{"token": "t"}')
    header = connection._authenticate(f'Bearer realm="https://r.example/token",service="r.example"{scope}')
    assert header == "Bearer t"
    assert server.parameters == {"service": "r.example", "scope": requested}


@pytest.mark.parametrize("realm", ["https://r.example/token", "http://r.example/token"])
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
