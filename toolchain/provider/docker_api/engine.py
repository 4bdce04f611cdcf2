"""A client of the Docker Engine's HTTP API: unix sockets, TCP, TLS and ssh, streams both ways, and upgrades.

Connections are made one a request and can be ended from another thread, which is how a build is cancelled: the engine
stops a build whose client has gone.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from containers.child_environment import child_environment
from containers.errors import one_line
from toolchain.provider.provider_base import Operation, ProviderError

_NEWEST_API: Final = (1, 51)
"""The newest API version this client was written against; older engines are spoken to in their own."""
_CONNECT_SECONDS: Final = 30
SILENT_VARIABLE: Final = "SLIPWAY_SILENT_SECONDS"
"""Environment variable: the number of seconds that an engine may say nothing while it works."""
_WAITING: Final = re.compile(r"^goroutine \d+ \[[^\]\n]*\d+ minutes[^\n]*\n((?:.+\n)+)", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^github\.com/(moby/buildkit/.+)\(", re.MULTILINE)
_MOST_WAITS: Final = 5
_CHUNK_BYTES: Final = 1 << 20
_LONGEST_MESSAGE: Final = 32 << 20
"""Most bytes of one message of a stream. BuildKit's statuses have at most 16 MiB (gRPC's limit), here in base64."""
_LONGEST_DOCUMENT: Final = 16 << 20
"""Most bytes of a document, such as what an engine says of an image."""
_LONGEST_REFUSAL: Final = 1 << 20
"""Most bytes of a refusal. A longer one is not cut, as its secrets are masked later, but left out."""
_LONGEST_HEAD: Final = 1 << 16
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")

Query = Mapping[str, str | Sequence[str]]


class EngineError(ProviderError):
    """The engine refused a request.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class EngineUnreachable(ProviderError):
    """No engine answers at an address; the text has the address and the reason."""


class Silent(EngineUnreachable):
    """An engine took a request, and says nothing any more; the text says where it waits."""


def silent_seconds() -> float:
    """Return how long an engine may say nothing: SILENT_VARIABLE, or two hours. Raises ProviderError.

    A step may compile for an hour without a line of output.
    """
    text = os.environ.get(SILENT_VARIABLE) or "7200"
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ProviderError(f"{SILENT_VARIABLE}={one_line(text)!r}: give a number of seconds")
    return float(text)


@dataclass(frozen=True)
class Address:
    """An engine's address, and the credentials for it.

    Attributes:
        host: `unix://`, `tcp://`, `http://`, `https://` or `ssh://` URL.
        ssh_options: further arguments of ssh.
        certificates: PEM files of the CA, the client's certificate and its key; None for plain TCP.
    """

    host: str
    ssh_options: tuple[str, ...] = ()
    certificates: tuple[str, str, str] | None = field(default=None, repr=False)


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over the transport that the address names."""

    def __init__(self, address: Address) -> None:
        super().__init__("docker")
        self._address = address
        self._ssh: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Open the connection.

        Raises:
            EngineUnreachable: if nothing answers.
        """
        url = urllib.parse.urlsplit(self._address.host)
        dial = _DIALS.get(url.scheme)
        if dial is None:
            raise EngineUnreachable(f"host {self._address.host}: unknown scheme; it is one of {', '.join(_DIALS)}")
        try:
            self.sock = dial(self, url)
        except OSError as error:
            raise EngineUnreachable(f"{self._address.host}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the connection, and end the ssh that carried it."""
        super().close()
        if self._ssh is not None:
            self._ssh.terminate()
            self._ssh.wait()

    def end(self) -> None:
        """End the connection from another thread: a thread that waits on it wakes up."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def complaint(self) -> str:
        """Return ssh's output, for a connection that closed before the engine answered."""
        if self._ssh is None or self._ssh.stderr is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(timeout=2)
        self.close()
        with self._ssh.stderr as stderr:
            return stderr.read().decode(errors="replace").strip().replace("\n", "; ")

    def dial_unix(self, url: urllib.parse.SplitResult) -> socket.socket:
        """Connect to a socket's path."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"{url.netloc}{url.path}")  # a relative path begins where a host would
        except OSError:
            connection.close()
            raise
        return connection

    def dial_tcp(self, url: urllib.parse.SplitResult) -> socket.socket:
        """Connect to a host and port, with TLS where there are certificates or the URL begins with https."""
        secure = self._address.certificates is not None or url.scheme == "https"
        port = url.port or (2376 if secure else 2375)
        connection = socket.create_connection((url.hostname or "localhost", port), timeout=_CONNECT_SECONDS)
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not secure:
            return connection
        return _tls(self._address.certificates).wrap_socket(connection, server_hostname=url.hostname)

    def dial_ssh(self, url: urllib.parse.SplitResult) -> socket.socket:
        """Run ssh, whose far end is the engine's own `docker system dial-stdio`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._ssh = subprocess.Popen(
                ssh_command(url, self._address.ssh_options),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=child_environment("ssh"),
            )
        return ours


_DIALS: Final[dict[str, Callable[[_Connection, urllib.parse.SplitResult], socket.socket]]] = {
    "unix": _Connection.dial_unix,
    "tcp": _Connection.dial_tcp,
    "http": _Connection.dial_tcp,
    "https": _Connection.dial_tcp,
    "ssh": _Connection.dial_ssh,
}


def ssh_command(url: urllib.parse.SplitResult, options: Sequence[str]) -> list[str]:
    """Return the command that reaches the engine behind an `ssh://[user@]host[:port][/socket]` URL.

    Raises:
        EngineUnreachable: for a URL with a password, or without a host.
    """
    if url.password is not None or not url.hostname:
        raise EngineUnreachable(f"host ssh://{url.hostname or ''}: give a host, and a key instead of a password")
    command = ["ssh"]
    if url.username:
        command += ["-l", url.username]
    if url.port:
        command += ["-p", str(url.port)]
    command += options
    if not any("ConnectTimeout" in option for option in options):
        command += ["-o", f"ConnectTimeout={_CONNECT_SECONDS}"]
    if "-T" not in options:
        command.append("-T")
    remote = ["docker", *([f"--host=unix://{url.path}"] if url.path.strip("/") else []), "system", "dial-stdio"]
    return [*command, "--", url.hostname, shlex.join(remote)]


def _tls(certificates: tuple[str, str, str] | None) -> ssl.SSLContext:
    if certificates is None:
        return ssl.create_default_context()
    authority, certificate, key = certificates
    try:
        context = ssl.create_default_context(cadata=authority)
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:  # the ssl module reads a key from a file only
            pair = Path(folder, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_text(f"{certificate}\n{key}\n", encoding="ascii")
            context.load_cert_chain(pair)
    except (ssl.SSLError, ValueError) as error:
        raise EngineUnreachable(f"certificates of the Docker host cannot be used: {error}") from error
    return context


class Response:
    """What the engine answered, to be read as it comes."""

    def __init__(self, response: http.client.HTTPResponse, silent: Callable[[], Silent]) -> None:
        self._response = response
        self._silent = silent
        self.headers = response.headers

    def document(self) -> dict[str, Any]:
        """Return the JSON object that is the whole body.

        Raises:
            ProviderError: if it breaks off, is too long, or is no JSON object.
        """
        with _unbroken(self._silent):
            body = self._response.read(_LONGEST_DOCUMENT + 1)
        if len(body) > _LONGEST_DOCUMENT:
            raise ProviderError(f"the Docker daemon's answer has more than {_LONGEST_DOCUMENT >> 20} MiB")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ProviderError("the Docker daemon's answer is no JSON object, or not all of it")
        return document

    def read(self, size: int) -> bytes:
        """Return the next bytes of the body, at most ``size``; none at its end. Raises ProviderError if it breaks."""
        with _unbroken(self._silent):
            return self._response.read(size)

    def text(self) -> str:
        """Return the body, as far as a document may be long. Raises ProviderError if it breaks off."""
        with _unbroken(self._silent):
            return self._response.read(_LONGEST_DOCUMENT).decode(errors="replace")

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON messages of a stream as they come, each on a line (moby, pkg/streamformatter).

        Raises:
            ProviderError: if the stream breaks off, or a message is too long or no JSON object.
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
                    raise ProviderError(f"a message of the Docker daemon has more than {_LONGEST_MESSAGE >> 20} MiB")
        yield from _messages(held, "the Docker daemon ended its answer in the middle of a message")


class BodyWriter:
    """Where a request's body is written to, in chunks, as it is made.

    Args:
        connection: an open request with chunked transfer encoding.
        sent: takes the number of bytes written so far, at each write.
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
    """A Docker Engine.

    Args:
        address: where it listens.
        version: the API version to speak; "" for the engine's default.
    """

    def __init__(self, address: Address, version: str = "") -> None:
        self.address = address
        self._prefix = f"/v{version}" if version else ""

    @classmethod
    def connect(cls, address: Address) -> Engine:
        """Find out which API version the engine at an address speaks.

        Raises:
            EngineUnreachable: if none answers.
        """
        with cls(address).request("GET", "/_ping", timeout=_CONNECT_SECONDS) as response:
            version = response.headers.get("Api-Version", "1.24")
        match = _VERSION.fullmatch(version)
        if not match:
            raise EngineUnreachable(
                f"{address.host}: answers with the API version {one_line(version)!r}, not such as 1.41"
            )
        offered = int(match[1]), int(match[2])
        return cls(address, ".".join(str(part) for part in min(offered, _NEWEST_API)))

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: Callable[[BodyWriter], None] | None = None,
        sent: Callable[[int], None] = lambda _: None,
        operation: Operation | None = None,
        timeout: float | None = None,
    ) -> Iterator[Response]:
        """Send a request; the answer is open within the block.

        Args:
            method: HTTP method.
            path: path below the API's version.
            query: parameters.
            headers: further headers.
            body: writes the body; None for an empty one.
            sent: takes the number of bytes of the body sent so far.
            operation: what may end the request from another thread.
            timeout: seconds to wait for each piece of the answer; None for :func:`silent_seconds`.

        Raises:
            EngineUnreachable: if no engine answers.
            Silent: if it says nothing for that long.
            EngineError: if it refuses the request.
        """
        connection = _Connection(self.address)
        with closing(connection), (operation or Operation()).ending(connection.end):
            connection.connect()
            seconds = timeout or silent_seconds()
            connection.sock.settimeout(seconds)
            target = self._prefix + path + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
            try:
                connection.putrequest(method, target, skip_accept_encoding=True)
                for key, value in (headers or {}).items():
                    connection.putheader(key, value)
                if body is None:
                    connection.putheader("Content-Length", "0")
                    connection.endheaders()
                else:
                    connection.putheader("Transfer-Encoding", "chunked")
                    connection.endheaders()
                    _send(connection, body, sent)
                response = connection.getresponse()
            except TimeoutError as error:
                raise self._silent(seconds) from error
            except (OSError, http.client.HTTPException) as error:
                reason = (
                    connection.complaint() or getattr(error, "strerror", None) or str(error) or type(error).__name__
                )
                raise EngineUnreachable(f"{self.address.host}: {reason}") from error
            with closing(response):
                if response.status >= http.client.BAD_REQUEST:
                    with _unbroken(lambda: self._silent(seconds)):
                        refusal = response.read(_LONGEST_REFUSAL + 1)
                    raise EngineError(response.status, _message(refusal))
                yield Response(response, lambda: self._silent(seconds))

    def _silent(self, seconds: float) -> Silent:
        """Return the error for a request that gets no answer."""
        waits = ""
        with suppress(ProviderError):
            waits = "".join(f"; it has waited for minutes in {place}" for place in self.waits())
        return Silent(
            f"{self.address.host}: the Docker daemon said nothing for {seconds:g} s{waits}. "
            f"{SILENT_VARIABLE} is the number of seconds that it may take"
        )

    def waits(self) -> list[str]:
        """Return where the engine's goroutines have waited for minutes: of each, its first function of BuildKit.

        Raises ProviderError, also if the engine does not say so.
        """
        engine = Engine(self.address)  # its path has no version
        with engine.request("GET", "/debug/pprof/goroutine", query={"debug": "2"}, timeout=_CONNECT_SECONDS) as answer:
            stacks = _WAITING.findall(answer.text())
        places = (_FUNCTION.search(stack) for stack in stacks)
        return list(dict.fromkeys(place[1] for place in places if place))[:_MOST_WAITS]

    def json(self, path: str) -> dict[str, Any]:
        """Get a JSON object.

        Raises:
            ProviderError: the answer is none; or as :meth:`request`.
        """
        with self.request("GET", path) as response:
            return response.document()

    def upgrade(self, path: str, protocol: str, headers: Sequence[tuple[str, str]]) -> socket.socket:
        """Turn a connection into one that speaks another protocol, and return it.

        Raises:
            EngineUnreachable: if no engine answers.
            EngineError: if it does not upgrade.
        """
        connection = _Connection(self.address)
        connection.connect()
        channel = connection.sock
        channel.settimeout(_CONNECT_SECONDS)
        try:
            self._agree(connection, path, protocol, headers)
        except ProviderError:
            connection.close()
            raise
        channel.settimeout(None)  # a session says nothing while a build needs nothing of it
        return channel

    def _agree(self, connection: _Connection, path: str, protocol: str, headers: Sequence[tuple[str, str]]) -> None:
        """Have the engine upgrade a connection, of which nothing is read after the head of the answer."""
        channel = connection.sock
        lines = [f"POST {self._prefix}{path} HTTP/1.1", "Host: docker", "Connection: Upgrade", f"Upgrade: {protocol}"]
        lines += [f"{key}: {value}" for key, value in headers]
        try:
            channel.sendall("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode("ascii"))
            head = bytearray()
            while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows the head is not ours to read
                piece = channel.recv(1)
                if not piece:
                    raise EngineUnreachable(f"{self.address.host}: {connection.complaint() or 'closed the connection'}")
                head += piece
                if len(head) > _LONGEST_HEAD:
                    raise EngineUnreachable(f"{self.address.host}: {path}: the head of the answer does not end")
        except OSError as error:
            raise EngineUnreachable(f"{self.address.host}: {error.strerror or error}") from error
        match = _STATUS.match(head)
        if not match:
            raise EngineUnreachable(f"{self.address.host}: {path}: the answer is no HTTP")
        status = int(match[1])
        if status != http.client.SWITCHING_PROTOCOLS:
            raise EngineError(status, f"{path}: the Docker daemon does not upgrade to {protocol} (HTTP {status})")


def _send(
    connection: http.client.HTTPConnection, body: Callable[[BodyWriter], None], sent: Callable[[int], None]
) -> None:
    writer = BodyWriter(connection, sent)
    try:
        body(writer)
        writer.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # the engine has answered before the end of the body; its answer has the reason


@contextmanager
def _unbroken(silent: Callable[[], Silent]) -> Iterator[None]:
    """Read an answer in a block.

    Raises the error of ``silent`` if none comes, and ProviderError if the connection breaks, or the answer is not HTTP.
    """
    try:
        yield
    except TimeoutError as error:
        raise silent() from error
    except (OSError, http.client.HTTPException) as error:
        raise ProviderError(f"the connection to the Docker daemon broke: {error}") from error


def _messages(
    line: bytes | bytearray, malformed: str = "a message of the Docker daemon is no JSON object"
) -> Iterator[Any]:
    """Yield the messages of a line: one, or none. Raises ProviderError with ``malformed`` for anything else."""
    if not line.strip():
        return
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ProviderError(malformed)
    yield message


def _message(body: bytes) -> str:
    if len(body) > _LONGEST_REFUSAL:
        return f"a reason of more than {_LONGEST_REFUSAL >> 20} MiB"
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = body.decode(errors="replace")
    return " ".join(str(message).split())
