"""The provider's client of a Docker engine, on a stand-in that answers each connection with fixed bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containers.engine import engine
from containers.engine.connection import Address, EngineUnreachable
from containers.engine.engine import BodyWriter, Engine, EngineError
from containers.errors import SlipwayError
from tests.fakes import tls_engine
from tests.helpers.every import every
from toolchain.provider.docker_api import session

Serve = Callable[[bytes | None], Engine]


@pytest.fixture
def serve(tmp_path: Path, request: pytest.FixtureRequest) -> Serve:
    """Make an engine that answers one request with bytes, or never with None."""

    def start(answer: bytes | None) -> Engine:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        done = threading.Event()

        def serve_one() -> None:
            connection, _ = listener.accept()
            with listener, connection:
                while b"\r\n\r\n" not in connection.recv(1 << 16):
                    continue
                if answer is None:
                    done.wait(10)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve_one)
        thread.start()

        def end() -> None:
            done.set()
            thread.join()

        request.addfinalizer(end)
        return Engine(Address(f"unix://{tmp_path}/socket"))

    return start


def test_engine_of_the_environment_gets_its_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Docker's client: DOCKER_CERT_PATH is the folder of ca.pem, cert.pem and key.pem."""
    with tls_engine.serve(tmp_path) as served:
        for name, text in served.tls.items():
            (tmp_path / f"{name}.pem").write_text(text)
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{served.address}")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        assert Engine.at(Address("")).address == Address(f"tcp://{served.address}", tls=served.tls)
        (tmp_path / "key.pem").unlink()
        with pytest.raises(SlipwayError, match=r"^certPath \S+: \S+/key\.pem: No such file or directory$"):
            Engine.at(Address(""))


def test_upgrade_of_an_engine_that_agrees_is_its_channel(serve: Serve) -> None:
    answering = serve(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: h2c\r\n\r\nfirst")
    with answering.upgrade("/session", "h2c", []) as channel:
        assert channel.recv(5) == b"first"


def test_upgrade_of_an_engine_that_does_not_is_refused(serve: Serve) -> None:
    with pytest.raises(EngineError, match=r"/session: the Docker daemon does not upgrade to h2c \(HTTP 200\)"):
        serve(b"HTTP/1.1 200 OK\r\n\r\n").upgrade("/session", "h2c", [])


def test_upgrade_of_a_closed_connection_names_the_engine(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        serve(b"").upgrade("/session", "h2c", [])
    assert str(caught.value) == f"unix://{tmp_path}/socket: closed the connection"


def test_request_without_an_answer_ends_in_time(serve: Serve) -> None:
    with (
        pytest.raises(EngineUnreachable, match="socket: the Docker daemon said nothing for 0.05 s"),
        serve(None).request("GET", "/_ping", timeout=0.05),
    ):
        pass


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b'HTTP/1.1 400 Bad Request\r\n\r\n{"message": "no\\nsuch"}', "no such"),
        (b"HTTP/1.1 500 Error\r\n\r\nplain", "plain"),
    ],
)
def test_request_that_is_refused_has_the_engines_reason(answer: bytes, line: str, serve: Serve) -> None:
    with pytest.raises(EngineError) as caught:
        serve(answer).json("/info")
    assert str(caught.value) == line


def test_stream_yields_each_line_as_a_message(serve: Serve) -> None:
    answer = b'HTTP/1.1 200 OK\r\n\r\n{"a": 1}\r\n\r\n{"b": "\xc3\xa9"}\n{"c": 3}'
    with serve(answer).request("POST", "/build") as response:
        assert list(response.messages()) == [{"a": 1}, {"b": "é"}, {"c": 3}]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"a": 1}\n{"a', "the Docker daemon ended its answer in the middle of a message"),
        (b'{"a": 1}\n[]\n', "a message of the Docker daemon is no JSON object"),
        (b'{"a": 1}\n' + b"x" * 70, "a message of the Docker daemon has more than 0 MiB"),
    ],
)
def test_stream_malformed_ends_with_one_line(
    body: bytes, line: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_LONGEST_MESSAGE", 64)
    with serve(b"HTTP/1.1 200 OK\r\n\r\n" + body).request("POST", "/build") as response:
        messages = response.messages()
        assert next(messages) == {"a": 1}
        with pytest.raises(SlipwayError) as caught:
            next(messages)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 65, "the Docker daemon's answer has more than 0 MiB"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "the Docker daemon's answer is no JSON object, or not all of it"),
        (b"HTTP/1.1 500 X\r\n\r\n" + b"x" * 65, "a reason of more than 0 MiB"),
    ],
)
def test_document_malformed_or_too_long_is_one_line(
    answer: bytes, line: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_LONGEST_DOCUMENT", 64)
    monkeypatch.setattr(engine, "_LONGEST_REFUSAL", 64)
    with pytest.raises(SlipwayError) as caught:
        serve(answer).json("/images/x/json")
    assert str(caught.value) == line


@pytest.mark.parametrize("head", [b"\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"x" * 70_000])
def test_upgrade_by_no_http_names_the_engine(head: bytes, serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable, match=f"^unix://{tmp_path}/socket: /session: the "):
        serve(head).upgrade("/session", "h2c", [])


def test_connect_to_no_engine_says_what_it_answers(serve: Serve, tmp_path: Path) -> None:
    answering = serve(b"HTTP/1.1 200 OK\r\nApi-Version: 1.x\r\n\r\n")
    with pytest.raises(
        EngineUnreachable, match=f"^unix://{tmp_path}/socket: answers with the API version '1.x', not such as"
    ):
        Engine.connect(answering.address)


def test_connect_speaks_the_older_of_both_versions(serve: Serve) -> None:
    answering = serve(b"HTTP/1.1 200 OK\r\nApi-Version: 1.40\r\nContent-Length: 0\r\n\r\n")
    assert Engine.connect(answering.address)._prefix == "/v1.40"


@every(
    "host, dialled",
    [
        ("tcp://docker.example", ("docker.example", 2375)),
        ("https://docker.example", ("docker.example", 2376)),
        ("tcp://docker.example:99", ("docker.example", 99)),
        ("tcp://:99", ("localhost", 99)),
    ],
)
def test_tcp_engine_is_dialled_at_its_host_and_port(
    host: str, dialled: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: tuple[str, int], **_: object) -> None:
        raise OSError(f"{address}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(EngineUnreachable) as caught:
        Engine(Address(host)).upgrade("/session", "h2c", [])
    assert str(caught.value) == f"{host}: {dialled}"


@every("host", ["unix://me:word@nowhere/socket", "other://me:word@nowhere"])
def test_address_in_an_error_has_no_credential(host: str) -> None:
    with pytest.raises(EngineUnreachable, match=r"://\*\*\*@nowhere") as caught:
        Engine.connect(Address(host))
    assert "word" not in str(caught.value)


def test_body_writer_counts_the_bytes_without_framing() -> None:
    stream, totals = bytearray(), list[int]()
    connection: Any = SimpleNamespace(send=stream.extend)
    body = BodyWriter(connection, totals.append)
    for piece in (b"ab", b"", b"c" * 10):
        assert body.write(piece) == len(piece)
    body.close()
    assert stream == b"2\r\nab\r\na\r\ncccccccccc\r\n0\r\n\r\n"
    assert totals == [2, 12]


def test_session_offers_logins_secrets_and_health_alone() -> None:
    services = session._Services(lambda _: ("", ""), {})
    details: Any = SimpleNamespace(method="")
    for details.method in ("/moby.filesync.v1.Auth/Credentials", "/moby.buildkit.secrets.v1.Secrets/GetSecret"):
        assert services.service(details) is not None
    details.method = "/moby.filesync.v1.FileSync/DiffCopy"
    assert services.service(details) is None
