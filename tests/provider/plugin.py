"""A docker provider plugin as the engine runs it: a process, its gRPC service, and the lines it writes to the engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc

from toolchain.provider.provider_base import Properties, decode_struct, encode_struct, plain

CHECKOUT = Path(__file__).resolve().parents[2]
SELECTED = os.environ.get("SLIPWAY_DOCKER_PROVIDER", "embedded")
URN = "urn:pulumi:test::project::docker:index/image:Image::image"
PROVIDER_URN = "urn:pulumi:test::project::pulumi:providers:docker::default"


def command(provider: str = SELECTED) -> list[str]:
    """Return the command of a provider: "embedded" or "official"."""
    if provider == "embedded":
        return [sys.executable, "-P", "-m", "toolchain.provider"]
    name = "pulumi-resource-docker"
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    installed = sorted(home.glob(f"plugins/resource-docker-v*/{name}"))
    on_path = list(filter(None, (shutil.which(name, path=folder) for folder in os.environ["PATH"].split(":"))))
    real = [path for path in on_path if Path(path).read_bytes()[:4] == b"\x7fELF"]  # the embedded one is a script
    plugins = [*real, *map(str, installed)]
    assert plugins, f"SLIPWAY_DOCKER_PROVIDER=official needs {name} on PATH or in PULUMI_HOME/plugins"
    return [plugins[0]]


@dataclass(frozen=True)
class Line:
    """One line the plugin wrote to the engine."""

    severity: str
    message: str
    ephemeral: bool
    urn: str


class Engine(engine_pb2_grpc.EngineServicer):
    """The part of the engine that a provider calls."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4))
        engine_pb2_grpc.add_EngineServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Log(self, request: Any, context: Any) -> empty_pb2.Empty:  # noqa: ARG002, N802
        severity = engine_pb2.LogSeverity.Name(request.severity)
        self.lines.append(Line(severity, request.message, request.ephemeral, request.urn))
        return empty_pb2.Empty()

    def stop(self) -> None:
        self._server.stop(None)


class Failure(Exception):
    """A provider's method failed; ``str()`` is the text that Pulumi would print."""


@dataclass
class Plugin:
    """A running plugin."""

    process: subprocess.Popen[str]
    engine: Engine
    stub: Any
    stderr: list[str] = field(default_factory=list)

    def call(self, method: str, request: Any, **options: Any) -> Any:
        try:
            return getattr(self.stub, method)(request, **options)
        except grpc.RpcError as error:
            raise Failure(error.details()) from None

    def configure(self, **variables: str) -> Any:
        flat = {f"docker:config:{key}": value for key, value in variables.items()}
        request = provider_pb2.ConfigureRequest(
            variables=flat, args=encode_struct(variables), acceptSecrets=True, acceptResources=True
        )
        return self.call("Configure", request)

    def check_raw(self, inputs: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> Properties:
        request = provider_pb2.CheckRequest(urn=URN, news=encode_struct(inputs), olds=encode_struct(olds or {}))
        return decode_struct(self.call("Check", request).inputs)

    def check(self, inputs: Mapping[str, Any]) -> Properties:
        result: Properties = plain(self.check_raw(inputs))
        return result

    def diff(self, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        request = provider_pb2.DiffRequest(urn=URN, id="id", olds=encode_struct(state), news=encode_struct(inputs))
        return self.call("Diff", request)

    def create(
        self, inputs: Mapping[str, Any], *, preview: bool = False, timeout: float = 300
    ) -> tuple[str, Properties]:
        request = provider_pb2.CreateRequest(urn=URN, properties=encode_struct(inputs), preview=preview)
        response = self.call("Create", request, timeout=timeout)
        return response.id, decode_struct(response.properties)

    def update(self, state: Mapping[str, Any], inputs: Mapping[str, Any], *, preview: bool = False) -> Properties:
        request = provider_pb2.UpdateRequest(
            urn=URN, id="id", olds=encode_struct(state), news=encode_struct(inputs), preview=preview
        )
        return decode_struct(self.call("Update", request).properties)

    def invoke(self, token: str, args: Mapping[str, Any]) -> Any:
        return self.call("Invoke", provider_pb2.InvokeRequest(tok=token, args=encode_struct(args)))

    def lines(self, *, ephemeral: bool | None = None) -> list[str]:
        return [line.message for line in self.engine.lines if ephemeral in {None, line.ephemeral}]


@contextmanager
def started(folder: Path, provider: str = SELECTED, environment: Mapping[str, str] | None = None) -> Iterator[Plugin]:
    """Start a plugin in a program's directory, as the engine does; it ends with the block."""
    engine = Engine()
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), **(environment or {})}
    process = subprocess.Popen(
        [*command(provider), engine.address],
        cwd=folder,
        env={key: value for key, value in env.items() if value},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    channel = None
    try:
        port = process.stdout.readline().strip()
        assert port.isdigit(), f"the plugin printed {port!r}: {process.stderr.read()}"
        limit = 1 << 28
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", limit)])
        plugin = Plugin(process, engine, provider_pb2_grpc.ResourceProviderStub(channel))
        threading.Thread(target=lambda: plugin.stderr.extend(process.stderr or []), daemon=True).start()
        yield plugin
    finally:
        if channel is not None:
            channel.close()
        process.terminate()
        process.wait(timeout=20)
        engine.stop()
