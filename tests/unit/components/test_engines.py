"""Engines of a platform: which one takes an image, and how requests get there."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import pytest

from components.engines import start
from containers.engine.pool import Pool
from containers.engine.router import Router
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.placement import address
from stacks.plan import Plan
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line

AMD64, ARM64 = PLATFORMS = ("linux/amd64", "linux/arm64")
IMAGES = [f"image{number}" for number in range(300)]
KNOWN = "sha256:" + "a" * 64


class Unix(http.client.HTTPConnection):
    """A connection to a socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self.path))


class Engine:
    """An engine that keeps the requests it gets, echoes bodies, and knows one image, by its id."""

    def __init__(self, path: Path, image: str = "") -> None:
        self.address = f"unix://{path}"
        self.image = image
        self.response: bytes | None = None
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.ended = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with suppress(ConnectionError):  # of a client that leaves before its answer
                self._respond(connection)
        finally:
            self.ended += 1

    def _respond(self, connection: socket.socket) -> None:
        with closing(connection), connection.makefile("rb") as stream:
            lines = [line.strip().decode() for line in iter(stream.readline, b"\r\n")]
            method, target, _ = lines[0].split()
            self.requests.append(f"{method} {target}")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines[1:])}
            if "upgrade" in headers:
                connection.sendall(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nhello ")
                connection.sendall(stream.read(5))
                return
            assert headers["connection"] == "close"
            body = stream.read(int(headers.get("content-length", 0)))
            if self.response is not None:
                self.bodies.append(body)
                connection.sendall(self.response)
                return
            known = "/images/sha256" not in target or self.image in target
            status = b"200 OK" if known else b"404 Not Found"
            connection.sendall(b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            connection.sendall(body)


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, for at most ten seconds."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def runnable(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Answer by engine which platforms it runs, or why it does not answer."""
    answers: dict[str, Any] = {}

    def platforms(engine: str = "", *, among: Sequence[str] = PLATFORMS) -> dict[str, str]:
        answer = answers.get(engine, {AMD64: "native", ARM64: "emulated"})
        if answer == "gone":
            raise SlipwayError(f"{engine}: no engine answers")
        return {platform: answer[platform] for platform in among if platform in answer}

    monkeypatch.setattr("containers.engine.engine_platforms.runnable_platforms", platforms)
    return answers


def test_pool_spreads_images_and_an_engine_moves_few() -> None:
    before = [Pool(AMD64, ["ssh://a", "ssh://b", "ssh://c"]).order(image) for image in IMAGES]
    assert before == [Pool(AMD64, ["ssh://c", "ssh://a", "ssh://b"]).order(image) for image in IMAGES]
    firsts = [order[0] for order in before]
    assert all(60 < firsts.count(engine) < 140 for engine in ("ssh://a", "ssh://b", "ssh://c"))
    fewer = [Pool(AMD64, ["ssh://a", "ssh://b"]).order(image)[0] for image in IMAGES]
    assert [first for first, order in zip(fewer, before, strict=True) if order[0] == first] == [
        first for first in firsts if first != "ssh://c"
    ]
    assert firsts != [Pool("linux/arm64", ["ssh://a", "ssh://b", "ssh://c"]).order(image)[0] for image in IMAGES]


@every("count", [1, 2, 3, 8, 41])
@every("engines", [["ssh://a", "ssh://b"], ["ssh://a", "ssh://b", "ssh://c"]])
def test_pool_gives_no_engine_more_than_its_share(engines: list[str], count: int) -> None:
    for first in range(0, 100, 5):
        images = IMAGES[first : first + count]
        pool = Pool(AMD64, engines, images)
        assert [Pool(AMD64, engines[::-1], images[::-1]).order(image) for image in images] == [*map(pool.order, images)]
        firsts = [pool.order(image)[0] for image in images]
        assert max(map(firsts.count, engines)) <= -(-count // len(engines))
        assert all(sorted(pool.order(image)) == engines for image in images)


def test_pool_with_shares_moves_few_images() -> None:
    before, after = (Pool(AMD64, ["ssh://a", "ssh://b", "ssh://c"][:count], IMAGES) for count in (3, 2))
    firsts = [(before.order(image)[0], after.order(image)[0]) for image in IMAGES]
    assert sum(first == "ssh://c" for first, _ in firsts) == 100
    assert sum(first != second for first, second in firsts) < 130
    fewer = Pool(AMD64, ["ssh://a", "ssh://b", "ssh://c"], IMAGES[:-1])
    assert sum(fewer.order(image)[0] != first for image, (first, _) in zip(IMAGES[:-1], firsts, strict=False)) < 10


def test_engine_that_is_gone_is_passed_over(runnable: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pool = Pool(AMD64, ["ssh://a", "ssh://b"])
    runnable["ssh://a"] = "gone"
    assert {pool.engine(image) for image in IMAGES} == {"ssh://b"}
    assert capsys.readouterr().out.count("ssh://a: no engine answers; others of the list take its images") == 1
    pool.fail("ssh://b", "ssh://b: cut")
    assert capsys.readouterr().out == f"slipway:engines.{AMD64}: ssh://b: cut; nothing can be built for {AMD64}\n"
    assert refusal_line(pool.engine, "x") == (
        "slipway:engines.linux/amd64: no engine answers: ssh://a: no engine answers; ssh://b: cut"
    )


def refused(platform: str, engine: str, runs: str) -> str:
    """Return the refusal of an engine that cannot run a platform."""
    return (
        f"slipway:engines: '{platform}': the Docker engine at {engine} cannot run its programs; it runs {runs}: name an "
        "engine of that platform in slipway:engines, or let this one emulate it as docs/guides/emulation.md says"
    )


def test_engine_that_cannot_run_the_platform_is_refused(runnable: dict[str, Any]) -> None:
    runnable["ssh://a"] = {AMD64: "native"}
    assert refusal_line(Pool(ARM64, ["ssh://a"]).engine, "x") == refused(ARM64, "ssh://a", AMD64)
    assert Pool(ARM64, ["ssh://a"], runs_programs=False).engine("x") == "ssh://a"


def stack(**values: Any) -> Plan:
    """Return the plan of a `local` stack."""
    return plan.make("local", {"flavor": "local", "tagSuffix": "t", **values}, search=False)


def test_engines_are_all_checked_before_any_is_used(runnable: dict[str, Any], tmp_path: Path) -> None:
    runnable |= {"ssh://a": {AMD64: "native"}, "ssh://c": {ARM64: "native"}, "ssh://d": "gone"}
    engines = {AMD64: ["ssh://c", "ssh://b", "ssh://d"], ARM64: ["ssh://a", "ssh://c"]}
    with pytest.raises(SlipwayError) as refusal:
        start(stack(platforms=[AMD64, ARM64], engines=engines), tmp_path)
    assert str(refusal.value).splitlines() == [refused(AMD64, "ssh://c", ARM64), refused(ARM64, "ssh://a", AMD64)]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("host", "machine", "values", "key"),
    [
        ("unix:///run/docker.sock", "x86_64", {"platform": ARM64}, "slipway:platform"),
        ("unix:///run/docker.sock", "x86_64", {"platforms": [AMD64, ARM64]}, "slipway:platforms"),
        ("tcp://127.0.0.1:1", "aarch64", {"platform": ARM64}, "slipway:platform"),
        ("unix:///run/docker.sock", "x86_64", {"platform": AMD64}, ""),
        ("unix:///run/docker.sock", "x86_64", {"platforms": [AMD64, ARM64], "engines": {ARM64: "ssh://c"}}, ""),
        ("unix:///run/docker.sock", "aarch64", {"platform": ARM64}, ""),
    ],
)
def test_engine_of_the_machine_is_checked_for_others(
    runnable: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    machine: str,
    values: dict[str, Any],
    key: str,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setattr("components.engines.machine", lambda: machine)
    runnable[""] = {AMD64: "native"}
    if not key:
        start(stack(**values), tmp_path)
        return
    line = refusal_line(start, stack(**values), tmp_path)
    assert line.startswith(f"{key}: '{ARM64}': the Docker engine cannot run its programs; it runs {AMD64}: name an ")
    runnable[""] = "gone"
    start(stack(**values), tmp_path)


@contextmanager
def routed(root: Path, count: int = 2) -> Iterator[tuple[Path, Pool, dict[str, Engine]]]:
    """Serve a pool of engines; yield the socket, the pool and the engines."""
    engines = [Engine(root / f"{number}.sock", KNOWN if number else "other") for number in range(count)]
    pool = Pool(AMD64, [engine.address for engine in engines])
    host = address("t", AMD64)
    Router(root).serve(host, pool)
    try:
        yield root / host.removeprefix("unix://"), pool, {engine.address: engine for engine in engines}
    finally:
        for engine in engines:
            engine.listener.close()


def ask(path: Path, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = Unix(path)
    with closing(connection):
        connection.request(method, target, body)
        response = connection.getresponse()
        return response.status, response.read()


def test_requests_of_an_image_go_to_its_engine(runnable: dict[str, Any], tmp_path: Path) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        for image in IMAGES[:20]:
            engine = engines[pool.order(image)[0]]
            engine.requests.clear()
            body = image.encode() * 40_000
            assert ask(path, "POST", f"/v1.41/build?t=r.example%3A5000%2Fml%2F{image}%3Ax1&q=1", body) == (200, body)
            assert ask(path, "POST", f"/v1.41/images/r.example:5000/ml/{image}/push?tag=x1")[0] == 200
            assert ask(path, "POST", f"/v1.41/build?t=r.example/ml/{image}_checks:{'b' * 64}")[0] == 200
            assert ask(path, "GET", f"/v1.41/images/get?names=r.example%3A5000%2Fml%2F{image}%3Ax1")[0] == 200
            assert len(engine.requests) == 4


def test_image_known_by_its_id_is_looked_up_on_all(runnable: dict[str, Any], tmp_path: Path) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, _, engines):
        for image in IMAGES[:20]:
            ask(path, "POST", f"/build?t=r.example/ml/{image}:1")
        assert all(engine.requests for engine in engines.values())
        assert ask(path, "GET", f"/v1.41/images/{KNOWN}/json")[0] == 200
        assert ask(path, "GET", f"/v1.41/images/sha256:{'c' * 64}/json")[0] == 404


@pytest.mark.parametrize("noticed", [True, False])
def test_image_is_looked_up_past_an_engine_that_is_gone(
    runnable: dict[str, Any], tmp_path: Path, noticed: bool
) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        first, last = sorted(engines.values(), key=lambda engine: engine.image == KNOWN)
        for engine in (first, last):
            image = next(image for image in IMAGES if pool.order(image)[0] == engine.address)
            assert ask(path, "POST", f"/build?t=r.example/ml/{image}:1")[0] == 200
        Path(first.address.removeprefix("unix://")).unlink()
        if noticed:
            pool.fail(first.address, "gone")
        assert ask(path, "GET", f"/v1.41/images/{KNOWN}/json")[0] == 200


@contextmanager
def session(path: Path, name: str) -> Iterator[BufferedRWPair]:
    """Open a build's session; yield what follows the head."""
    connection = Unix(path)
    with closing(connection):
        connection.putrequest("POST", "/session")
        for field, value in (("Connection", "Upgrade"), ("Upgrade", "h2c"), ("X-Docker-Expose-Session-Uuid", name)):
            connection.putheader(field, value)
        connection.endheaders()
        with connection.sock.makefile("rwb") as stream:
            assert next(iter(stream.readline, b"\r\n")) == b"HTTP/1.1 101 UPGRADED\r\n"
            assert [*iter(stream.readline, b"\r\n")]
            yield stream


@pytest.mark.parametrize("first", ["session", "build"])
def test_session_goes_to_the_engine_of_its_build(runnable: dict[str, Any], tmp_path: Path, first: str) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        for image in IMAGES[:6]:
            if first == "build":
                ask(path, "POST", f"/build?t=r.example/ml/{image}:1&session={image}")
            with session(path, image) as stream:
                if first == "session":
                    ask(path, "POST", f"/build?t=r.example/ml/{image}:1&session={image}")
                stream.write(b"world")
                stream.flush()
                assert stream.read(11) == b"hello world"
            assert engines[pool.order(image)[0]].requests.count("POST /session") >= 1


def test_engine_that_goes_after_it_answered_is_passed_over(runnable: dict[str, Any], tmp_path: Path) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        gone, left = pool.order("x")
        assert ask(path, "POST", "/build?t=r.example/ml/x:1")[0] == 200
        Path(gone.removeprefix("unix://")).unlink()
        assert ask(path, "POST", "/build?t=r.example/ml/x:2") == (200, b"")
        assert engines[left].requests == ["POST /build?t=r.example/ml/x:2"]


def test_build_of_an_engine_that_goes_ends(runnable: dict[str, Any], tmp_path: Path) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        gone, left = (engines[address] for address in pool.order("x"))
        gone.response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none;\r\n9\r\nhal"
        with pytest.raises(http.client.IncompleteRead):
            ask(path, "POST", "/build?t=r.example/ml/x:1", b"context")
        assert (gone.bodies, left.bodies) == ([b"context"], [])
        gone.listener.close()
        Path(gone.address.removeprefix("unix://")).unlink()
        assert ask(path, "POST", "/build?t=r.example/ml/x:1", b"context") == (200, b"context")
        assert left.requests == ["POST /build?t=r.example/ml/x:1"]


def test_build_cut_by_its_client_goes_to_no_other_engine(runnable: dict[str, Any], tmp_path: Path) -> None:
    assert runnable == {}
    with routed(tmp_path) as (path, pool, engines):
        first, second = (engines[address] for address in pool.order("x"))
        connection = Unix(path)
        with closing(connection):
            connection.putrequest("POST", "/build?t=r.example/ml/x:1")
            connection.putheader("Content-Length", "100")
            connection.endheaders(b"half")
            wait_for(lambda: first.requests)
        wait_for(lambda: first.ended)
        assert second.requests == []
        assert pool.engine("x") == first.address


def test_pool_without_engine_is_an_error_of_the_engine(runnable: dict[str, Any], tmp_path: Path) -> None:
    with routed(tmp_path, count=1) as (path, pool, _):
        runnable[pool.engines[0]] = "gone"
        status, body = ask(path, "POST", "/build?t=r.example/ml/x:1")
        assert status == 503
        assert json.loads(body)["message"].startswith("slipway:engines.linux/amd64: no engine answers: unix://")


@every(
    "engines, line",
    [
        ({AMD64: "docker.example"}, "expected ssh://[user@]host[:port], unix:///path/of/socket or tcp://host:port"),
        ({AMD64: "ssh://-oProxyCommand=x"}, "expected ssh://"),
        ({AMD64: "ssh://me:secret@a"}, "a password would be in the stack's file and in errors: give ssh a key"),
        ({AMD64: "tcp://a"}, "expected ssh://"),
        ({AMD64: "unix://relative"}, "expected ssh://"),
        ({AMD64: ["ssh://a", "ssh://a"]}, "one of them is repeated; remove it"),
        ({AMD64: []}, "has no engine: give one, or leave the platform out"),
        ({"linux/arm64": "ssh://a"}, "linux/arm64 is no platform of the stack, which has linux/amd64: leave it out"),
    ],
)
def test_engine_that_is_no_address_is_refused(engines: dict[str, Any], line: str) -> None:
    assert line in refusal_line(flavors.load, {"flavor": "local", "engines": engines}, "x")


def test_engine_alone_or_in_a_list_is_a_pool() -> None:
    config = flavors.load({"flavor": "local", "engines": {AMD64: "ssh://me@a:22"}}, "x")
    assert config.engines == {AMD64: ("ssh://me@a:22",)}
