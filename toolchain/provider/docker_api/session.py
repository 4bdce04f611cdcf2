"""A BuildKit session: the connection over which the engine requests credentials and secrets during a build.

The engine is the client here: it calls gRPC services over a connection that this process has opened and upgraded. The
services listen on a private socket, and the two connections are joined.
"""

from __future__ import annotations

import secrets
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from containers.engine.engine import Engine
from containers.engine.relay import pass_on
from containers.errors import SlipwayError
from toolchain.provider.docker_api.protos import (
    CredentialsRequest,
    CredentialsResponse,
    GetSecretRequest,
    GetSecretResponse,
)

_REOPEN_SECONDS: Final = 0.1
_CREDENTIALS: Final = "/moby.filesync.v1.Auth/Credentials"
_GET_SECRET: Final = "/moby.buildkit.secrets.v1.Secrets/GetSecret"  # noqa: S105 - a method
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"
"""HealthCheckResponse with status SERVING, in its encoded form."""

Credentials = Callable[[str], tuple[str, str]]
"""Returns user and password for a registry's host, both "" for none."""


class _Services(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # a generic in the stubs alone
    """The requests that the engine may make."""

    def __init__(self, credentials: Credentials, secrets: Mapping[str, str]) -> None:
        self._credentials = credentials
        self._secrets = secrets

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return a method; after None, the response is UNIMPLEMENTED, and BuildKit does without."""
        methods = {
            _CREDENTIALS: self._credentials_response,
            _GET_SECRET: self._secret_response,
            _HEALTH: lambda *_: _SERVING,
        }
        method = methods.get(handler_call_details.method or "")
        return None if method is None else grpc.unary_unary_rpc_method_handler(method)

    def _credentials_response(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            username, secret = self._credentials(CredentialsRequest.FromString(request).host)
        except SlipwayError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        response: bytes = CredentialsResponse(username=username, secret=secret).SerializeToString()
        return response

    def _secret_response(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        name = GetSecretRequest.FromString(request).ID
        if name not in self._secrets:  # BuildKit leaves the mount out, unless the step requires it
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no build secret {name!r}")
        response: bytes = GetSecretResponse(data=self._secrets[name].encode()).SerializeToString()
        return response


class Session:
    """A session that is open within a `with` block. ``id`` is the session's id in a build's request.

    ``credentials`` returns those of a registry, and ``build_secrets`` are secrets that steps may mount, by id.
    """

    def __init__(
        self, engine: Engine, credentials: Credentials, build_secrets: Mapping[str, str] | None = None
    ) -> None:
        self.id = secrets.token_hex(16)
        self._engine = engine
        self._services = _Services(credentials, build_secrets or {})
        self._stack = ExitStack()
        self._closed = threading.Event()
        self._joined: tuple[socket.socket, ...] = ()

    def __enter__(self) -> Self:
        """Open the session. Raises SlipwayError: if the engine does not take it."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-"))
            path = str(Path(folder, "s"))
            server = grpc.server(ThreadPoolExecutor(max_workers=4), handlers=[self._services])
            server.add_insecure_port(f"unix:{path}")
            server.start()
            stack.callback(server.stop, None)
            stack.callback(self._close)
            self._join(path, self._opened())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self._stack.close()

    def _opened(self) -> socket.socket:
        return self._engine.upgrade("/session", "h2c", self._headers())

    def _join(self, path: str, theirs: socket.socket) -> None:
        """Join a connection of the engine with the services, and open the session again when the engine ends it.

        Of several engines behind one address, another one may take the build.
        """
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._joined = (theirs, ours)
        ours.connect(path)

        def serve() -> None:
            pass_on(ours, theirs)
            theirs.close()
            ours.close()
            if not self._closed.wait(_REOPEN_SECONDS):
                with suppress(OSError, SlipwayError):  # no engine is left, as the build itself says
                    self._join(path, self._opened())

        threading.Thread(target=serve, daemon=True).start()
        if self._closed.is_set():  # meanwhile
            self._close()

    def _close(self) -> None:
        self._closed.set()
        for connection in self._joined:
            _close(connection)

    def _headers(self) -> list[tuple[str, str]]:
        prefix = "X-Docker-Expose-Session-"
        return [
            (f"{prefix}Uuid", self.id),
            (f"{prefix}Name", "slipway"),
            (f"{prefix}Sharedkey", self.id),
            (f"{prefix}Grpc-Method", _CREDENTIALS),
            (f"{prefix}Grpc-Method", _GET_SECRET),
            (f"{prefix}Grpc-Method", _HEALTH),
        ]


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
