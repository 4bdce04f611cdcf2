"""How the embedded provider asks a registry for a digest: whose credentials, and in which form."""

from __future__ import annotations

import base64
import json

import pytest
import requests

from containers.errors import SlipwayError
from toolchain.provider.docker_api import registry_digest


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_credentials_of_a_docker_configuration_are_its_hosts() -> None:
    content = json.dumps({"auths": {"r.example": {"auth": encoded("me:secret")}}})
    assert registry_digest._credentials("r.example", {"configFileContent": content}) == ("me", "secret")
    assert registry_digest._credentials("other.example", {"configFileContent": content}) == ("", "")


@pytest.mark.parametrize(
    ("host", "password", "header"),
    [
        ("r.example", "secret", f"Basic {encoded('me:secret')}"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "AWS:secret", f"Basic {encoded('AWS:secret')}"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "eyJ", f"Basic {encoded('AWS:eyJ')}"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "QVdT", "Basic QVdT"),
        ("ghcr.io", "secret", f"Bearer {encoded('secret')}"),
    ],
)
def test_authorization_of_a_host_has_its_form(host: str, password: str, header: str) -> None:
    assert registry_digest._authorization(host, "me", password) == {"Authorization": header}
    assert registry_digest._authorization(host, "", password) == {}


@pytest.mark.parametrize("challenge", ['Basic realm="https://r.example/token"', 'Bearer service="r.example"', ""])
def test_token_of_another_challenge_is_refused(challenge: str) -> None:
    with pytest.raises(SlipwayError, match="bad credentials: 401 Unauthorized"):
        registry_digest._token(requests.Session(), challenge, "scope", "me", "secret")
