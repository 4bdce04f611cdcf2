"""Passes bytes on between two connections, each of which may have TLS."""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from typing import Final

_BLOCK: Final = 1 << 16
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def pass_on(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes on both ways until one connection ends, and end both. What the server sent last still arrives.

    One thread serves both directions, because a TLS connection must not be read and written at once.
    """
    for end in (client, server):
        end.setblocking(False)
    with suppress(OSError, ValueError):  # either end may leave at any time, or be closed by another thread
        _exchange(client, server)
    for end in (client, server):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _exchange(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes on, at most a block at a time each way, until an end."""
    up = down = b""
    ended = refused = False
    while down or not ended:
        _wait(client, server, up, down, ended=ended, refused=refused)
        if not up and not ended and not refused:
            with suppress(*_LATER):
                up = client.recv(_BLOCK)
                if not up:
                    return  # client disconnected: cancel the request
        if not down and not ended:
            with suppress(*_LATER):
                down = server.recv(_BLOCK)
                ended = not down
        if down:
            with suppress(*_LATER):
                down = down[client.send(down) :]
        if up and not ended:
            try:
                up = up[server.send(up) :]
            except _LATER:
                pass
            except OSError:  # a server that refuses answers before it has read all, and leaves
                up, refused = b"", True


def _wait(client: socket.socket, server: socket.socket, up: bytes, down: bytes, *, ended: bool, refused: bool) -> None:
    """Wait until something can be done; ``refused`` says that the server takes no more.

    Raises ConnectionResetError: the client has gone.
    """
    reads_client, reads_server = not (up or ended or refused), not (down or ended)
    poll = select.poll()
    poll.register(client, (select.POLLOUT if down else 0) | (select.POLLIN if reads_client else 0))
    events = (select.POLLOUT if up else 0) | (select.POLLIN if reads_server else 0)
    if events and not ended:
        poll.register(server, events)
    held = (reads_client and _pending(client)) or (reads_server and _pending(server))
    happened = poll.poll(0 if held else None)
    if any(event & select.POLLHUP for descriptor, event in happened if descriptor == client.fileno()):
        raise ConnectionResetError


def _pending(connection: socket.socket) -> int:
    """Return the number of bytes that TLS has decrypted and nobody has read: the kernel knows nothing of them."""
    return connection.pending() if isinstance(connection, ssl.SSLSocket) else 0
