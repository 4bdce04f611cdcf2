"""How the embedded provider asks a registry for a digest: whose credentials, and in which form."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from threading import Thread

import certifi
import pytest

from containers.errors import SlipwayError
from containers.registry.credentials import Login
from tests.fakes.registry import Registry
from tests.helpers.every import every
from toolchain.provider.docker_api.registry_digest import _login, digest

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
NAME = "a/b:1"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def entry(registry: Registry, **login: str) -> list[dict[str, str]]:
    return [{"address": f"http://{registry.address}", **login}]


@every(
    "host, password, expected",
    [
        ("r.example", "secret", Login("r.example", "me", "secret")),
        ("ghcr.io", "secret", Login("ghcr.io", "me", "secret")),
        (ECR, "AWS:secret", Login(ECR, "AWS", "secret")),
        (ECR, "eyJ9", Login(ECR, "AWS", "eyJ9")),
        (ECR, encoded("AWS:secret"), Login(ECR, "AWS", "secret")),
    ],
)
def test_login_of_a_host_has_its_form(host: str, password: str, expected: Login) -> None:
    registries = [{"address": f"https://{host}", "username": "me", "password": password}]
    assert _login(host, registries) == ("https", expected)
    assert _login("other.example", registries) == ("https", Login("other.example", "", ""))


def test_login_of_docker_hub_has_any_of_its_addresses() -> None:
    for address in ("https://index.docker.io/v1/", "registry-1.docker.io", "docker.io"):
        registries = [{"address": address, "username": "me", "password": "secret"}]
        assert _login("docker.io", registries) == ("https", Login("docker.io", "me", "secret"))


@pytest.mark.parametrize("token", [None, "t0ken"])
def test_lookup_with_login_passes_the_registry(registry: Registry, tmp_path: Path, token: str | None) -> None:
    reference = registry.image(NAME, [b"layer"])
    registry.login, registry.token = ("me", "secret"), token
    content = json.dumps({"auths": {registry.address: {"auth": encoded("me:secret")}}})
    (file := tmp_path / "config.json").write_text(content)
    for login in (
        {"username": "me", "password": "secret"},
        {"configFileContent": content},
        {"configFile": str(file)},
    ):
        name = f"{registry.address}/{NAME}"
        assert digest(name, entry(registry, **login), verify=True) == reference.partition("@")[2]


@pytest.mark.parametrize("token", [None, "t0ken"])
def test_lookup_with_wrong_login_is_refused(registry: Registry, token: str | None) -> None:
    registry.image(NAME, [b"layer"])
    registry.login, registry.token = ("me", "secret"), token
    other = json.dumps({"auths": {"other.example": {"auth": encoded("me:secret")}}})
    for login in ({"username": "me", "password": "wrong"}, {"configFileContent": other}, {"authDisabled": "yes"}):
        with pytest.raises(SlipwayError, match=f"http://{registry.address}/{NAME}: bad credentials: 401") as refusal:
            digest(f"{registry.address}/{NAME}", entry(registry, **login), verify=True)
        assert "wrong" not in str(refusal.value)


def test_lookup_in_malformed_configuration_is_refused(registry: Registry) -> None:
    for content in ("{", "[1]", '{"auths": [1]}'):
        with pytest.raises(SlipwayError, match=f"registryAuth {registry.address}: .*cannot be read"):
            digest(f"{registry.address}/{NAME}", entry(registry, configFileContent=content), verify=True)


BARE = b'{"schemaVersion": 2}'


class Headless(BaseHTTPRequestHandler):
    """A registry that sends manifests without their digest."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BARE)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(BARE)

    def log_message(self, *_: object) -> None:
        pass


def test_lookup_without_verification_takes_any_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = ["-subj", "/CN=other.example", "-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/certificate"]
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", *certificate], check=True)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Headless) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        name = f"127.0.0.1:{server.server_port}/{NAME}"
        bare = f"sha256:{hashlib.sha256(BARE).hexdigest()}"
        assert digest(name, [], verify=False) == bare
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certifi.where()))
        assert digest(name, [], verify=False) == bare
        with pytest.raises(SlipwayError, match=f"getRegistryImage: https://{name}: .*certificate"):
            digest(name, [], verify=True)
        server.shutdown()
