"""An engine that builds one image asks for the logins of all others: it is answered for what this build needs alone."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import pytest

from containers.engine.connection import Address, Connection
from containers.engine.engine import Engine
from containers.engine.relay import pass_on
from containers.errors import SlipwayError
from tests.fakes import tls_engine
from tests.fakes.tls_engine import TlsEngine
from toolchain.provider import build
from toolchain.provider.docker_api.protos import (
    CredentialsRequest,
    CredentialsResponse,
    GetSecretRequest,
    GetSecretResponse,
)
from toolchain.provider.inputs import BuildInputs, ImageInputs, RegistryInputs
from toolchain.provider.provider_base import Operation

OWN, PARENT, PROD = "ghcr.io", "nvcr.example", "prod.example.com"
IMAGE_ID = "sha256:" + "1" * 64
STORED = {
    OWN: "own-word",
    PARENT: "parent-word",
    PROD: "prod-word",
    "https://index.docker.io/v1/": "hub-word",
    f"{PARENT}:5000": "port-word",
    "unreached.example": "unreached-word",
}


@dataclass
class Greedy:
    """An engine that asks for what it likes.

    ``hosts`` and ``secrets`` are what it asks for during a build; ``loot`` is what it got, by host or id, and
    ``headers`` are those of its requests, by path.
    """

    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    address: str = ""
    loot: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, socket.socket] = field(default_factory=dict)

    def rob(self, session: str) -> None:
        """Ask over the session of a build, as BuildKit does."""
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel,
        ):
            ready = grpc.channel_ready_future(channel)
            ours = listener.accept()[0]
            threading.Thread(target=lambda: pass_on(ours, self.sessions[session]), daemon=True).start()
            ready.result(20)
            credentials = channel.unary_unary("/moby.filesync.v1.Auth/Credentials", None, None)
            for host in self.hosts:
                answer = credentials(CredentialsRequest(host=host).SerializeToString(), timeout=20)
                self.loot[host] = CredentialsResponse.FromString(answer).secret
            get = channel.unary_unary("/moby.buildkit.secrets.v1.Secrets/GetSecret", None, None)
            for name in self.secrets:
                with suppress(grpc.RpcError):
                    answer = get(GetSecretRequest(ID=name).SerializeToString(), timeout=20)
                    self.loot[name] = GetSecretResponse.FromString(answer).data.decode()


@contextmanager
def greedy(hosts: tuple[str, ...] = (), secrets: tuple[str, ...] = ()) -> Iterator[Greedy]:
    engine = Greedy(hosts, secrets)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"Id": IMAGE_ID, "RepoDigests": []})

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            path = url.path.partition("/v1.41")[2]
            if path == "/session":
                engine.sessions[self.headers["X-Docker-Expose-Session-Uuid"]] = self.connection
                self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
                ended = threading.Event()
                ended.wait(60)
                return
            if self.headers["Transfer-Encoding"]:
                while self.rfile.readline().strip() != b"0":
                    pass
                self.rfile.readline()
            for name in ("X-Registry-Auth", "X-Registry-Config"):
                if self.headers[name]:
                    engine.headers[path] = json.loads(base64.urlsafe_b64decode(self.headers[name]))
            for session in parse_qs(url.query).get("session", []):
                engine.rob(session)
            self.answer({"aux": {"ID": IMAGE_ID, "Tag": "1", "Digest": IMAGE_ID, "Size": 1}})

        def answer(self, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode() + b"\n"
            self.send_response(200)
            self.send_header("Api-Version", "1.41")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    engine.address = f"tcp://127.0.0.1:{server.server_port}"
    try:
        yield engine
    finally:
        server.shutdown()
        server.socket.close()


def auths(stored: Mapping[str, str]) -> dict[str, Any]:
    return {
        "auths": {host: {"auth": base64.b64encode(f"me:{word}".encode()).decode()} for host, word in stored.items()}
    }


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The deployer's Docker configuration, with logins of what this build needs and of what it does not."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "config.json").write_text(json.dumps(auths(STORED)))
    return tmp_path / "config.json"


def built(engine: Greedy, folder: Path, dockerfile: str, **changes: Any) -> None:
    """Build an image, and push it, on an engine."""
    context = folder / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile)
    inputs = {"args": {}, "builder": "2", "cache_from": [], "target": "", "registry": RegistryInputs(), **changes}
    registry, push = inputs.pop("registry"), inputs.pop("push", True)
    recipe = BuildInputs(
        context=str(context),
        dockerfile=str(context / "Dockerfile"),
        add_hosts=[],
        network="",
        platform="linux/amd64",
        **{key: value for key, value in inputs.items() if key not in {"secrets", "name"}},
    )
    image = ImageInputs(inputs.get("name", f"{OWN}/acme/x:1"), recipe, registry, not push)
    display = build.Display(lambda _: None, lambda *_: None, lambda text: text)
    client = Engine.connect(Address(engine.address))
    build.produce(image, client, display, Operation(), push=push, secrets=inputs.get("secrets"))


BASE = f"ARG BASE_IMAGE=scratch\nFROM {PARENT}/cuda:1 AS first\nFROM ${{BASE_IMAGE}}\nCOPY --from=first / /\n"
STRANGERS = (
    PROD,
    "docker.io",
    "registry-1.docker.io",
    f"{PARENT}:5000",
    f"{PARENT}:443",
    f"{PARENT}.",
    f"{PROD}/{OWN}",
    "unreached.example",
)


def test_engine_gets_the_logins_of_its_build_alone(tmp_path: Path) -> None:
    with greedy(hosts=(*STRANGERS, OWN, PARENT, PARENT.upper())) as engine:
        built(engine, tmp_path, BASE.replace("FROM", "FROM unreached.example/a AS unreached\nFROM", 1))
    assert [engine.loot[host] for host in (OWN, PARENT, PARENT.upper())] == ["own-word", "parent-word", "parent-word"]
    assert {host: engine.loot[host] for host in STRANGERS} == dict.fromkeys(STRANGERS, "")


@pytest.mark.parametrize(
    "host", ["docker.io", "index.docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"]
)
def test_hub_has_one_login_by_each_of_its_names(tmp_path: Path, host: str) -> None:
    with greedy(hosts=(host, PROD)) as engine:
        built(engine, tmp_path, "FROM debian:12\n")
    assert engine.loot == {host: "hub-word", PROD: ""}


def test_parent_of_an_argument_brings_its_hosts_login(tmp_path: Path) -> None:
    with greedy(hosts=(PROD, PARENT)) as engine:
        built(
            engine,
            tmp_path,
            "ARG B=scratch\nFROM ${B}\n",
            args={"B": f"{PROD}/base@{IMAGE_ID}", "OTHER": f"{PARENT}/x"},
        )
    assert engine.loot == {PROD: "prod-word", PARENT: ""}


def test_login_of_the_program_reaches_its_registry_alone(tmp_path: Path) -> None:
    with greedy(hosts=(PROD, OWN, "GHCR.IO")) as engine:
        built(engine, tmp_path, "FROM scratch\nCOPY . /\n", registry=RegistryInputs(OWN, "me", "mine"))
    assert engine.loot == {PROD: "", OWN: "mine", "GHCR.IO": "mine"}


def test_build_that_pushes_nothing_gets_no_own_login(tmp_path: Path) -> None:
    with greedy(hosts=(OWN, PROD)) as engine:
        built(engine, tmp_path, "FROM scratch\nCOPY . /\n", push=False)
    assert engine.loot == {OWN: "", PROD: ""}


def test_unreadable_dockerfile_lends_the_own_login_alone(tmp_path: Path) -> None:
    with greedy(hosts=(OWN, PROD, PARENT), secrets=("netrc",)) as engine:
        built(engine, tmp_path, f"FROM {PARENT}/x\nFROM ${{MISSING}}\n", secrets={"netrc": "word"})
    assert engine.loot == {OWN: "own-word", PROD: "", PARENT: ""}


def test_first_builder_gets_the_logins_of_its_build_alone(tmp_path: Path) -> None:
    with greedy() as engine:
        built(engine, tmp_path, BASE, builder="1")
    assert set(engine.headers["/build"]) == {OWN, PARENT}


def test_cached_image_is_pulled_with_its_own_hosts_login(tmp_path: Path) -> None:
    """The engine sends what it is given to the host of the image that it pulls."""
    with greedy() as engine:
        built(
            engine,
            tmp_path,
            "FROM scratch\nCOPY . /\n",
            cache_from=["evil.example/x:1"],
            registry=RegistryInputs(OWN, "me", "mine"),
        )
    assert not engine.headers["/images/create"].keys() & {"username", "password"}


def test_push_to_another_host_takes_no_login_along(tmp_path: Path) -> None:
    with greedy() as engine:
        built(
            engine,
            tmp_path,
            "FROM scratch\nCOPY . /\n",
            name="evil.example/x:1",
            registry=RegistryInputs(PROD, "me", "mine"),
        )
    assert engine.headers["/images/evil.example/x/push"] == {}


def test_push_of_a_digest_is_refused_before_the_build(tmp_path: Path) -> None:
    with greedy(hosts=(OWN,)) as engine:
        with pytest.raises(
            SlipwayError, match=r"^imageName ghcr\.io/acme/x@.*: cannot push a digest reference; name a tag$"
        ):
            built(engine, tmp_path, "FROM scratch\nCOPY . /\n", name=f"{OWN}/acme/x@{IMAGE_ID}")
        assert engine.loot == {}
        built(engine, tmp_path, "FROM scratch\nCOPY . /\n", name=f"{OWN}/acme/x@{IMAGE_ID}", push=False)


@pytest.mark.parametrize("kind", ["credsStore", "credHelpers"])
def test_helper_is_asked_for_hosts_of_the_build_alone(keys: Path, tmp_path: Path, kind: str) -> None:
    helper = tmp_path / "docker-credential-noting"
    helper.write_text(
        f'#!/bin/sh\nread host; echo "$host" >> {tmp_path}/asked\n'
        'echo "{\\"ServerURL\\": \\"$host\\", \\"Username\\": \\"me\\", \\"Secret\\": \\"of-$host\\"}"\n'
    )
    helper.chmod(0o755)
    keys.write_text(
        json.dumps({kind: "noting" if kind == "credsStore" else dict.fromkeys([OWN, PARENT, PROD], "noting")})
    )
    with greedy(hosts=(PROD, PARENT)) as engine:
        built(engine, tmp_path, BASE)
    assert engine.loot == {PROD: "", PARENT: f"of-{PARENT}"}
    assert set((tmp_path / "asked").read_text().split()) == {OWN, PARENT}


def test_engine_gets_the_secrets_that_its_steps_mount(tmp_path: Path) -> None:
    lent = {"netrc": "of-netrc", "other": "of-other", "unreached": "of-unreached"}
    mounts = "FROM scratch AS away\nRUN --mount=type=secret,id=unreached true\n"
    mounts += "FROM scratch\nRUN --mount=type=secret,target=/dev/netrc,mode=0444 true\n"
    with greedy(secrets=(*lent, "../netrc")) as engine:
        built(engine, tmp_path, mounts, secrets=lent)
    assert engine.loot == {"netrc": "of-netrc"}


@pytest.mark.parametrize("client", ["provider", "router"])
def test_engine_under_another_name_is_refused(tmp_path: Path, client: str) -> None:
    """Its certificate is of the right authority, which has others' engines too."""

    def connect(engine: TlsEngine) -> None:
        address = Address(f"tcp://{engine.address}", tls=engine.tls)
        if client == "provider":
            Engine.connect(address)
        else:
            Connection(address).close()

    with tls_engine.serve(tmp_path) as engine:
        connect(engine)
    with (
        tls_engine.serve(tmp_path, "other.example") as engine,
        pytest.raises((SlipwayError, OSError), match="certificate verify failed"),
    ):
        connect(engine)
