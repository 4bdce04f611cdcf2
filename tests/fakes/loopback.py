"""A server on loopback, for the stand-ins of what is asked over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


class LoopbackServer(ThreadingHTTPServer):
    """An HTTP server on a free port, for stand-ins that keep what they were asked."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def run_server(server: Server) -> Iterator[Server]:
    """Run a server until the block ends; yield it."""
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the block ends; yield the address, ``127.0.0.1:port``."""
    with run_server(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"127.0.0.1:{server.server_port}"
