"""A stand-in for what leads from outside a cluster to a service's pod: a load balancer, or ``kubectl port-forward``."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def relay(target: Callable[[], tuple[str, int]], host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Forward connections to the present result of ``target`` until the block ends; yield ``host:port``, by default a free one."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                suppress(OSError, LookupError, ValueError),
                socket.create_connection(target(), timeout=5) as connection,
            ):
                connection.settimeout(None)
                back = threading.Thread(target=_pump, args=[connection, self.request], daemon=True)
                back.start()
                _pump(self.request, connection)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server((host, port), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"{host}:{server.server_address[1]}"
        server.shutdown()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
