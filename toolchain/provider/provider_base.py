"""The common part of a Pulumi resource provider written in Python.

A provider plugin is a program that prints a port and serves `pulumirpc.ResourceProvider` on it. This module holds what
every such program needs: property values to and from the wire, lines in Pulumi's display, calls that `Cancel` can
end, errors as one line, and the start and end of the process.

A provider is a subclass of `Provider` with the methods it serves; `serve(MyProvider)` runs it.

Source of the wire format (signatures, sentinel strings): Pulumi's Go SDK, `sdk/go/common/resource/plugin/rpc.go`.
"""

# ruff: noqa: ARG002, N802 - the protocol gives the methods their names and arguments

from __future__ import annotations

import os
import posixpath
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2_grpc

from containers.engine.connection import CONNECT_SECONDS
from containers.errors import SlipwayError
from toolchain.provider import user_port

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
"""The key that marks an object on the wire as something other than a plain object."""
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the same in every Pulumi
OUTPUT_SIGNATURE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_TEXT: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_UNKNOWN_TEXTS: Final = frozenset(
    {
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""The placeholders on the wire for unknown values, by type (string, bool, number, ...)."""

_MESSAGE_BYTES: Final = 400 * 1024 * 1024
"""Largest message, as in the engine and the SDKs."""
_LAST_SECONDS: Final = CONNECT_SECONDS
"""How long a process that ends lets its calls remove what they have in a Docker engine, such as a container.

That is the time of one request. An engine beside many builds needs it; without a call in progress nothing waits.
"""
_THREADS: Final = 1024
"""Upper bound of calls in progress. Threads start as they are needed; `Cancel` must always find one free."""
_PARENT_POLL_SECONDS: Final = 1.0


class Cancelled(SlipwayError):
    """The call was ended by `Cancel`, or because the engine has ended."""


class Unknown:
    """The type of `UNKNOWN`, a value that only an update gives."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that Pulumi encrypts in state and masks in its display."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


Properties = dict[str, Any]
"""Property values: None, bool, float, str, list, dict, UNKNOWN, and Secret around any of them."""


def decode(value: struct_pb2.Value) -> Any:
    """Turn one value from the wire into Python."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return UNKNOWN if text in _UNKNOWN_TEXTS else text
    if kind == "struct_value":
        fields = value.struct_value.fields
        if SIGNATURE in fields:
            return _decode_signed(fields)
        return {key: decode(item) for key, item in fields.items()}
    if kind == "bool_value":
        return value.bool_value
    if kind == "number_value":
        return value.number_value
    if kind == "list_value":
        return [decode(item) for item in value.list_value.values]
    return None


def _decode_signed(fields: Mapping[str, struct_pb2.Value]) -> Any:
    signature = fields[SIGNATURE].string_value
    if signature == SECRET_SIGNATURE:
        return Secret(decode(fields["value"]))
    if signature == OUTPUT_SIGNATURE:
        value = decode(fields["value"]) if "value" in fields else UNKNOWN
        return Secret(value) if "secret" in fields and fields["secret"].bool_value else value
    return {key: decode(item) for key, item in fields.items()}


def decode_struct(struct: struct_pb2.Struct) -> Properties:
    """Turn properties from the wire into Python."""
    return {key: decode(item) for key, item in struct.fields.items()}


def encode(value: Any) -> struct_pb2.Value:
    """Turn one Python value into the wire's form."""
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, int | float):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, Unknown):
        return struct_pb2.Value(string_value=UNKNOWN_TEXT)
    if isinstance(value, Secret):
        signed = {SIGNATURE: encode(SECRET_SIGNATURE), "value": encode(value.value)}
        return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=signed))
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=encode_struct(value))
    return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[encode(item) for item in value]))


def encode_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Turn Python properties into the wire's form."""
    return struct_pb2.Struct(fields={key: encode(item) for key, item in properties.items()})


def plain(value: Any) -> Any:
    """Return the value without secrets' wrappers and without nulls inside objects."""
    return _without_nulls(value, plain, lambda inner: inner)


def without_nulls(value: Any) -> Any:
    """Return the value without nulls inside objects, its secrets kept."""
    return _without_nulls(value, without_nulls, Secret)


def _without_nulls(value: Any, recurse: Callable[[Any], Any], secret: Callable[[Any], Any]) -> Any:
    if isinstance(value, Secret):
        return secret(recurse(value.value))
    if isinstance(value, dict):
        return {key: inner for key, item in value.items() if (inner := recurse(item)) is not None}
    return [recurse(item) for item in value] if isinstance(value, list) else value


def _inner(value: Any) -> Iterable[Any]:
    """Return the values directly inside a value."""
    if isinstance(value, Secret):
        return [value.value]
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def secret_texts(value: Any, *, secret: bool = False) -> Iterator[str]:
    """Yield every string inside a secret, to be masked in output."""
    if isinstance(value, str) and secret:
        yield value
    for item in _inner(value):
        yield from secret_texts(item, secret=secret or isinstance(value, Secret))


def has_unknown(value: Any) -> bool:
    """Return whether the value is unknown, or has an unknown one inside."""
    return isinstance(value, Unknown) or any(map(has_unknown, _inner(value)))


class Host:
    """The engine that started this plugin, at `host:port`, "" for one started by hand; it takes log lines."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def attach(self, address: str) -> None:
        """Log to another engine from now on."""
        with self._lock:
            self._address, self._stub = address, None

    def log(self, urn: str, message: str, severity: str = "INFO", *, ephemeral: bool = False) -> None:
        """Print a line for a resource, of the severity DEBUG, INFO, WARNING or ERROR.

        An ``ephemeral`` one replaces the resource's last such line, and is not kept in the output.
        """
        stub = self._engine()
        if stub is None:
            return
        request = engine_pb2.LogRequest(
            severity=engine_pb2.LogSeverity.Value(severity), message=message, urn=urn, ephemeral=ephemeral
        )
        try:
            stub.Log(request, timeout=10)
        except grpc.RpcError:
            return  # an ending engine takes no lines; the call ends by itself

    def _engine(self) -> engine_pb2_grpc.EngineStub | None:
        with self._lock:
            if self._stub is None and self._address:
                channel = grpc.insecure_channel(
                    self._address, options=[("grpc.max_send_message_length", _MESSAGE_BYTES)]
                )
                self._stub = engine_pb2_grpc.EngineStub(channel)
            return self._stub


class StatusLine:
    """The status line of one resource: it shows the newest text, with a pause between two.

    ``seconds`` is the pause. Without a terminal, each text is a separate line.
    """

    def __init__(self, show: Callable[[str], None], seconds: float = 0.5) -> None:
        self._show = show
        self._seconds = seconds
        self._lock = threading.Lock()
        self._text: str | None = None
        self._shown = 0.0
        self._timer: threading.Timer | None = None

    def __call__(self, text: str) -> None:
        """Show a text now, or after the pause if no newer one comes."""
        with self._lock:
            self._text = text
            if self._timer is not None:
                return
            delay = self._shown + self._seconds - time.monotonic()
            if delay > 0:
                self._timer = threading.Timer(delay, self.flush)
                self._timer.daemon = True
                self._timer.start()
                return
        self.flush()

    def flush(self) -> None:
        """Show the waiting text."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            text, self._text, self._timer = self._text, None, None
            self._shown = time.monotonic()
        if text is not None:
            self._show(text)


class Operation:
    """One call that can be cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endings: list[Callable[[], None]] = []
        self.cancelled = False

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Within the block, `cancel` calls `end` from its thread; after an earlier `cancel` it is called at once."""
        with self._lock:
            self._endings.append(end)
            late = self.cancelled
        try:
            if late:
                end()
            yield
        finally:
            with self._lock:
                self._endings.remove(end)

    def cancel(self) -> None:
        """End the call: run the functions of all open `ending` blocks."""
        with self._lock:
            self.cancelled = True
            endings = list(self._endings)
        for end in endings:
            end()

    def check(self) -> None:
        """Raise Cancelled if the call has been ended."""
        if self.cancelled:
            raise Cancelled("cancelled")


class Turns:
    """Lets ``most`` operations work at a time, while the others wait."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._changed = threading.Condition()

    @contextmanager
    def one(self, operation: Operation, waits: Callable[[], None]) -> Iterator[None]:
        """Work within the block, as one of those that may; call ``waits`` first if it has to wait.

        Raises Cancelled: the operation has ended before its turn.
        """
        with operation.ending(self._look):
            with self._changed:
                operation.check()
                is_free = self._free > 0
                self._free -= is_free
            if not is_free:
                waits()  # which may take seconds, while others end
                with self._changed:
                    self._changed.wait_for(lambda: self._free or operation.cancelled)
                    operation.check()
                    self._free -= 1
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def _look(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """A provider without resources: subclass it and add the methods of the service.

    `version` is the plugin's version, which the engine reads.
    """

    version: str = "0.0.0"

    def __init__(self, host: Host) -> None:
        self.host = host
        self._operations: set[Operation] = set()
        self._changed = threading.Condition()

    @contextmanager
    def operation(self, context: grpc.ServicerContext) -> Iterator[Operation]:
        """Yield an operation, which `Cancel`, the end of the process and a lost engine end.

        Raises Cancelled: instead of the error that the cancellation caused.
        """
        operation = Operation()
        with self._changed:
            self._operations.add(operation)
        context.add_callback(operation.cancel)
        try:
            yield operation
        except Exception:
            operation.check()
            raise
        finally:
            with self._changed:
                self._operations.discard(operation)
                self._changed.notify_all()

    def cancel_all(self, seconds: float = 0) -> None:
        """End every operation in progress, and wait at most so many seconds until they have ended."""
        with self._changed:
            operations = list(self._operations)
        for operation in operations:
            operation.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._operations, seconds)

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """End all operations; each call then fails by itself."""
        self.cancel_all()
        return empty_pb2.Empty()

    def Attach(self, request: plugin_pb2.PluginAttach, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Use an engine that did not start this process."""
        self.host.attach(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Return the plugin's version."""
        return plugin_pb2.PluginInfo(version=self.version)


class _ErrorsAsText(grpc.ServerInterceptor):  # type: ignore[type-arg]  # a generic in the stubs alone
    """Returns an error's text, or a bug's place, to the engine instead of gRPC's "Exception calling application"."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the called method."""
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler.unary_unary

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return method(request, context)
            except SlipwayError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
            except NotImplementedError:
                raise  # the generated base class has set UNIMPLEMENTED
            except Exception as error:
                if context.code() is not None:  # type: ignore[attr-defined]
                    raise
                traceback.print_exc()
                name = posixpath.basename(handler_call_details.method)
                where = traceback.extract_tb(error.__traceback__)[-1]
                context.abort(
                    grpc.StatusCode.UNKNOWN,
                    f"{name}: {type(error).__name__}: {error} (a bug in this provider, at {where.name}:{where.lineno})",
                )

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


def engine_address(arguments: list[str]) -> str:
    """Return the engine's address from a plugin's arguments: the last that is not a flag, or ""."""
    words = [word for word in arguments if not word.startswith("-")]
    return words[-1] if words else ""


def readable_after_signal() -> int:
    """Return a file descriptor that can be read once SIGINT or SIGTERM came.

    A handler runs in the middle of the main thread's code, so it takes no lock: `threading.Event.set` would wait for
    ever for one that `Event.wait` holds.
    """
    reader, writer = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(writer, b"\0"))
    return reader


def wait_for_end(signalled: int, parent: int, poll_seconds: float = _PARENT_POLL_SECONDS) -> None:
    """Wait until ``signalled`` can be read, or this process has another parent than ``parent``."""
    while not select.select([signalled], [], [], poll_seconds)[0] and os.getppid() == parent:
        pass


def serve(make: Callable[[Host], Provider]) -> None:
    """Run a provider, which ``make`` returns for an engine, as a plugin until the engine ends it.

    Prints the port as the first line of standard output, as the engine expects; it admits this user's processes alone.
    The end of the parent process cancels all calls and ends this one, as do SIGINT and SIGTERM: the engine sends them.
    """
    provider = make(Host(engine_address(sys.argv[1:])))
    parent = os.getppid()
    server = grpc.server(
        ThreadPoolExecutor(max_workers=_THREADS),
        interceptors=[_ErrorsAsText()],
        options=[("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.so_reuseport", 0)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        path = str(Path(folder, "s"))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        signalled = readable_after_signal()
        sys.stdout.write(f"{user_port.serve(path)}\n")
        sys.stdout.flush()
        wait_for_end(signalled, parent)
        provider.cancel_all(_LAST_SECONDS)
    os._exit(0)  # threads that wait for a daemon must not delay the engine
