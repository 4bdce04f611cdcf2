"""A registry on loopback: tags, digests, manifests, a password, and the anonymous token of the big public ones."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Registry:
    """What the registry has and was asked: ``digests`` by ``name:tag``; a status code stands for a refusal.

    ``manifests`` are by ``name:tag`` or ``name@digest``, for whoever shows ``login``, ``user:password``.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.digests: dict[str, str | int] = {}
        self.manifests: dict[str, bytes] = {}
        self.login: str | None = None
        self.token: str | None = None
        self.asked: list[str] = []
        self.accepted = ""


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_HEAD(self) -> None:
        self.registry.asked.append(f"HEAD {self.path}")
        self.registry.accepted = self.headers["Accept"]
        token = self.registry.token
        if token and self.headers["Authorization"] != f"Bearer {token}":
            name = self.path.removeprefix("/v2/").partition("/manifests/")[0]
            realm = f'realm="http://{self.registry.address}/token",service="test",scope="repository:{name}:pull"'
            self._answer(401, {"WWW-Authenticate": f"Bearer {realm}"})
            return
        name, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
        found = self.registry.digests.get(f"{name}:{tag}", 404)
        self._answer(found, {}) if isinstance(found, int) else self._answer(200, {"Docker-Content-Digest": found})

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path.startswith("/v2/"):
            if self._let_in():
                found = self.registry.manifests.get(self._name())
                headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
                self._answer(404, {}) if found is None else self._answer(200, headers, found)
            return
        self.registry.asked.append(f"GET {address.path} {parse_qs(address.query)}")
        self._answer(200, {}, json.dumps({"token": self.registry.token}).encode())

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._let_in():
            self.registry.asked.append(f"PUT {self.path} {self.headers['Content-Type']}")
            self.registry.manifests[self._name()] = content
            self._answer(201, {})

    def _let_in(self) -> bool:
        login = self.registry.login
        expected = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
        if self.headers["Authorization"] == expected:
            return True
        self._answer(401, {"WWW-Authenticate": 'Basic realm="test"'})
        return False

    def _name(self) -> str:
        name, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
        return f"{name}@{tag}" if tag.startswith("sha256:") else f"{name}:{tag}"

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serve() -> Iterator[Registry]:
    """Serve a registry until the block ends."""
    handler: Any = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made = handler.registry = Registry(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
