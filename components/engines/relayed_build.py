"""A build on its way to an engine: its request is kept, so that another engine can take it over."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, Final

_BLOCK: Final = 1 << 16
_OK: Final = 200
_LONGEST: Final = 32 << 20
"""Bytes of a chunk, or of a response without chunks, which are held at once. Engines send a message in each."""


class Interrupted(Exception):
    """The engine ended the connection before its response was complete."""


class Upload:
    """What a client sends: kept in a file, and passed on to the engine that builds."""

    def __init__(self, client: socket.socket, head: bytes, rest: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the build
        self._file.write(head + rest)
        self._lock = threading.Lock()
        self._sink: socket.socket | None = None
        self.ended = False
        """Whether the client has gone, which cancels its build."""
        threading.Thread(target=self._receive, args=(client,), daemon=True).start()

    def send_to(self, sink: socket.socket) -> None:
        """Send a connection all that there is, and from now on what comes."""
        with self._lock, suppress(OSError):  # a connection that has ended has no response either
            self._file.seek(0)
            self._sink = sink
            with sink.makefile("wb") as stream:
                shutil.copyfileobj(self._file, stream, _BLOCK)
            if self.ended:
                sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Remove what is kept."""
        with self._lock:
            self._file.close()

    def _receive(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError):  # the end of the build closes both
            while block := client.recv(_BLOCK):
                with self._lock:
                    self._file.write(block)
                    if self._sink:
                        with suppress(OSError):
                            self._sink.sendall(block)
        with self._lock:
            self.ended = True
            if self._sink:
                with suppress(OSError):
                    self._sink.shutdown(socket.SHUT_WR)


class Download:
    """What a client gets: one response, although several engines may have begun it."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._begun = False
        self.refused = False
        """Whether the client takes no more of it."""

    def pass_on(self, engine: socket.socket) -> None:
        """Pass an engine's response on, whole chunks at a time.

        Raises:
            Interrupted: the engine ended the connection before the response was complete.
        """
        with engine.makefile("rb") as stream:
            try:
                self._pass_on(stream)
            except (OSError, ValueError) as error:
                raise Interrupted from error

    def fail(self, message: str) -> bool:
        """End a response that has begun with an error, as an engine does; return whether it had begun."""
        if self._begun:
            line = json.dumps({"errorDetail": {"message": message}, "error": message}).encode() + b"\r\n"
            self._send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(line), line))
        return self._begun

    def _pass_on(self, stream: BinaryIO) -> None:
        head = b"".join(_lines(stream))
        words = head.split(b" ", 2)
        if len(words) < 3:
            raise ValueError("no HTTP")
        status = int(words[1])
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        if fields.get(b"transfer-encoding", b"").lower() != b"chunked":
            body = _exactly(stream, int(fields.get(b"content-length", b"0")))
            if not self._begun:
                self._send(head + body)
            elif status != _OK:
                with suppress(ValueError, KeyError, TypeError, RecursionError):
                    body = str(json.loads(body)["message"]).encode()
                self.fail(body.decode(errors="replace"))
            return
        if not self._begun:
            self._send(head)
            self._begun = True
        size = 1
        while size:
            line = stream.readline(_BLOCK)
            size = int(line.partition(b";")[0], 16)
            self._send(line + _exactly(stream, size + len(b"\r\n")))

    def _send(self, data: bytes) -> None:
        try:
            self._client.sendall(data)
        except OSError:
            self.refused = True
            raise


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a head."""
    length = 0
    while (line := stream.readline(_BLOCK)) and length < _BLOCK:
        yield line
        length += len(line)
        if line == b"\r\n":
            return
    raise ValueError("no HTTP")


def _exactly(stream: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= _LONGEST:
        raise ValueError("no size of a message")
    data = stream.read(size)
    if len(data) < size:
        raise ValueError("the end is missing")
    return data
