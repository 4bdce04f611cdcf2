"""A way to the Docker engine through this process, which can be cut, and which can ask for certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from containers.engine.relay import pass_on


class Relay:
    """Passes connections on a loopback port to the Docker engine's socket.

    Args:
        target: the engine, `unix://...`.
        tls: wraps what comes in, if given; or what returns that for each connection, or raises OSError.

    Attributes:
        host: the relay's own address, `tcp://...`.
        connections: how many it took so far.
        builds: how many of these carried a build's session.
    """

    def __init__(self, target: str, tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None) -> None:
        self._target = target.removeprefix("unix://")
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.host = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.builds = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # it would accept one more
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._join(self._listener.accept()[0])

    def _join(self, accepted: socket.socket) -> None:
        try:
            near = accepted if self._tls is None else self._context().wrap_socket(accepted, server_side=True)
        except (ssl.SSLError, OSError):
            accepted.close()
            return
        self.connections += 1
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._target)
        self._open += [near, far]
        threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _context(self) -> ssl.SSLContext:
        assert self._tls
        return self._tls if isinstance(self._tls, ssl.SSLContext) else self._tls()

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            first = near.recv(65536)
            self.builds += b"/session HTTP" in first  # each build has a session, on a connection to itself
            far.sendall(first)
        pass_on(near, far)
