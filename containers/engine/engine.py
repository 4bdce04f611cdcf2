"""A client of the Docker Engine's HTTP API: streams both ways, and upgrades.

Connections are made one a request and can be ended from another thread, which is how a build is cancelled: the engine
stops a build whose client has gone.

The standard library alone is imported: `make doctor` uses this before any package is installed.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import socket
import subprocess
import tarfile
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from containers.engine.connection import CONNECT_SECONDS, Address, Connection, EngineUnreachable
from containers.errors import SlipwayError, one_line

_NEWEST_API: Final = (1, 51)
"""The newest API version this client was written against; older engines are spoken to in their own."""
SILENT_VARIABLE: Final = "SLIPWAY_SILENT_SECONDS"
"""Environment variable: the number of seconds that an engine may say nothing while it works."""
_WAITING: Final = re.compile(r"^goroutine \d++ \[[^,\]\n]*+, \d++ minutes[^\n]*+\n((?:.+\n)++)", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^github\.com/(moby/buildkit/.+)\(", re.MULTILINE)
_MOST_WAITS: Final = 5
_CHUNK_BYTES: Final = 1 << 20
_LONGEST_MESSAGE: Final = 32 << 20
"""Most bytes of one message of a stream. BuildKit's statuses have at most 16 MiB (gRPC's limit), here in base64."""
_LONGEST_DOCUMENT: Final = 16 << 20
"""Most bytes of a document, such as what an engine says of an image."""
_LONGEST_REFUSAL: Final = 1 << 20
"""Most bytes of a refusal. A longer one is not cut, as its secrets are masked later, but left out."""
_GRACE_SECONDS: Final = 2
"""Seconds more for a whole answer than for a piece: an engine that says nothing at all is reported as such."""
_LONGEST_HEAD: Final = 1 << 16
_DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
_USER_SOCKETS: Final = (".docker/run/docker.sock", ".docker/desktop/docker.sock")
"""Docker Desktop's sockets for a user without administrator's rights, below the home directory."""
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")

Query = Mapping[str, str | Sequence[str]]
Ending = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Opens a block in which another thread can call a function."""


class EngineError(SlipwayError):
    """The engine refused a request.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Silent(EngineUnreachable):
    """An engine took a request, and says nothing any more; the text says where it waits."""


def silent_seconds() -> float:
    """Return how long an engine may say nothing: SILENT_VARIABLE, or two hours. Raises SlipwayError.

    A step may compile for an hour without a line of output.
    """
    text = os.environ.get(SILENT_VARIABLE) or "7200"
    if not text.isascii() or not text.isdigit() or not int(text):
        raise SlipwayError(f"{SILENT_VARIABLE}={one_line(text)!r}: give a number of seconds")
    return float(text)


class Response:
    """What the engine answered, to be read as it comes."""

    def __init__(self, response: http.client.HTTPResponse, silent: Callable[[], Silent]) -> None:
        self._response = response
        self._silent = silent
        self.headers = response.headers

    def document(self) -> dict[str, Any]:
        """Return the JSON object that is the whole body.

        Raises SlipwayError: if it breaks off, is too long, or is no JSON object.
        """
        with _unbroken(self._silent):
            body = self._response.read(_LONGEST_DOCUMENT + 1)
        if len(body) > _LONGEST_DOCUMENT:
            raise SlipwayError(f"the Docker daemon's answer has more than {_LONGEST_DOCUMENT >> 20} MiB")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise SlipwayError("the Docker daemon's answer is no JSON object, or not all of it")
        return document

    def read(self, size: int) -> bytes:
        """Return the next bytes of the body, at most ``size``; none at its end. Raises SlipwayError if it breaks."""
        with _unbroken(self._silent):
            return self._response.read(size)

    def text(self) -> str:
        """Return the body, as far as a document may be long. Raises SlipwayError if it breaks off."""
        with _unbroken(self._silent):
            return self._response.read(_LONGEST_DOCUMENT).decode(errors="replace")

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON messages of a stream as they come, each on a line (moby, pkg/streamformatter).

        Raises SlipwayError: if the stream breaks off, or a message is too long or no JSON object.
        """
        held = bytearray()
        with _unbroken(self._silent):
            while block := self._response.read1(_CHUNK_BYTES):
                *ended, rest = block.split(b"\n")
                for line in ended:
                    held += line
                    yield from _messages(held)
                    held.clear()
                held += rest
                if len(held) > _LONGEST_MESSAGE:
                    raise SlipwayError(f"a message of the Docker daemon has more than {_LONGEST_MESSAGE >> 20} MiB")
        yield from _messages(held, "the Docker daemon ended its answer in the middle of a message")


class BodyWriter:
    """Where a request's body is written to, in chunks, as it is made.

    ``sent`` takes the number of bytes written so far, at each write.
    """

    def __init__(self, connection: http.client.HTTPConnection, sent: Callable[[int], None]) -> None:
        self._connection = connection
        self._sent = sent
        self._total = 0

    def write(self, data: bytes) -> int:
        """Send one piece."""
        if data:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
            self._total += len(data)
            self._sent(self._total)
        return len(data)

    def close(self) -> None:
        """Say that the body ends here."""
        self._connection.send(b"0\r\n\r\n")


class Engine:
    """A Docker Engine at an address. ``version`` is the API's version to speak; "" for the engine's default."""

    def __init__(self, address: Address, version: str = "") -> None:
        self.address = address
        self._prefix = f"/v{version}" if version else ""

    @classmethod
    def connect(cls, address: Address) -> Engine:
        """Find out which API version the engine at an address speaks. Raises EngineUnreachable: if none answers."""
        with cls(address).request("GET", "/_ping", timeout=CONNECT_SECONDS) as response:
            version = response.headers.get("Api-Version", "1.24")
        match = _VERSION.fullmatch(version)
        if not match:
            raise EngineUnreachable(f"{address}: answers with the API version {one_line(version)!r}, not such as 1.41")
        offered = int(match[1]), int(match[2])
        return cls(address, ".".join(str(part) for part in min(offered, _NEWEST_API)))

    @classmethod
    def at(cls, address: Address) -> Engine:
        """Return the engine at an address, or without a host the one of the environment.

        Raises EngineUnreachable: there is none in the environment.
        """
        return cls(address) if address.host else cls.first(_environment())

    @classmethod
    def first(cls, addresses: Iterable[Address]) -> Engine:
        """Connect to the first engine that answers. Raises EngineUnreachable: none does, with the reason of each."""
        failures = []
        for address in addresses:
            try:
                return cls.connect(address)
            except EngineUnreachable as error:
                failures.append(str(error))
        raise EngineUnreachable(f"failed to connect to any docker daemon ({'; '.join(failures)})")

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: Callable[[BodyWriter], object] | None = None,
        sent: Callable[[int], None] = lambda _: None,
        ending: Ending = lambda _: nullcontext(),
        timeout: float | None = None,
    ) -> Iterator[Response]:
        """Send a request to a path below the API's version; the answer is open within the block.

        ``body`` writes the body; None for an empty one. ``sent`` takes the number of its bytes sent so far. ``ending``
        opens the block in which another thread may end the request. The whole answer must be read within ``timeout``
        seconds; None for :func:`silent_seconds` for each piece of it.

        Raises:
            EngineUnreachable: if no engine answers.
            Silent: if it says nothing for that long.
            EngineError: if it refuses the request.
        """
        silent = partial(self._silent, timeout)
        connection = Connection(self.address, errors=subprocess.PIPE)
        with closing(connection), ending(connection.end), _ended_after(timeout, connection):
            connection.socket.settimeout(timeout or silent_seconds())
            http_connection = http.client.HTTPConnection("docker")
            http_connection.sock = connection.socket
            target = self._prefix + path + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
            try:
                http_connection.putrequest(method, target, skip_accept_encoding=True)
                for key, value in {**(headers or {}), "Connection": "close"}.items():
                    http_connection.putheader(key, value)
                if body is None:
                    http_connection.putheader("Content-Length", "0")
                    http_connection.endheaders()
                else:
                    http_connection.putheader("Transfer-Encoding", "chunked")
                    http_connection.endheaders()
                    _send(http_connection, body, sent)
                response = http_connection.getresponse()
            except TimeoutError as error:
                raise silent() from error
            except (OSError, http.client.HTTPException) as error:
                reason = (
                    connection.complaint() or getattr(error, "strerror", None) or str(error) or type(error).__name__
                )
                raise EngineUnreachable(f"{self.address}: {reason}") from error
            with closing(response):
                if response.status >= http.client.BAD_REQUEST:
                    with _unbroken(silent):
                        refusal = response.read(_LONGEST_REFUSAL + 1)
                    raise EngineError(response.status, _message(refusal) or f"HTTP {response.status}")
                yield Response(response, silent)

    def _silent(self, timeout: float | None) -> Silent:
        """Return the error for a request that gets no answer."""
        if timeout:
            return Silent(f"{self.address}: the Docker daemon said nothing for {timeout:g} s")
        waits = ""
        with suppress(SlipwayError):
            waits = "".join(f"; it has waited for minutes in {place}" for place in self.waits())
        return Silent(
            f"{self.address}: the Docker daemon said nothing for {silent_seconds():g} s{waits}. "
            f"{SILENT_VARIABLE} is the number of seconds that it may take"
        )

    def waits(self) -> list[str]:
        """Return where the engine's goroutines have waited for minutes: of each, its first function of BuildKit.

        Raises SlipwayError, also if the engine does not say so.
        """
        engine = Engine(self.address)  # its path has no version
        with engine.request("GET", "/debug/pprof/goroutine", query={"debug": "2"}, timeout=CONNECT_SECONDS) as answer:
            stacks = _WAITING.findall(answer.text())
        places = (_FUNCTION.search(stack) for stack in stacks)
        return list(dict.fromkeys(place[1] for place in places if place))[:_MOST_WAITS]

    def json(
        self, path: str, content: object = None, *, query: Query | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Get a JSON object, or post ``content`` and get the object that answers it.

        Raises SlipwayError: the answer is none; or as :meth:`request`.
        """

        def write(body: BodyWriter) -> None:
            body.write(json.dumps(content).encode())

        method, body = ("GET", None) if content is None else ("POST", write)
        headers = {"Content-Type": "application/json"}
        with self.request(method, path, query=query, headers=headers, body=body, timeout=timeout) as response:
            return response.document()

    def upgrade(self, path: str, protocol: str, headers: Sequence[tuple[str, str]]) -> socket.socket:
        """Turn a connection into one that speaks another protocol, and return it.

        Raises:
            EngineUnreachable: if no engine answers.
            EngineError: if it does not upgrade.
        """
        connection = Connection(self.address, errors=subprocess.PIPE)
        channel = connection.socket
        channel.settimeout(CONNECT_SECONDS)
        try:
            with _ended_after(CONNECT_SECONDS, connection):
                self._agree(connection, path, protocol, headers)
        except SlipwayError:
            connection.close()
            raise
        channel.settimeout(None)  # a session says nothing while a build needs nothing of it
        return channel

    def _agree(self, connection: Connection, path: str, protocol: str, headers: Sequence[tuple[str, str]]) -> None:
        """Have the engine upgrade a connection, of which nothing is read after the head of the answer."""
        channel = connection.socket
        lines = [f"POST {self._prefix}{path} HTTP/1.1", "Host: docker", "Connection: Upgrade", f"Upgrade: {protocol}"]
        lines += [f"{key}: {value}" for key, value in headers]
        try:
            channel.sendall("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode("ascii"))
            head = bytearray()
            while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows the head is not ours to read
                piece = channel.recv(1)
                if not piece:
                    raise EngineUnreachable(f"{self.address}: {connection.complaint() or 'closed the connection'}")
                head += piece
                if len(head) > _LONGEST_HEAD:
                    raise EngineUnreachable(f"{self.address}: {path}: the head of the answer does not end")
        except OSError as error:
            raise EngineUnreachable(f"{self.address}: {error.strerror or error}") from error
        match = _STATUS.match(head)
        if not match:
            raise EngineUnreachable(f"{self.address}: {path}: the answer is no HTTP")
        status = int(match[1])
        if status != http.client.SWITCHING_PROTOCOLS:
            raise EngineError(status, f"{path}: the Docker daemon does not upgrade to {protocol} (HTTP {status})")


def default_hosts() -> list[str]:
    """Return the addresses of the engines that a machine has by default: its own, then the user's."""
    return [_DEFAULT_HOST, *(f"unix://{Path.home() / path}" for path in _USER_SOCKETS)]


def client_certificates(folder: str | Path) -> dict[str, str]:
    """Return the certificates in a folder as of :attr:`Address.tls`. Raises SlipwayError: one cannot be read."""
    try:
        return {name: Path(folder, f"{name}.pem").read_text(encoding="utf-8") for name in ("ca", "cert", "key")}
    except OSError as error:
        raise SlipwayError(f"certPath {folder}: {error.filename}: {error.strerror}") from error


def _environment() -> Iterator[Address]:
    """Yield the addresses of the engine that the environment names, or of those by default."""
    host, folder = os.environ.get("DOCKER_HOST"), os.environ.get("DOCKER_CERT_PATH")
    tls = client_certificates(folder) if folder else {}
    yield from (Address(each, tls=tls) for each in ([host] if host else default_hosts()))


def _send(
    connection: http.client.HTTPConnection, body: Callable[[BodyWriter], object], sent: Callable[[int], None]
) -> None:
    writer = BodyWriter(connection, sent)
    try:
        body(writer)
        writer.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # the engine has answered before the end of the body; its answer has the reason


@contextmanager
def _ended_after(seconds: float | None, connection: Connection) -> Iterator[None]:
    """End a connection after so many seconds: a byte now and then would keep it for ever."""
    timer = threading.Timer((seconds or 0) + _GRACE_SECONDS, connection.end)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _unbroken(silent: Callable[[], Silent]) -> Iterator[None]:
    """Read an answer in a block.

    Raises the error of ``silent`` if none comes, and EngineUnreachable if the connection breaks, or is not HTTP.
    """
    try:
        yield
    except TimeoutError as error:
        raise silent() from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # http.client reads a chunk of negative size too
        raise EngineUnreachable(
            f"the connection to the Docker daemon broke: {error}; it may have been restarted: run this again"
        ) from error


def _messages(
    line: bytes | bytearray, malformed: str = "a message of the Docker daemon is no JSON object"
) -> Iterator[Any]:
    """Yield the messages of a line: one, or none. Raises SlipwayError with ``malformed`` for anything else."""
    if not line.strip():
        return
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise SlipwayError(malformed)
    yield message


def _message(body: bytes) -> str:
    if len(body) > _LONGEST_REFUSAL:
        return f"a reason of more than {_LONGEST_REFUSAL >> 20} MiB"
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = body.decode(errors="replace")
    return " ".join(str(message).split())


def json_header(value: object) -> str:
    """Return the value of a header in JSON, such as ``X-Registry-Auth``."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode("ascii")


def load(engine: Engine, archive: bytes, timeout: float) -> list[dict[str, Any]]:
    """Give an engine an image of :func:`image_archive`; return its messages, of errors too.

    Raises SlipwayError: as :meth:`Engine.request`.
    """
    with engine.request(
        "POST",
        "/images/load",
        query={"quiet": "1"},
        headers={"Content-Type": "application/x-tar"},
        body=lambda body: body.write(archive),
        timeout=timeout,
    ) as response:
        return [*response.messages()]


def image_archive(files: Mapping[str, bytes], *, mode: int = 0o644) -> bytes:
    """Return files as an archive: a layer, or an image for `docker load`."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()
