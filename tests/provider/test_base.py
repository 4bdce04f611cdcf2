"""The base of Python providers: values on the wire, calls that can be ended, the life of the process."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pulumi_docker
import pytest
from google.protobuf import empty_pb2, struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2

from tests.provider.plugin import CHECKOUT, Failure, Plugin, started
from toolchain.provider.provider_base import (
    UNKNOWN,
    Cancelled,
    Operation,
    Provider,
    Secret,
    decode,
    decode_struct,
    encode,
    encode_struct,
    engine_address,
    has_unknown,
    plain,
    secret_texts,
    without_nulls,
)

LEAF = st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False), st.text(max_size=8), st.just(UNKNOWN))
VALUE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3), st.builds(Secret, inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUE, max_size=4))
def test_value_encoded_and_decoded_is_equal(properties: dict[str, Any]) -> None:
    sent = encode_struct(properties).SerializeToString()
    assert decode_struct(struct_pb2.Struct.FromString(sent)) == properties


def test_output_on_the_wire_is_decoded_as_its_value() -> None:
    """The SDKs' own form of an output: with a value or without, secret or not."""
    signature = {"4dabf18193072939515e22adb298388d": "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    assert decode(encode({**signature, "value": "x"})) == "x"
    assert decode(encode({**signature, "value": "x", "secret": True})) == Secret("x")
    assert decode(encode(dict(signature))) is UNKNOWN


VALUES = {"a": Secret({"b": ["x", None, UNKNOWN], "n": None}), "c": "y"}


def test_plain_and_without_nulls_read_values() -> None:
    assert plain(VALUES) == {"a": {"b": ["x", None, UNKNOWN]}, "c": "y"}
    assert without_nulls(VALUES) == {"a": Secret({"b": ["x", None, UNKNOWN]}), "c": "y"}
    assert list(secret_texts(VALUES)) == ["x"]
    assert has_unknown(VALUES)
    assert not has_unknown(plain({"c": Secret("y")}))


def test_secret_in_output_is_masked() -> None:
    assert "hush" not in repr({"a": Secret("hush")})


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (["127.0.0.1:1"], "127.0.0.1:1"),
        (["--logtostderr", "-v=9", "--tracing", "tcp://x", "127.0.0.1:1"], "127.0.0.1:1"),
        ([], ""),
    ],
)
def test_engine_address_is_the_last_argument(arguments: list[str], address: str) -> None:
    assert engine_address(arguments) == address


def test_cancel_ends_running_operation() -> None:
    operation, ended = Operation(), threading.Event()
    with operation.ending(ended.set):
        threading.Timer(0.05, operation.cancel).start()
        assert ended.wait(5)
    with pytest.raises(Cancelled):
        operation.check()


def test_cancel_before_start_ends_operation() -> None:
    operation, ended = Operation(), threading.Event()
    operation.cancel()
    with operation.ending(ended.set):
        assert ended.is_set()


@pytest.mark.parametrize("seconds", [0, 20])
def test_end_waits_for_what_a_call_removes(seconds: float) -> None:
    """A process that ends has the calls remove what they have elsewhere, and waits no longer than that."""
    provider, begun, cut, removed = Provider(cast("Any", None)), threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        context: Any = SimpleNamespace(add_callback=lambda _: None)
        with suppress(Cancelled), provider.operation(context) as operation, operation.ending(cut.set):
            begun.set()
            cut.wait(20)
            time.sleep(0.2)
            removed.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(20)
    provider.cancel_all(seconds)
    assert removed.is_set() == bool(seconds)
    thread.join()


@pytest.mark.parametrize("signal", ["terminate", "send_signal"])
def test_plugin_with_signal_ends(tmp_path: Path, signal: str) -> None:
    with started(tmp_path, "embedded") as plugin:
        getattr(plugin.process, signal)(*([2] if signal == "send_signal" else []))
        assert plugin.process.wait(timeout=5) == 0


def test_signal_at_any_moment_ends_the_wait() -> None:
    """A signal once came while the wait held a lock that its handler then waited for."""
    program = """if True:
        import os, random, signal, threading
        from toolchain.provider.provider_base import readable_after_signal, wait_for_end

        for _ in range(200):
            signalled = readable_after_signal()
            threading.Timer(random.random() / 500, os.kill, (os.getpid(), signal.SIGTERM)).start()
            wait_for_end(signalled, os.getppid(), poll_seconds=0)
            os.close(signalled)
        print("ended")
    """
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_plugin_imports_no_file_of_the_program(tmp_path: Path) -> None:
    """A plugin runs in the program's directory, where anything may lie."""
    for name in ("docker.py", "yaml.py", "select.py", "toolchain/__init__.py", "stacks/__init__.py"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_text("raise SystemExit('a file of the program was imported')\n")
    with started(tmp_path, "embedded") as plugin:
        plugin.configure()
        assert plugin.call("GetPluginInfo", empty_pb2.Empty()).version


def test_plugin_loads_messages_without_the_sdk(tmp_path: Path) -> None:
    """Each preview starts the plugin."""
    with started(tmp_path, "embedded", {"PYTHONPROFILEIMPORTTIME": "1"}) as plugin:
        pass
    plugin.process.wait()
    loaded = {line.rpartition("|")[2].strip() for line in "".join(plugin.stderr).splitlines()}
    assert {name for name in loaded if name.partition(".")[0] in {"pulumi", "toolchain"} and "." in name} >= {
        "pulumi.runtime.proto.provider_pb2",
        "toolchain.provider.provider",
    }
    assert not loaded & {"pulumi", "pulumi.runtime", "pulumi.runtime.proto", "pulumi.automation"}


def runs(process: str) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return " Z " not in Path("/proc", process, "stat").read_text()
    except OSError:
        return False


def test_plugin_ends_with_its_parent_process(tmp_path: Path) -> None:
    """An engine that is killed cannot end its plugins."""
    script = 'exec sh -c \'"$0" -m toolchain.provider & echo $!; wait\' "$0"'
    parent = subprocess.Popen(
        ["sh", "-c", script, sys.executable],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    plugin = parent.stdout.readline().strip()
    parent.stdout.readline()  # its port: it serves
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while runs(plugin) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not runs(plugin)


def test_exception_in_method_is_reported_with_its_place(tmp_path: Path) -> None:
    """An unexpected exception is one line with its name and place."""

    with started(tmp_path, "embedded") as plugin, pytest.raises(Failure) as failure:
        plugin.check({"imageName": ["not", "text"], "registry": {"server": ["x"]}, "build": {"args": []}})
    assert "\n" not in str(failure.value)


def test_schema_has_resource_function_and_inputs(plugin: Plugin) -> None:
    """As much as a tool needs to know that a program's resources exist."""
    schema = json.loads(plugin.call("GetSchema", provider_pb2.GetSchemaRequest()).schema)
    assert (schema["name"], schema["version"]) == ("docker", metadata.version("pulumi-docker"))
    assert "docker:index/getRegistryImage:getRegistryImage" in schema["functions"]
    inputs = schema["resources"]["docker:index/image:Image"]["inputProperties"]
    assert set(inputs) == {"imageName", "registry", "build", "skipPush", "buildOnPreview"}
    parameters = {
        argument.rstrip("_") for argument in inspect.signature(pulumi_docker.DockerBuildArgs.__init__).parameters
    }
    build = schema["types"]["docker:index/dockerBuild:DockerBuild"]["properties"]
    assert {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", name) for name in build} == parameters - {"__self"}


def test_plugin_info_has_the_sdks_version(plugin: Plugin) -> None:
    assert plugin.call("GetPluginInfo", empty_pb2.Empty()).version == metadata.version("pulumi-docker")


@pytest.mark.parametrize("method", ["Call", "Construct", "Parameterize", "Handshake"])
def test_missing_method_is_unimplemented(plugin: Plugin, method: str) -> None:
    """The engine continues without the method."""
    request = {"Handshake": "ProviderHandshakeRequest"}.get(method, f"{method}Request")
    with pytest.raises(grpc.RpcError) as failure:
        getattr(plugin.stub, method)(getattr(provider_pb2, request)())
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED
