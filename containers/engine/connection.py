"""A connection to a Docker engine: by a Unix socket, by TCP with or without TLS, or by ssh.

The standard library alone is imported: `make doctor` uses this before any package is installed.
"""

from __future__ import annotations

import os
import shlex
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final
from urllib.parse import SplitResult, urlsplit

from containers.child_environment import child_environment
from containers.errors import SlipwayError, one_line

CONNECT_SECONDS: Final = 30
"""Until a connection must be there, and until an engine must answer that it is."""

_LONGEST_COMPLAINT: Final = 1 << 12
"""Bytes of ssh's messages that are kept, such as the host's banner."""

_KEPT_ALIVE: Final = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 30,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 10,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 6,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 90_000,
}
"""By these a connection ends 90 seconds after the engine's machine is lost, which says nothing (tcp(7))."""


class EngineUnreachable(SlipwayError):
    """No engine answers at an address; the text has the address and the reason."""


@dataclass(frozen=True)
class Address:
    """How an engine is reached.

    Attributes:
        host: ``unix://``, ``tcp://``, ``http://``, ``https://`` or ``ssh://`` URL; empty for the engine of the
            environment.
        ssh: further arguments of ssh.
        tls: the authority of the engine's certificate, the client's certificate and its key, as PEM: ``ca``, ``cert``
            and ``key``; empty for an engine without TLS.
        folder: where a socket's relative path begins.
    """

    host: str = ""
    ssh: Sequence[str] = ()
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path = Path()

    def __str__(self) -> str:
        """Return the address for a message, without what may be a credential."""
        return one_line(self.host, 300)


class Connection:
    """An open connection to an engine. Closing it ends the ssh that carries it.

    ``errors`` is where ssh's messages go, as for :class:`subprocess.Popen`: ``PIPE`` for :meth:`complaint`. Default:
    the standard error of this process.

    Raises EngineUnreachable: nothing answers.
    """

    def __init__(self, address: Address, errors: int | None = None) -> None:
        self._address = address
        self._errors = errors
        self._ssh: subprocess.Popen[bytes] | None = None
        self._messages: Tail | None = None
        try:
            url = urlsplit(address.host)
            dial = _DIALS.get(url.scheme)
            if dial is None:
                raise EngineUnreachable(f"host {address}: unknown scheme; it is one of {', '.join(_DIALS)}")
            self.socket = dial(self, url)
        except OSError as error:
            raise EngineUnreachable(f"{address}: {error.strerror or error}") from error
        except ValueError as error:  # of the port, the host's name or an address of IPv6
            raise EngineUnreachable(f"host {address}: {one_line(str(error))}") from error

    def close(self) -> None:
        """End the connection."""
        self.end()
        self.socket.close()
        if self._ssh is not None:
            self._ssh.terminate()
            self._ssh.wait()

    def end(self) -> None:
        """End the connection from another thread: a thread that waits on it wakes up."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def complaint(self) -> str:
        """Return why ssh ended, for a connection that closed before the engine answered; empty if it did not."""
        if self._ssh is None or self._messages is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(timeout=2)
        status = self._ssh.poll()
        self.close()
        self._messages.join(2)  # a connection that ssh shares (ControlPersist) keeps its standard error open
        message = self._messages.text.strip().replace("\n", "; ")
        return message or (f"ssh ended with status {status}" if status else "")

    def dial_unix(self, url: SplitResult) -> socket.socket:
        """Connect to a socket's path; a relative one begins where a host would."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with shortened(self._address.folder / f"{url.netloc}{url.path}") as path:
                connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection

    def dial_tcp(self, url: SplitResult) -> socket.socket:
        """Connect to a host and port, with TLS where there are certificates or the URL begins with https."""
        tls = self._address.tls
        secure = bool(tls) or url.scheme == "https"
        port = url.port or (2376 if secure else 2375)
        connection = socket.create_connection((url.hostname or "localhost", port), timeout=CONNECT_SECONDS)
        for option, value in _KEPT_ALIVE.items():
            connection.setsockopt(*option, value)
        if secure:
            connection = _client_context(tls).wrap_socket(connection, server_hostname=url.hostname)
        connection.settimeout(None)
        return connection

    def dial_ssh(self, url: SplitResult) -> socket.socket:
        """Run ssh, whose far end is the engine's own `docker system dial-stdio`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._ssh = subprocess.Popen(
                ssh_command(url, self._address.ssh),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,  # without a terminal, ssh fails where it would ask for a password
                env=child_environment("ssh"),
            )
        if self._ssh.stderr is not None:
            self._messages = Tail(self._ssh.stderr, _LONGEST_COMPLAINT)
            self._messages.start()
        return ours


@contextmanager
def shortened(path: Path) -> Iterator[str]:
    """Yield a socket's path by the descriptor of its folder: a socket takes at most 107 bytes."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Tail(threading.Thread):
    """The end of what a program prints, at most ``most`` bytes: it is read at once, or a long text would stop it."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        super().__init__(daemon=True)
        self._stream, self._most, self._kept = stream, most, b""

    def run(self) -> None:
        """Read to the end."""
        with self._stream:
            while content := os.read(self._stream.fileno(), self._most):
                self._kept = (self._kept + content)[-self._most :]

    @property
    def text(self) -> str:
        """The text so far."""
        return self._kept.decode(errors="replace")


_DIALS: Final[dict[str, Callable[[Connection, SplitResult], socket.socket]]] = {
    "unix": Connection.dial_unix,
    "tcp": Connection.dial_tcp,
    "http": Connection.dial_tcp,
    "https": Connection.dial_tcp,
    "ssh": Connection.dial_ssh,
}


def ssh_command(url: SplitResult, options: Sequence[str]) -> list[str]:
    """Return the command that reaches the engine behind an `ssh://[user@]host[:port][/socket]` URL.

    Raises EngineUnreachable: for a URL with a password, or without a host.
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
        command += ["-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    if "-T" not in options:
        command.append("-T")
    remote = ["docker", *([f"--host=unix://{url.path}"] if url.path.strip("/") else []), "system", "dial-stdio"]
    return [*command, "--", url.hostname, shlex.join(remote)]


def _client_context(tls: Mapping[str, str]) -> ssl.SSLContext:
    if not tls:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=tls["ca"])
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:  # the ssl module reads a key from a file only
            pair = Path(folder, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_text(f"{tls['cert']}\n{tls['key']}\n", encoding="ascii")
            context.load_cert_chain(pair)
    except (ssl.SSLError, ValueError) as error:
        raise EngineUnreachable(f"certificates of the Docker host cannot be used: {error}") from error
    return context
