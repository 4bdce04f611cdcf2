"""What is asked of a registry's token server."""

from __future__ import annotations

from typing import Any

import pytest

from containers.registry import credentials, transport


class TokenServer:
    """A response with a token, and the parameters of the request for it."""

    ok = True

    def __init__(self) -> None:
        self.parameters: dict[str, str] = {}

    def get(self, _: str, params: dict[str, str], **__: Any) -> TokenServer:
        self.parameters = params
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
    monkeypatch.setattr(connection._session, "get", server.get)
    monkeypatch.setattr(connection, "body", lambda _: b'{"token": "t"}')
    header = connection._authenticate(f'Bearer realm="https://r.example/token",service="r.example"{scope}')
    assert header == "Bearer t"
    assert server.parameters == {"service": "r.example", "scope": requested}
