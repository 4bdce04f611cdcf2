"""A connection to a Docker engine: by a Unix socket, by TCP with or without TLS, or by ssh."""

from __future__ import annotations

import shlex
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from containers.child_environment import child_environment
from containers.engine.engine_access import client_context
from containers.engine.tls_tunnel import tunnel
from containers.errors import SlipwayError

_SECONDS: Final = 20
"""Until a connection must be there."""


_KEPT_ALIVE: Final = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 30,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 10,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 6,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 90_000,
}
"""By these a connection ends 90 seconds after the engine's machine is lost, which says nothing (tcp(7))."""


class Connection:
    """An open connection. Closing it ends the ssh that carries it.

    ``engine`` is an address as in ``slipway:engines``. ``tls`` are the certificates for one that begins with ``tcp://``,
    as of :class:`containers.engine.engine_access.Access`; without any, the connection has no TLS.
    """

    def __init__(self, engine: str, tls: Mapping[str, str] | None = None) -> None:
        self._ssh: subprocess.Popen[bytes] | None = None
        url = urlsplit(engine)
        try:
            if url.scheme == "unix":
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.socket.connect(engine.removeprefix("unix://"))
            elif url.scheme == "tcp":
                self.socket = socket.create_connection((url.hostname or "", url.port or 2375), timeout=_SECONDS)
                for option, value in _KEPT_ALIVE.items():
                    self.socket.setsockopt(*option, value)
                if tls:
                    secure = client_context(tls).wrap_socket(self.socket, server_hostname=url.hostname)
                    self.socket = tunnel(secure)
                self.socket.settimeout(None)
            else:
                self.socket = self._tunnel(engine)
        except OSError as error:
            raise SlipwayError(f"{engine}: {error.strerror or error}") from None

    def _tunnel(self, engine: str) -> socket.socket:
        """Run ssh, whose far end is the engine's own ``docker system dial-stdio``, as the docker command does."""
        url = urlsplit(engine)
        ours, theirs = socket.socketpair()
        port = ["-p", str(url.port)] if url.port else []
        user = ["-l", url.username] if url.username else []
        remote = ["docker", *([f"--host=unix://{url.path}"] if url.path.strip("/") else []), "system", "dial-stdio"]
        command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SECONDS}", *user, *port, "--"]
        with theirs:
            self._ssh = subprocess.Popen(
                [*command, url.hostname or "", shlex.join(remote)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                start_new_session=True,
                env=child_environment("ssh"),
            )
        return ours

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        if self._ssh is not None:
            self._ssh.terminate()
            self._ssh.wait()
