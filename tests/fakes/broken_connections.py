"""Ways to the registry on which something goes wrong."""

from __future__ import annotations

import socket
import socketserver
import threading


class Cutting(socketserver.ThreadingTCPServer):
    """A way to the registry that breaks connections.

    That is every connection once ``limit`` bytes have gone up through all, and each through which ``marker`` goes up.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, upstream: str, limit: int | None = None, marker: bytes | None = None) -> None:
        host, _, port = upstream.rpartition(":")
        self.upstream, self.limit, self.marker, self.sent = (host, int(port)), limit, marker, 0
        super().__init__(("127.0.0.1", 0), _Pipe)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Pipe(socketserver.BaseRequestHandler):
    server: Cutting

    def handle(self) -> None:
        with socket.create_connection(self.server.upstream) as upstream:
            down = threading.Thread(target=self._down, args=(upstream,), daemon=True)
            down.start()
            before = b""
            while data := self._receive(self.request):
                self.server.sent += len(data)
                before += data
                if self.server.marker is not None and self.server.marker in before:
                    break
                before = before[-64:]  # a marker may come in two parts
                if self.server.limit is not None and self.server.sent > self.server.limit:
                    break
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_RDWR)
            down.join()

    def _down(self, upstream: socket.socket) -> None:
        try:
            while data := self._receive(upstream):
                self.request.sendall(data)
            self.request.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    @staticmethod
    def _receive(connection: socket.socket) -> bytes:
        try:
            return connection.recv(65536)
        except OSError:
            return b""


class Refusing(Cutting):
    """A way to the registry that answers everything with 503."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, None)
        self.RequestHandlerClass = _Refusal


class _Refusal(_Pipe):
    def handle(self) -> None:
        self._receive(self.request)
        self.request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
