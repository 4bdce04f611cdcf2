"""Forwards each request of the docker provider to the engine that builds its image."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from containers.engine.connection import Connection, shortened
from containers.engine.pool import Pool
from containers.engine.relay import pass_on
from containers.errors import SlipwayError
from containers.registry.reference import Reference

_BLOCK: Final = 1 << 16
_LONGEST: Final = 1 << 22
"""Bytes of a request's head; that of a build has all its arguments."""
_SESSION_SECONDS: Final = 600
_UPGRADED: Final = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
_END: Final = b"\r\n\r\n"
_NAMED_BY: Final = {"/build": "t", "/images/get": "names"}
"""By path: the parameter with the image's name, of a build and of `docker save`."""


@dataclass
class _Session:
    """A connection over which a build asks for credentials. It arrives before or after its build."""

    engine: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def move(self, engine: str) -> None:
        """Let the session be that of a build on an engine."""
        with self.changed:
            self.engine = engine
            self.changed.notify_all()

    def other(self, engine: str) -> str:
        """Return the engine of the build once it is another than ``engine``; empty if none takes it in time."""
        with self.changed:
            self.changed.wait_for(lambda: self.engine != engine, _SESSION_SECONDS)
            return self.engine if self.engine != engine else ""


@dataclass(frozen=True)
class _Request:
    """The head of a request, and what was read after it."""

    head: bytes
    rest: bytes

    @property
    def path(self) -> str:
        """The path without the API's version."""
        return re.sub(r"^/v\d+\.\d+", "", urlsplit(self._target).path)

    @property
    def query(self) -> dict[str, list[str]]:
        """The parameters."""
        return parse_qs(urlsplit(self._target).query)

    @property
    def upgrades(self) -> bool:
        """Whether the connection goes on in another protocol."""
        return bool(re.search(rb"\r\nupgrade:", self.head, re.IGNORECASE))

    @property
    def session(self) -> str:
        """The session's id, in the request that opens it."""
        match = re.search(rb"\r\nx-docker-expose-session-uuid:[ \t]*([^\r]+)", self.head, re.IGNORECASE)
        return match[1].decode().strip() if match else ""

    @property
    def image(self) -> str | None:
        """The image's name without registry and tag; None where the request names no image, or only its id."""
        named = self.query.get(_NAMED_BY.get(self.path, ""))
        match = re.fullmatch(r"/images/(.+)/(?:json|push|tag)", unquote(self.path))
        name = named[0] if named else match[1] if match else ""
        if not name or name.startswith("sha256:") or re.fullmatch(r"[0-9a-f]{12,64}", name):
            return None
        # An image is checked where it was built.
        return Reference.of(name).name.removesuffix("_checks")

    @property
    def last_of_connection(self) -> bytes:
        """The head, after whose response the engine closes the connection: the next request may be another engine's."""
        if self.upgrades:
            return self.head
        lines = [line for line in self.head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        return b"\r\n".join([*lines[:-2], b"Connection: close", b"", b""])

    @property
    def _target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()


class Router:
    """The sockets of the pools. It serves until the program ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sessions: dict[str, _Session] = {}
        self._engines: dict[str, None] = {}
        self._lock = threading.Lock()

    def serve(self, host: str, pool: Pool) -> None:
        """Forward what arrives at ``host`` to the engines of a pool. Raises SlipwayError: the socket cannot be made."""
        path = self._root / host.removeprefix("unix://")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # nobody else reaches it before its mode is set
            path.unlink(missing_ok=True)
            with shortened(path) as short:
                listener.bind(short)
            path.chmod(0o600)  # whoever reaches it is root where the engine is
            listener.listen(128)
        except OSError as error:
            raise SlipwayError(f"{path}: the socket of {pool.key} cannot be made: {error.strerror or error}") from None
        threading.Thread(target=self._accept, args=(listener, pool), daemon=True).start()

    def _accept(self, listener: socket.socket, pool: Pool) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._handle, args=(client, pool), daemon=True).start()

    def _handle(self, client: socket.socket, pool: Pool) -> None:
        with closing(client), suppress(OSError, IndexError, ValueError):
            request = _read(client)
            try:
                if request.session:
                    self._open_session(client, request, pool)
                elif request.image or request.path == "/build":
                    self._forward(client, request, self._connection(request, pool)[1])
                else:
                    self._ask_any(client, request, pool)
            except SlipwayError as error:
                body = json.dumps({"message": str(error)}).encode()
                head = (
                    f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
                )
                client.sendall(head.encode() + b"\r\nConnection: close" + _END + body)

    def _connection(self, request: _Request, pool: Pool) -> tuple[str, Connection]:
        """Connect to the engine of a request's image: the next one if that has gone since it last answered."""
        while True:
            engine = pool.engine(request.image or "")
            try:
                connection = pool.connect(engine)
            except SlipwayError as error:
                pool.fail(engine, str(error))
                continue
            self._engines[engine] = None
            for session in request.query.get("session", []):
                self._session(session).move(engine)
            return engine, connection

    def _session(self, name: str) -> _Session:
        with self._lock:
            return self._sessions.setdefault(name, _Session())

    def _open_session(self, client: socket.socket, request: _Request, pool: Pool) -> None:
        """Hold a session until its build says which engine it is for. The engine speaks first."""
        client.sendall(_UPGRADED)
        session, engine = self._session(request.session), ""
        while engine := session.other(engine):
            try:
                connection = pool.connect(engine)
            except SlipwayError:
                continue  # another engine takes its build
            with closing(connection):
                connection.socket.sendall(request.head)
                try:
                    answer = _read(connection.socket)
                except (OSError, ValueError):
                    continue
                client.sendall(answer.rest)
                connection.socket.sendall(request.rest)
                pass_on(client, connection.socket)
                return

    def _forward(self, client: socket.socket, request: _Request, connection: Connection) -> None:
        with closing(connection):
            connection.socket.sendall(request.last_of_connection + request.rest)
            pass_on(client, connection.socket)

    def _ask_any(self, client: socket.socket, request: _Request, pool: Pool) -> None:
        """Forward a request without an image, or with only the id of an image of one of the engines."""
        used = pool.answering(self._engines)
        for engine in used[:-1] if request.path.startswith("/images/") else []:
            try:
                connection = pool.connect(engine)
            except SlipwayError as error:
                pool.fail(engine, str(error))
                continue
            with closing(connection):
                connection.socket.sendall(request.last_of_connection + request.rest)
                answer = _read(connection.socket)
                if answer.head.split(b" ", 2)[1] != b"404":
                    client.sendall(answer.head + answer.rest)
                    pass_on(client, connection.socket)
                    return
        self._forward(client, request, pool.connect(used[-1]) if used else self._connection(request, pool)[1])


def _read(source: socket.socket) -> _Request:
    """Read the head of a request or a response."""
    received = b""
    while _END not in received:
        block = source.recv(_BLOCK)
        if not block or len(received) > _LONGEST:
            raise ValueError("no HTTP")
        received += block
    head, _, rest = received.partition(_END)
    return _Request(head + _END, rest)
