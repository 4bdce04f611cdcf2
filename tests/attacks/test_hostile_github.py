"""Something between the scaler and GitHub answers in GitHub's place: it costs the call, and no token leaves the host."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from scaler import github, jobs, keeper
from scaler.github import GitHub, Refused
from tests.fakes.aws.runner_world import ENVIRONMENT, Faults, World
from tests.fakes.loopback import LoopbackServer, run_server

SHAPES: tuple[Any, ...] = (
    *(None, [], "text", 7, {}, {"runners": None}, {"runners": 7}, {"runners": "text"}, {"runners": [None]}),
    *({"runners": [{}]}, {"runners": [{"id": None, "name": None, "status": None, "busy": None}]}),
    *({"runners": {"name": 1}}, {"runners": [{"id": [], "name": "slipway-i-0", "status": 1, "busy": {}}]}),
    *({"status": None}, {"status": []}, {"token": None}, {"encoded_jit_config": {}}),
    [{"event": "workflow_job", "guid": None, "id": "../..", "status": 1, "delivered_at": None}],
)
"""Answers that are JSON, and not of the shape that GitHub documents."""


class Server(LoopbackServer):
    """Answers each request as ``answer`` does, and notes who asked for what."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str | None]] = []
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Authorization"]))
        with suppress(OSError):  # who asked has gone
            self.server.answer(self)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the base class calls

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> AbstractContextManager[Server]:
    return run_server(Server(answer))


def api(url: str, seconds: float = 30) -> GitHub:
    return GitHub(url, "acme", lambda: {"token": "canary-token"}, time.time() + seconds)


def send(handler: BaseHTTPRequestHandler, content: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def moved(handler: BaseHTTPRequestHandler, to: str, status: int) -> None:
    send(handler, b"", status, Location=to)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_to_another_host_takes_no_token_along(status: int) -> None:
    runners = json.dumps({"runners": []}).encode()
    with serving(partial(send, content=runners)) as other, serving(partial(moved, to=other.url, status=status)) as own:
        with pytest.raises(Refused):
            list(api(own.url).runners())
        with suppress(Refused):
            api(own.url).register("x", [], 1)
        assert other.requests == []


def test_redirect_within_the_host_is_followed() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/repositories/"):
            send(handler, b'{"status": "queued"}')
        else:
            moved(handler, f"http://{handler.headers['Host']}/repositories/1/actions/jobs/7", 301)

    with serving(answer) as own:
        assert api(own.url).state("acme/old-name", 7) == "queued"


def test_status_line_that_repeats_the_token_is_no_reason() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"{handler.headers['Authorization']}\r\n".encode())

    with serving(answer) as own, pytest.raises(Refused, match=r"BadStatusLine: Bearer \*\*\*") as refused:
        list(api(own.url).runners())
    assert "canary-token" not in str(refused.value)


def test_endless_redirect_ends() -> None:
    with serving(lambda handler: moved(handler, f"http://{handler.headers['Host']}{handler.path}x", 302)) as own:
        with pytest.raises(Refused):
            list(api(own.url).runners())
        assert len(own.requests) < 20


def test_huge_answer_is_refused_in_bounded_memory() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b" " * (1 << 20))

    with serving(answer) as own:
        tracemalloc.start()
        try:
            with pytest.raises(Refused, match="longer than 16 MiB"):
                list(api(own.url).runners())
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


def test_slow_answer_ends_with_its_round() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    with serving(answer) as own:
        begun = time.monotonic()
        with pytest.raises(Refused, match="within the round"):
            list(api(own.url, seconds=1.3).runners())
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("content", [b"[" * 200_000, b"\xff\xfe", b"{", b"<html>", b"9" * 10_000, b'{"runners"'])
def test_answer_that_is_no_json_is_refused(content: bytes) -> None:
    with serving(partial(send, content=content)) as own, pytest.raises(Refused):
        list(api(own.url).runners())


def test_round_goes_on_whatever_shape_answers_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each shape in answer to every call of GitHub's: machines are still scaled, and each round ends."""
    world = World(1, Faults(0.0, (0.0, 0.0), 0.0), 3)
    for module in (github, jobs, keeper):
        monkeypatch.setattr(module, "time", world, raising=False)
    monkeypatch.setattr(keeper, "client", world.client)
    monkeypatch.setattr(keeper, "secret", world.secret)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for shape in SHAPES:
        with serving(partial(send, content=json.dumps(shape).encode())) as own:
            assert keeper.Keeper({**ENVIRONMENT, "GITHUB_API": own.url}).round() is not None, shape
            assert own.requests
    assert '"Traceback' not in capsys.readouterr().out
