"""A TLS connection to a Docker engine that is used like any other socket."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress
from typing import Final

_BLOCK: Final = 1 << 16
_LATER: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


def tunnel(secure: ssl.SSLSocket) -> socket.socket:
    """Return a socket whose bytes go through a TLS connection; the end of either ends the other.

    A TLS connection must not be read and written at once, and has no end of one direction alone. Sockets have both,
    and two threads use each of them here. So one thread of its own serves the connection.
    """
    ours, theirs = socket.socketpair()
    secure.setblocking(False)
    theirs.setblocking(False)
    threading.Thread(target=_serve, args=(theirs, secure), daemon=True).start()
    return ours


def _serve(plain: socket.socket, secure: ssl.SSLSocket) -> None:
    with plain, secure, suppress(OSError):  # either end may leave at any time
        _pass_on(plain, secure)


def _pass_on(plain: socket.socket, secure: ssl.SSLSocket) -> None:
    """Pass bytes on, at most a block at a time each way, until an end. What the engine sent last still arrives."""
    up = down = b""
    ended = refused = False
    while down or not ended:
        _wait(plain, secure, up, down, ended=ended, refused=refused)
        if not up and not ended and not refused:
            with suppress(BlockingIOError):
                up = plain.recv(_BLOCK)
                if not up:
                    return  # client disconnected: cancel the request
        if not down and not ended:
            with suppress(*_LATER):
                down = secure.recv(_BLOCK)
                ended = not down
        if down:
            with suppress(BlockingIOError):
                down = down[plain.send(down) :]
        if up and not ended:
            try:
                up = up[secure.send(up) :]
            except _LATER:
                pass
            except OSError:  # an engine that refuses answers before it has read all, and leaves
                up, refused = b"", True


def _wait(plain: socket.socket, secure: ssl.SSLSocket, up: bytes, down: bytes, *, ended: bool, refused: bool) -> None:
    """Wait until something can be done; ``refused`` says that the engine takes no more.

    Raises:
        ConnectionResetError: who asked has gone.
    """
    poll = select.poll()
    poll.register(plain, (select.POLLOUT if down else 0) | (0 if up or ended or refused else select.POLLIN))
    events = (select.POLLOUT if up else 0) | (0 if down else select.POLLIN)
    if events and not ended:
        poll.register(secure, events)
    happened = poll.poll(0 if not (down or ended) and secure.pending() else None)
    if any(event & select.POLLHUP for descriptor, event in happened if descriptor == plain.fileno()):
        raise ConnectionResetError
