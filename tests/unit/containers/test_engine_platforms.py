"""The platforms that an engine runs, by a stand-in of its API; and the programs that it is tried with."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from containers.engine import engine_platforms
from containers.engine.engine_platforms import check_runnable, runnable_platforms
from containers.errors import SlipwayError
from tests.fakes import tls_engine
from tests.helpers.refusals import refusal_line

IMAGE, CONTAINER = "/images/sha256:0123", "/containers/c1"


@dataclass
class PlatformEngine:
    """An engine of an amd64 machine that runs every program.

    ``start`` and ``exit`` are the refusal of a start, and the status and output of the container.
    """

    host: str = ""
    start: str = ""
    exit: tuple[int, str] = (0, "")
    silent: bool = False
    requests: list[str] = field(default_factory=list)
    image: bytes = b""
    created: dict[str, Any] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Return the status and the content of an answer."""
        match method, path:
            case "GET", "/version":
                return 200, {"Os": "linux", "Arch": "amd64"}
            case "POST", "/images/load":
                self.image = body
                return 200, {"stream": "Loaded image ID: sha256:0123\n"}
            case "POST", "/containers/create":
                self.created = json.loads(body)
                return 201, {"Id": "c1"}
            case "POST", "/containers/c1/start":
                return (400, {"message": self.start}) if self.start else (204, None)
            case "POST", "/containers/c1/wait":
                return 200, {"StatusCode": self.exit[0]}
            case "GET", "/containers/c1/logs" if self.requests[-1].endswith("stderr=1"):
                return 200, self.exit[1]
            case "GET", "/containers/c1/logs":
                return 400, {"message": "Bad parameters: you must choose at least one stream"}
            case "DELETE", ("/containers/c1" | "/images/sha256:0123"):
                return 200, []
        return 404, {"message": f"no {path}"}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlatformEngine]:
    """The engine of the environment."""
    engine = PlatformEngine(f"unix://{tmp_path}/engine.sock")
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.delenv("DOCKER_CERT_PATH", raising=False)

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            path = re.sub(r"^/v\d+\.\d+", "", urlsplit(self.path).path)
            body = b""
            while self.headers["Transfer-Encoding"] and (size := int(self.rfile.readline(), 16)):
                body += self.rfile.read(size)
                self.rfile.readline()
            if path == "/_ping":
                status, content = 200, None
            else:
                words = [f"{name}={value}" for name, (value,) in parse_qs(urlsplit(self.path).query).items()]
                engine.requests.append(" ".join([self.command, path, *words]))
                status, content = engine.answer(self.command, path, body)
            if engine.silent:
                self.rfile.read()
                return
            self.send_response(status)
            self.end_headers()
            text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
            self.wfile.write(text.encode())

        do_GET = do_POST = do_DELETE = respond  # noqa: N815 - the names of the methods

        def log_message(self, *_: object) -> None:
            pass

    with tls_engine.handled(tmp_path / "engine.sock", Handler):
        yield engine


def test_platforms_of_an_emulating_engine_are_both(engine: PlatformEngine) -> None:
    assert runnable_platforms() == {"linux/amd64": "native", "linux/arm64": "emulated"}
    assert engine.requests[1:] == [
        "POST /images/load quiet=1",
        "POST /containers/create platform=linux/arm64",
        f"POST {CONTAINER}/start",
        f"POST {CONTAINER}/wait",
        f"DELETE {CONTAINER} force=1",
        f"DELETE {IMAGE} force=1",
    ]
    assert engine.created["Image"] == "sha256:0123"
    assert engine.created["HostConfig"]["NetworkMode"] == "none"


def test_platform_of_the_engine_itself_runs_nothing(engine: PlatformEngine) -> None:
    assert check_runnable(["linux/amd64"]) == {"linux/amd64": "native"}
    assert engine.requests == ["GET /version"]


def test_host_is_asked_before_the_environment(engine: PlatformEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert runnable_platforms(engine.host, among=["linux/amd64"]) == {"linux/amd64": "native"}


@pytest.mark.parametrize(
    ("start", "output"),
    [
        ("", "exec /probe: exec format error"),
        ('OCI runtime create failed: exec: "/probe": no such file or directory: unknown.', ""),
    ],
)
def test_platform_that_the_kernel_cannot_run_is_refused(engine: PlatformEngine, start: str, output: str) -> None:
    engine.start, engine.exit = start, (255, output)
    assert runnable_platforms() == {"linux/amd64": "native"}
    assert engine.requests[-2:] == [f"DELETE {CONTAINER} force=1", f"DELETE {IMAGE} force=1"]
    with pytest.raises(SlipwayError) as refusal:
        check_runnable(["linux/arm64"], engine.host, key="slipway:engines")
    assert str(refusal.value) == (
        f"slipway:engines: 'linux/arm64': the Docker engine at {engine.host} cannot run its programs; it runs "
        "linux/amd64: name an engine of that platform in slipway:engines, or let this one emulate it as "
        "docs/guides/emulation.md says"
    )


@pytest.mark.parametrize("unknown", ["linux/riscv64", "linux/arm64/v8", "windows/amd64"])
def test_platform_of_no_image_is_refused_untried(engine: PlatformEngine, unknown: str) -> None:
    assert runnable_platforms(among=[unknown]) == {}
    assert engine.requests == ["GET /version"]


@pytest.mark.parametrize(("start", "output"), [("no space left on device", ""), ("", "no space\nleft on device\n")])
def test_engine_that_fails_otherwise_is_an_error(engine: PlatformEngine, start: str, output: str) -> None:
    engine.start, engine.exit = start, (125, output)
    line = refusal_line(runnable_platforms)
    assert line.startswith("the Docker engine: it does not run a program of linux/arm64: no space")
    assert engine.requests[-1] == f"DELETE {IMAGE} force=1"


def test_engine_behind_ssh_fails_with_what_ssh_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_ssh = f"ssh: Could not resolve hostname {'builder.' * 12}example: Name or service not known"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho '{from_ssh}' >&2\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    assert refusal_line(runnable_platforms, "ssh://builder") == f"ssh://builder: {from_ssh}"


def test_machine_without_an_engine_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/gone")
    line = refusal_line(runnable_platforms)
    assert line == f"failed to connect to any docker daemon (unix://{tmp_path}/gone: No such file or directory)"


def test_engine_that_does_not_answer_is_an_error(engine: PlatformEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_platforms, "_SECONDS", 0.2)
    engine.silent = True
    assert refusal_line(runnable_platforms, engine.host) == f"{engine.host}: the Docker daemon said nothing for 0.2 s"


def program(engine: PlatformEngine) -> bytes:
    """Return the program in the image that the engine was given."""
    with tarfile.open(fileobj=io.BytesIO(engine.image)) as image:
        (manifest,) = json.load(image.extractfile("manifest.json") or io.BytesIO())
        config = json.load(image.extractfile(manifest["Config"]) or io.BytesIO())
        assert (config["os"], config["architecture"]) == ("linux", "arm64")
        layer = image.extractfile(manifest["Layers"][0])
        assert layer
        digest = hashlib.file_digest(layer, "sha256").hexdigest()  # type: ignore[arg-type]
        assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
        layer.seek(0)
        with tarfile.open(fileobj=layer) as files:
            member = files.getmember(config["config"]["Entrypoint"][0].removeprefix("/"))
            assert member.mode == 0o755
            content = files.extractfile(member)
            assert content
            return content.read()


def test_image_has_a_program_of_its_platform(engine: PlatformEngine) -> None:
    runnable_platforms()
    content = program(engine)
    assert len(content) == 132
    assert content[:5] == b"\x7fELF\x02"
    assert int.from_bytes(content[18:20], "little") == 183  # EM_AARCH64


def test_program_of_this_machine_ends_with_success(tmp_path: Path) -> None:
    own = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]
    file = tmp_path / "probe"
    file.write_bytes(engine_platforms.program(own))
    file.chmod(0o755)
    subprocess.run([file], check=True)
