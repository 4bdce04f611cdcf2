"""A port on loopback for the processes of this user alone.

A plugin's port has no login: the engine dials TCP, and knows nothing to present. So the kernel is asked who has the
other end of each connection, before a byte of it is read.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from containers.engine.relay import pass_on

_SECONDS: Final = 2.0
"""How long a connection is looked for in a table that changes while it is read."""
_ESTABLISHED: Final = 1
"""The state of a connection that neither side has ended, as the kernel numbers it (net/tcp_states.h)."""


def serve(target: str) -> int:
    """Pass on to the unix socket ``target`` what processes of this user send to a new port; return the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=_accept, args=(listener, target), daemon=True).start()
    return int(listener.getsockname()[1])


def owner(connection: socket.socket) -> int | None:
    """Return the user whose socket is the other end of a connection on this machine; None if it is closed, or unknown.

    A port may have been another user's a moment before. While our end is established, no other connection has this
    pair of addresses, so it is asked for its state after the look-up.
    """
    with suppress(OSError):
        pair = [connection.getpeername(), connection.getsockname()]
        until = time.monotonic() + _SECONDS
        while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:
            user = _listed(pair)
            if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
                return None
            if user is not None or time.monotonic() > until:
                return user
    return None


def _listed(pair: list[tuple[str, int]]) -> int | None:
    """Return the user of an established connection from the kernel's tables (proc(5), ``/proc/net/tcp``)."""
    words = [int.from_bytes(socket.inet_aton(host), "little") for host, _ in pair]
    # A client may use an IPv6 socket for an IPv4 address, as gRPC's own does.
    for table, prefix in (("tcp", ""), ("tcp6", "0000000000000000FFFF0000")):
        ends = [f"{prefix}{word:08X}:{port:04X}" for word, (_, port) in zip(words, pair, strict=True)]
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1:3] == ends and int(fields[3], 16) == _ESTABLISHED:
                    return int(fields[7])
    return None


def _accept(listener: socket.socket, target: str) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # this process has no descriptor left, or the client has gone
            time.sleep(0.1)
            continue
        threading.Thread(target=_handle, args=(connection, target), daemon=True).start()


def _handle(connection: socket.socket, target: str) -> None:
    with closing(connection), suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        if owner(connection) != os.geteuid():
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect(target)
        pass_on(connection, server)
