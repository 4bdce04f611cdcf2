"""Logins to Azure's container registry with a job's identity, requested just before a push."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import pytest

from containers.errors import SlipwayError
from containers.registry.logins import azure_login, stack_login, token_request
from stacks import flavors
from stacks.config.registries.acr import AcrRegistryConfig
from tests.fakes.loopback import serving
from tests.fakes.pulumi_mocks import SECRET, run

ACR = {"kind": "acr", "repository": "acme1.azurecr.io/x"}


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A job that Azure knows, without a stored login; return the file of its token."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("AZURE_CLIENT_SECRET", raising=False)
    file = tmp_path / "token"
    file.write_text("who-the-job-is\n")
    for name, value in zip(azure_login.VARIABLES, ("client", "tenant", str(file)), strict=True):
        monkeypatch.setenv(name, value)
    return file


class Azure(BaseHTTPRequestHandler):
    """Entra and a registry, with the requests that they received."""

    requests: ClassVar[list[tuple[str, dict[str, str]]]] = []
    answers: ClassVar[dict[str, tuple[int, Any]]] = {}

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.requests.append((self.path, dict(parse_qsl(form))))
        status, content = self.answers[self.path]
        self.send_response(status)
        self.send_header("Location", "/elsewhere")  # counts for a redirect alone
        self.end_headers()
        self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry's host, in a cloud on loopback."""
    Azure.requests.clear()
    Azure.answers |= {
        "/tenant/oauth2/v2.0/token": (200, {"access_token": "entras"}),
        "/oauth2/exchange": (200, {"refresh_token": "the-registrys"}),
    }
    with serving(Azure) as address:
        monkeypatch.setattr(
            azure_login, "_CLOUDS", {address.rpartition(".")[2]: (f"http://{address}", "https://audience")}
        )
        monkeypatch.setattr(azure_login, "_EXCHANGE", "http://{host}/oauth2/exchange")
        yield address


def test_login_exchanges_job_token_for_registry_token(host: str) -> None:
    assert azure_login.login(host) == (azure_login.USER, "the-registrys")
    (_, asking), (_, exchanging) = Azure.requests
    assert asking == {
        "grant_type": "client_credentials",
        "client_id": "client",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "who-the-job-is",
        "scope": "https://audience/.default",
    }
    assert exchanging == {
        "grant_type": "access_token", "service": host, "tenant": "tenant", "access_token": "entras",
    }  # fmt: skip


def test_login_is_tried_again_and_the_answer_bounded(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_request, "_PAUSE", 0.01)
    Azure.answers["/oauth2/exchange"] = 503, b" " * (2 << 20)
    with pytest.raises(SlipwayError, match="ValueError: it has more than 1 MiB"):
        azure_login.login(host)
    assert [path for path, _ in Azure.requests] == ["/tenant/oauth2/v2.0/token", *["/oauth2/exchange"] * 4]


def test_login_sends_a_redirect_nothing(host: str) -> None:
    Azure.answers["/oauth2/exchange"] = 307, {}
    with pytest.raises(SlipwayError, match="KeyError: 'refresh_token'"):
        azure_login.login(host)
    assert len(Azure.requests) == 2


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        (
            "/tenant/oauth2/v2.0/token",
            (400, {"error_description": "AADSTS700213: no\r\nrecord"}),
            "AADSTS700213: no record",
        ),
        ("/oauth2/exchange", (401, {"errors": [{"code": "UNAUTHORIZED", "message": "no AcrPush"}]}), "no AcrPush"),
        ("/oauth2/exchange", (403, {}), "no reason given"),
        ("/oauth2/exchange", (200, {}), "KeyError: 'refresh_token'"),
        ("/oauth2/exchange", (200, []), "TypeError: "),
        ("/oauth2/exchange", (200, {"refresh_token": {}}), "ValueError: what it gives is no token"),
        ("/oauth2/exchange", (200, {"refresh_token": "a\r\nb: c"}), "ValueError: what it gives is no token"),
        ("/oauth2/exchange", (400, {"error_description": {"a": 1}}), "{'a': 1}"),
        ("/oauth2/exchange", (400, {"errors": {"a": 1}}), "KeyError: 0"),
        ("/oauth2/exchange", (400, b"[" * 100_000), "RecursionError: "),
        ("/oauth2/exchange", (200, b" " * (2 << 20)), "ValueError: it has more than 1 MiB"),
    ],
)
def test_login_refused_is_one_line_without_token(host: str, path: str, answer: tuple[int, Any], reason: str) -> None:
    Azure.answers[path] = answer
    with pytest.raises(SlipwayError) as caught:
        azure_login.login(host)
    assert str(caught.value).startswith(
        f"slipway:registry: login with $AZURE_CLIENT_ID failed: http://{host}{path}: {reason}"
    )
    assert "\n" not in str(caught.value)
    assert "entras" not in str(caught.value)


def test_login_without_token_file_is_one_line(job: Path) -> None:
    job.unlink()
    with pytest.raises(SlipwayError, match=r"^slipway:registry: \$AZURE_FEDERATED_TOKEN_FILE: .*: No such file"):
        azure_login.login("acme1.azurecr.io")


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("acme1.azurecr.io", "https://login.microsoftonline.com"),
        ("acme1.azurecr.us", "https://login.microsoftonline.us"),
        ("acme1.azurecr.cn", "https://login.chinacloudapi.cn"),
    ],
)
def test_registry_of_each_cloud_has_its_entra_endpoint(host: str, endpoint: str) -> None:
    assert AcrRegistryConfig.HOSTS
    assert AcrRegistryConfig.HOSTS.fullmatch(host)
    assert azure_login._CLOUDS[host.rpartition(".")[2]][0] == endpoint


def test_registry_of_an_unknown_cloud_is_no_acr() -> None:
    assert AcrRegistryConfig.HOSTS
    assert not AcrRegistryConfig.HOSTS.fullmatch("acme1.azurecr.de")
    assert sorted(azure_login._CLOUDS) == ["cn", "io", "us"]


def test_short_lived_login_needs_identity_and_no_other_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def registry(**given: str) -> AcrRegistryConfig:
        loaded = flavors.load({"flavor": "local", "registry": {**ACR, **given}}, "stack t").registry
        assert isinstance(loaded, AcrRegistryConfig)
        return loaded

    stack_login.check(registry())
    assert stack_login.short_lived(registry())
    assert stack_login.short_lived(registry(username="me", password="mine")) is None
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {"acme1.azurecr.io": {"auth": "bWU6bWluZQ=="}}}))
    assert stack_login.short_lived(registry()) is None
    (tmp_path / "docker/config.json").unlink()
    monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE")
    with pytest.raises(
        SlipwayError, match=r"AZURE_CLIENT_SECRET, or \$AZURE_CLIENT_ID, \$AZURE_TENANT_ID, \$AZURE_FED"
    ):
        stack_login.check(registry())


def test_images_have_separate_secret_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    def login(host: str) -> tuple[str, str]:
        requests.append(host)
        return azure_login.USER, f"token-{len(requests)}"

    monkeypatch.setattr(azure_login, "login", login)
    recorder, values = run(registry=ACR)
    given = {name: recorder.image(name)["registry"] for name in ("torch", "extras")}
    assert all(one[SECRET] for one in given.values())
    assert [one["value"]["username"] for one in given.values()] == [azure_login.USER] * 2
    assert [one["value"]["password"] for one in given.values()] == ["token-1", "token-2"]
    assert "token-" not in repr(values["outputs"])
    requests.clear()
    run(registry=ACR, preview=True)
    run(registry=ACR, publish=False)
    assert not requests
