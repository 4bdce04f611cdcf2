"""How this machine reaches a Docker engine, and an image's archive as the engine saves it.

The docker client reaches most engines. Two it does not: it takes no options for ssh, and it reads certificates from
files, not from a stack's state. On the first, `docker` of that machine saves the image; the second is asked by its API
(moby v28, api/server/router/image/image.go: `/images/get`). Neither needs a docker client on this machine.
"""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import OK, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import IO, Final, cast
from urllib.parse import urlencode, urlsplit

from containers.child_environment import child_environment
from containers.engine.engine_platforms import engine_failure
from containers.errors import SlipwayError, one_line

_SECONDS: Final = 1800
"""Until an engine's next bytes: one without containerd's store of images writes the archive to its disk first."""
_MOST: Final = 1 << 16
"""Bytes of an engine's error that are read."""


@dataclass(frozen=True)
class Access:
    """How an engine is reached.

    ``host`` is its address; a socket's path may begin in ``folder``. Empty for the docker client's own. ``ssh`` are
    options of ssh for an address that begins with ``ssh://``; empty for those of the docker client. ``tls`` has the
    authority of the engine's certificate, and the client's certificate and key, as PEM: ``ca``, ``cert`` and ``key``;
    empty for an engine without, or whose certificates the docker client has.
    """

    host: str = ""
    ssh: Sequence[str] = ()
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path = Path()


def saving(name: str, access: Access) -> AbstractContextManager[IO[bytes]]:
    """Return the archive of the image ``repository:tag``, as its engine writes it; all of it must be read.

    Raises:
        SlipwayError: the engine cannot save the image, with its reason.
    """
    return _by_api(name, access) if access.tls else _by_program(name, access)


def connection(address: str, tls: Mapping[str, str], seconds: float) -> HTTPSConnection:
    """Return a connection to the engine at ``host:port``; ``seconds`` is how long each answer may take.

    Raises:
        OSError: the certificates are malformed.
    """
    return HTTPSConnection(address, timeout=seconds, context=client_context(tls))


def client_context(tls: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a client of an engine; ``tls`` is as of :class:`Access`.

    Raises:
        OSError: the certificates are malformed.
    """
    context = ssl.create_default_context(cadata=tls["ca"])
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(0o600)
        pair.write_text(tls["cert"] + tls["key"])
        context.load_cert_chain(pair)
    return context


class _Response:
    """The body of an engine's response, whose end in the middle is an error of the engine."""

    def __init__(self, name: str, host: str, response: HTTPResponse) -> None:
        self._name, self._host, self._response = name, host, response

    def read(self, size: int = -1) -> bytes:
        with _explained(self._name, self._host):
            return self._response.read(size)


@contextmanager
def _explained(name: str, host: str) -> Iterator[None]:
    try:
        yield
    except IncompleteRead:
        raise _failure(name, host, "the connection ended in the middle") from None
    except (OSError, HTTPException, ValueError) as error:  # http.client reads a chunk of any size, negative ones too
        raise _failure(name, host, f"{type(error).__name__}: {error}") from None


@contextmanager
def _by_api(name: str, access: Access) -> Iterator[IO[bytes]]:
    """Yield what an engine's API sends.

    Raises:
        SlipwayError: it cannot be reached, or refuses.
    """
    host = access.host
    with _explained(name, host):
        engine = connection(urlsplit(host).netloc, access.tls, _SECONDS)
    with closing(engine):
        with _explained(name, host):
            engine.request("GET", f"/images/get?{urlencode({'names': name})}")
            response = engine.getresponse()
            refusal = "" if response.status == OK else _message(response.read(_MOST))
        if response.status != OK:
            raise _failure(name, host, refusal, response.status)
        yield cast("IO[bytes]", _Response(name, host, response))


def _message(body: bytes) -> str:
    """Return the reason in an error of an engine's API."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return one_line(body.decode(errors="replace"))


def _failure(name: str, host: str, printed: str, status: int = 0) -> SlipwayError:
    return SlipwayError(f"{name}: {engine_failure(host, 'save', printed, status)}")


def _command(name: str, access: Access) -> list[str]:
    """Return the command that writes an image's archive to its standard output."""
    if access.ssh:
        return ["ssh", *access.ssh, str(urlsplit(access.host).hostname), shlex.join(["docker", "save", name])]
    return ["docker", *(["--host", access.host] if access.host else []), "save", name]


@contextmanager
def _by_program(name: str, access: Access) -> Iterator[IO[bytes]]:
    """Yield what the docker client writes, here or on the engine's machine.

    Raises:
        SlipwayError: it fails; with the last line of what it printed.
    """
    command = _command(name, access)
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=access.folder,
                env=child_environment(command[0]),
                start_new_session=True,  # without a terminal, ssh fails where it would ask for a password
            )
        except FileNotFoundError:
            client = "docker client" if command[0] == "docker" else command[0]
            raise SlipwayError(f"{name}: no {client} on PATH: it reads an image that is not pushed") from None
        stream = cast("IO[bytes]", process.stdout)
        failure: SlipwayError | None = None
        try:
            yield stream
            process.wait()
        except SlipwayError as error:
            failure = error
            with suppress(subprocess.TimeoutExpired):  # an archive that is cut off has its cause there
                process.wait(1)
        finally:
            status = process.poll()  # None if it is ended here
            process.kill()
            stream.close()
            process.wait()
        errors.seek(0)
        printed = errors.read().decode(errors="replace")
    if status:
        raise _failure(name, access.host, printed, status)
    if failure is not None:
        raise failure
