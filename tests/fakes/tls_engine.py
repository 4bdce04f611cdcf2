"""A Docker engine, behind a socket or a client's certificate: what its API answers to `docker save`."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from components.runners.kubernetes.certificates import make


@dataclass
class TlsEngine:
    """The engine's ``host:port``, the client's certificates, the requests so far, and what it answers.

    ``cut`` ends the connection in the middle of the archive; ``endless`` goes on after it.
    """

    address: str = ""
    tls: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    status: int = 200
    body: bytes = b""
    cut: bool = False
    endless: bool = False


@contextmanager
def serve(folder: Path, name: str = "127.0.0.1") -> Iterator[TlsEngine]:
    """Serve an engine on a port of this machine until the block ends; ``folder`` is for its key, ``name`` its certificate's."""
    engine = TlsEngine()
    pem = make([name])
    engine.tls = {"ca": pem["ca"], "cert": pem["client_cert"], "key": pem["client_key"]}
    (folder / "server.pem").write_text(pem["server_cert"] + pem["server_key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(cadata=pem["ca"])
    context.verify_mode = ssl.CERT_REQUIRED

    server = _Server(("127.0.0.1", 0), _handler(engine))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    engine.address = f"127.0.0.1:{server.server_address[1]}"
    with _serving(server):
        yield engine


@contextmanager
def on_socket(path: Path) -> Iterator[TlsEngine]:
    """Serve an engine on a socket until the block ends."""
    engine = TlsEngine()
    with handled(path, _handler(engine)):
        yield engine


@contextmanager
def handled(path: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[None]:
    """Serve requests on a socket until the block ends."""
    folder = os.open(path.parent, os.O_PATH)
    try:  # a socket's path has at most 107 bytes
        address: Any = f"/proc/self/fd/{folder}/{path.name}"
        with _serving(_UnixServer(address, handler)):
            yield
    finally:
        os.close(folder)
        path.unlink(missing_ok=True)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that ends the connection."""


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[Any, Any]:
        return self.socket.accept()[0], ("socket", 0)


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(engine: TlsEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/_ping":
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            engine.requests.append(re.sub(r"^/v\d+\.\d+", "", self.path))
            self.send_response(engine.status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            half = len(engine.body) // 2
            for part in (engine.body[:half], engine.body[half:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if part else b"")
                if engine.cut:
                    self.close_connection = True
                    return
            while engine.endless:
                self.wfile.write(b"%x\r\n%s\r\n" % (1 << 16, bytes(1 << 16)))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler
