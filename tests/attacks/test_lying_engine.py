"""What answers as a Docker engine lies: it keeps whoever asks neither for ever nor with a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from containers.engine.connection import CONNECT_SECONDS, Address, EngineUnreachable
from containers.engine.engine import Engine
from containers.errors import SlipwayError
from stacks.config.stack_file import ROOT

HEAD = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: text/plain\r\n\r\n"


@contextmanager
def lying(folder: Path, answer: Callable[[socket.socket], object]) -> Iterator[Address]:
    """Serve one answer to each request at a socket."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "s"))
    server.listen()

    def serve() -> None:
        with suppress(OSError):
            while True:
                channel, _ = server.accept()
                threading.Thread(target=answered, args=[channel], daemon=True).start()

    def answered(channel: socket.socket) -> None:
        with suppress(OSError), channel:
            channel.recv(1 << 16)
            answer(channel)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield Address(f"unix://{folder}/s")
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.parametrize(
    "page",
    [
        b"goroutine 1 [" + b"1" * (8 << 20),
        b"goroutine " + b"1" * (8 << 20),
        b"goroutine 1 [" + b", 1" * (3 << 20),
        b"goroutine 1 [select, " + b"5 minutes" * (1 << 20),
        b"goroutine 1 [select, 5 minutes]:\n" + b"a\n" * (4 << 20),
        b"goroutine 1 [select, 5 minutes]:\ngithub.com/moby/buildkit/" + b"(" * (4 << 20),
    ],
    ids=["digits", "number", "commas", "minutes", "lines", "parentheses"],
)
def test_page_of_an_engine_is_read_in_no_time(tmp_path: Path, page: bytes) -> None:
    """In a process of its own: nothing ends a regular expression."""
    program = (
        "import sys\nfrom containers.engine.connection import Address\nfrom containers.engine.engine import Engine\n"
        "print(Engine(Address(sys.argv[1])).waits())"
    )
    with lying(tmp_path, lambda channel: channel.sendall(HEAD + page)) as address:
        done = subprocess.run(
            [sys.executable, "-c", program, address.host], capture_output=True, text=True, check=False, timeout=25,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.stdout.startswith("["), done.stderr[-300:]


def _a_byte_a_second(*parts: bytes) -> Callable[[socket.socket], object]:
    def answer(channel: socket.socket) -> None:
        for part in parts[:-1]:
            channel.sendall(part)
        while True:
            channel.sendall(parts[-1])
            time.sleep(1)

    return answer


FOR_EVER = {
    "head": _a_byte_a_second(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "continue": _a_byte_a_second(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": _a_byte_a_second(HEAD, b"{"),
}
CALLS: dict[str, Callable[[Engine], object]] = {
    "json": lambda engine: engine.json("/version", timeout=CONNECT_SECONDS),
    "upgrade": lambda engine: engine.upgrade("/session", "h2c", []),
}


def test_engine_that_answers_for_ever_is_left(tmp_path: Path) -> None:
    """All are asked at the same time, as each call waits for the whole limit."""
    results: dict[str, object] = {}

    def ask(name: str, address: Address, call: Callable[[Engine], object]) -> None:
        try:
            results[name] = call(Engine(address))
        except SlipwayError as error:
            results[name] = error

    threads = []
    with ExitStack() as engines:
        for kind, answer in FOR_EVER.items():
            (tmp_path / kind).mkdir()
            address = engines.enter_context(lying(tmp_path / kind, answer))
            for word, call in CALLS.items():
                threads.append(threading.Thread(target=ask, args=[f"{kind} {word}", address, call], daemon=True))
                threads[-1].start()
        end = time.monotonic() + CONNECT_SECONDS + 10
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
    assert {*results} == {f"{kind} {word}" for kind in FOR_EVER for word in CALLS}
    for name, result in results.items():
        assert isinstance(result, SlipwayError), name
        assert "\n" not in str(result), name


@pytest.mark.parametrize(
    "host",
    [
        "tcp://h:99999", "tcp://h:x", "tcp://[::1", "https://" + "a" * 70, "ssh://h:99999", "tcp://\u2100x", "tcp://a..b",
        "ssh://h:x/s", "unix://\0", "https://[::1]x", "tcp://" + "a" * 70 + "@h:x",
    ],
)  # fmt: skip
def test_address_of_no_engine_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        Engine.connect(Address(host))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


FLOOD = f"""#!{sys.executable}
import os, sys, time
for _ in range(100):
    os.write(2, b"banner of a host\\n" * 1000)
{{then}}
"""


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("sys.stdin.buffer.raw.read(1); os.write(1, b'HTTP/1.1 200 OK\\r\\nApi-Version: 1.41\\r\\nContent-Length: 0\\r\\n\\r\\n')", None),
        ("sys.exit(255)", "banner of a host"),
        ("os.close(0); os.close(1); os.fork() or time.sleep(20); sys.exit(255)", "banner of a host"),
    ],
    ids=["answers", "fails", "leaves-a-child"],
)  # fmt: skip
def test_long_banner_of_an_ssh_host_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, expected: str | None
) -> None:
    (tmp_path / "ssh").write_text(FLOOD.format(then=then))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    started = time.monotonic()
    if expected is None:
        assert Engine.connect(Address("ssh://host"))
    else:
        with pytest.raises(EngineUnreachable, match=expected) as caught:
            Engine.connect(Address("ssh://host"))
        assert len(str(caught.value)) < 5000
    assert time.monotonic() - started < 15
