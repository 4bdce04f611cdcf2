"""A registry on loopback with tags, manifests, blobs, a password, and anonymous tokens as on Docker Hub."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.loopback import serving

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


GZIP = b"\x1f\x8b"


class Registry:
    """The content of the registry, its faults, and the requests that it received.

    ``digests`` maps ``name:tag`` to a digest, or to the status of a refusal. ``manifests`` and ``blobs`` are by digest;
    content that does not fit its digest makes a corrupt one. ``swapped`` has, by the digest of a request, that of the
    manifest which answers it, coherent in itself. ``refusals`` are the statuses of the next responses.
    ``answers`` are the statuses and headers of the next answers to a method, by its name, and ``token_answers`` the
    statuses of the token server's.
    ``uploads`` are the statuses of the next uploads of blobs; ``rewritten`` is the digest that it states of a pushed manifest.
    ``endless`` are the digests of blobs that go on with blanks. ``broken`` is the number of responses that end in the middle; while ``slow`` is set, blobs halt there, and while
    ``silent`` is set, there is no response. ``unknown`` maps media types that it takes no manifest of to the status of
    its refusal, and ``kept`` maps each ``name:tag`` that must not move to that of a move's. ``login`` is required for a
    token, or without ``token`` for everything.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.digests: dict[str, str | int] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.swapped: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.refusals: list[int] = []
        self.answers: dict[str, list[tuple[int, dict[str, str]]]] = {}
        self.token_answers: list[int] = []
        self.uploads: list[int] = []
        self.rewritten = ""
        self.unknown: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.broken = 0
        self.endless: set[str] = set()
        self.slow = threading.Event()
        self.silent = threading.Event()
        self.token: str | None = None
        self.login: tuple[str, str] | None = None
        self.requests: list[str] = []
        self.accepted = ""

    def blob(self, content: bytes) -> str:
        """Keep a blob; return its digest."""
        digest = digest_of(content)
        self.blobs[digest] = content
        return digest

    def manifest(self, name: str, media_type: str, content: Mapping[str, Any]) -> str:
        """Keep a manifest under ``name:tag``; return its digest."""
        body = json.dumps(content).encode()
        digest = digest_of(body)
        self.manifests[digest] = (media_type, body)
        self.digests[name] = digest
        return digest

    def image(
        self,
        name: str,
        layers: Sequence[bytes],
        config: Mapping[str, Any] | None = None,
        *,
        platform: tuple[str, str] = ("linux", "amd64"),
        pack: Any = None,
        suffix: str = "+gzip",
    ) -> str:
        """Keep an image under ``name:tag``; return the reference that names its digest."""
        blobs = [(pack or compress)(layer) for layer in layers]
        config_file = {
            "os": platform[0],
            "architecture": platform[1],
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
            "history": [{"created_by": f"step {number}"} for number in range(len(layers))],
        }
        body = json.dumps(config_file).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"digest": self.blob(body), "size": len(body)},
            "layers": [{"digest": self.blob(b), "size": len(b), "mediaType": LAYER + suffix} for b in blobs],
        }
        digest = self.manifest(name, MANIFEST, manifest)
        return f"{self.address}/{name.rpartition(':')[0]}@{digest}"


def compress(layer: bytes) -> bytes:
    return gzip.compress(layer, mtime=0)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _basic(login: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(login).encode()).decode()


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_HEAD(self) -> None:
        self.registry.requests.append(f"HEAD {self.path}")
        self._serve()

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.registry.requests.append(f"GET {address.path}" + (f" {parse_qs(address.query)}" if address.query else ""))
        if address.path == "/token":
            self._give_token()
        else:
            self._serve()

    def _give_token(self) -> None:
        login = self.registry.login
        if self.registry.token_answers:
            self._answer(self.registry.token_answers.pop(0), {})
        elif login and self.headers["Authorization"] != _basic(login):
            self._answer(401, {})
        else:
            self._answer(200, {}, json.dumps({"token": self.registry.token}).encode())

    def _serve(self) -> None:
        while self.registry.silent.is_set():
            time.sleep(0.02)
        self.registry.accepted = self.headers["Accept"]
        if self._answered():
            return
        token = self.registry.token
        name, kind, what = self.path.removeprefix("/v2/").rsplit("/", 2)
        basic = self.registry.login and _basic(self.registry.login)
        if basic and not token and self.headers["Authorization"] != basic:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="test"'})
        elif token and self.headers["Authorization"] != f"Bearer {token}":
            realm = f'realm="http://{self.registry.address}/token",service="test",scope="repository:{name}:pull"'
            self._answer(401, {"WWW-Authenticate": f"Bearer {realm}"})
        elif self.registry.refusals:
            self._answer(self.registry.refusals.pop(0), {})
        elif kind == "blobs":
            body = self.registry.blobs.get(what)
            if body is not None and what in self.registry.endless:
                self._answer_endlessly(body)
            else:
                self._answer(404, {}) if body is None else self._answer(200, {}, body)
        elif what.startswith("sha256:"):
            what = self.registry.swapped.get(what, what)
            self._manifest(what if what in self.registry.manifests else 404)
        else:
            self._manifest(self.registry.digests.get(f"{name}:{what}", 404))

    def _manifest(self, digest_or_status: str | int) -> None:
        if isinstance(digest_or_status, int):
            self._answer(digest_or_status, {})
            return
        media_type, body = self.registry.manifests.get(digest_or_status, ("", b""))
        self._answer(200, {"Docker-Content-Digest": digest_or_status, "Content-Type": media_type}, body)

    def do_POST(self) -> None:
        self.registry.requests.append(f"POST {self.path}")
        if self._answered():
            return
        self._answer(202, {"Location": f"{urlsplit(self.path).path}1"})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "/blobs/uploads/" in self.path:
            self.registry.requests.append(f"PUT {self.path}")
            if self.registry.uploads:
                self._answer(self.registry.uploads.pop(0), {})
                return
            self.registry.blob(body)
            self._answer(201, {})
            return
        if self._answered():
            return
        name, _, tag = self.path.removeprefix("/v2/").rsplit("/", 2)
        login = self.registry.login
        if login and self.headers["Authorization"] != _basic(login):
            self._answer(401, {"WWW-Authenticate": 'Basic realm="test"'})
            return
        self.registry.requests.append(f"PUT {self.path} {self.headers['Content-Type']}")
        if status := self.registry.unknown.get(self.headers["Content-Type"]) or self.registry.kept.get(f"{name}:{tag}"):
            self._answer(status, {})
            return
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.registry.manifests[digest] = (self.headers["Content-Type"], body)
        self.registry.digests[f"{name}:{tag}"] = digest
        self._answer(201, {"Docker-Content-Digest": self.registry.rewritten} if self.registry.rewritten else {})

    def _answered(self) -> bool:
        if answers := self.registry.answers.get(self.command):
            with suppress(OSError):  # whoever is told to come back does not read on
                self._answer(*answers.pop(0), b"<html> ")
            return True
        return False

    def _answer_endlessly(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(body)
                body = b" " * (1 << 16)

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            broken = self.registry.broken and len(body) > 10
            self.wfile.write(body[: len(body) // 2])
            while self.registry.slow.is_set() and "/blobs/" in self.path and body[:2] == GZIP:
                time.sleep(0.02)
            if not broken:
                self.wfile.write(body[len(body) // 2 :])
            if broken:
                self.registry.broken -= 1

    def log_message(self, *_: Any) -> None:
        return


def skip_retry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry requests without waits, and without the user's credentials."""
    monkeypatch.setattr("containers.registry.attempts._WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setattr("containers.registry.attempts._LIMITED", 0.0)
    for name in ("GITHUB_ACTOR", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", "/nonexistent")


@contextmanager
def serve() -> Iterator[Registry]:
    """Serve a registry until the block ends."""
    handler: Any = type("Handler", (_Handler,), {})
    with serving(handler) as address:
        registry = handler.registry = Registry(address)
        yield registry
