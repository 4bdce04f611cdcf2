"""Replicas of a build service: which one takes an image, how requests get there, and what one costs that is gone."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from components import engines
from components.runners.kubernetes import build_service
from components.runners.kubernetes.certificates import make
from components.supply_chain.attestations import AttestProvenance
from containers.engine.connection import Address, Connection
from containers.engine.pool import Pool
from containers.engine.relay import pass_on
from containers.engine.replicas import Replicas
from containers.engine.router import Router
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.placement import address
from tests.fakes.docker_relay import Relay
from tests.fakes.pulumi_mocks import planned, run
from tests.fakes.tls_relays import relays, server_context
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line
from tests.unit.components.test_engines import IMAGES, Engine, Unix, ask, session, wait_for

AMD64, ARM64 = "linux/amd64", "linux/arm64"
RUNNERS: dict[str, Any] = {
    "kind": "kubernetes",
    "github": {"url": "https://github.com/acme", "secret": "github"},
    "nodeSelector": {"acme.example/pool": "ci"},
    "build": {"nodeSelector": {"acme.example/pool": "builds"}, "replicas": 2},
}
REGISTRY = {"kind": "generic", "repository": "r.example/x", "username": "u", "password": "p"}
NAMES = ["slipway-runners-build/build", "slipway-runners-build/build-1"]

Served = dict[str, tuple[Relay, dict[str, str]]]


@contextmanager
def routed(root: Path, *, learned: bool = True) -> Iterator[tuple[Path, Replicas, dict[str, Engine], Served]]:
    """Serve two replicas; yield the socket, their pool, and by name their engines and what is before these."""
    behind = {name: Engine(root / f"{number}.sock") for number, name in enumerate(NAMES)}
    with relays({name: engine.address for name, engine in behind.items()}) as served:
        pool = Replicas(AMD64, {name: relay.host.removeprefix("tcp://") for name, (relay, _) in served.items()}, IMAGES)
        for name, (_, certificates) in served.items() if learned else ():
            pool.learn(name, certificates)
        host = address("t", AMD64)
        Router(root).serve(host, pool)
        yield root / host.removeprefix("unix://"), pool, behind, served


def test_replica_is_chosen_by_name_whatever_its_address() -> None:
    before, after = (Replicas(AMD64, dict.fromkeys(NAMES, address), IMAGES) for address in ("a:1", "b:2"))
    firsts = [before.order(image)[0] for image in IMAGES]
    assert firsts == [after.order(image)[0] for image in IMAGES]
    assert {firsts.count(name) for name in NAMES} == {150}
    more = Replicas(AMD64, dict.fromkeys([*NAMES, "slipway-runners-build/build-2"], "a:1"), IMAGES)
    moved = sum(first != more.order(image)[0] for image, first in zip(IMAGES, firsts, strict=True))
    assert 100 <= moved < 130  # a third goes to the new one


def test_builds_reach_the_replica_of_their_image(tmp_path: Path) -> None:
    with routed(tmp_path) as (path, pool, behind, _):
        for image in IMAGES[:6]:
            engine = behind[pool.order(image)[0]]
            engine.requests.clear()
            body = image.encode() * 400_000
            assert ask(path, "POST", f"/build?t=r.example/ml/{image}:1", body) == (200, body)
            assert ask(path, "POST", f"/images/r.example/ml/{image}/push?tag=1")[0] == 200
            assert ask(path, "GET", f"/images/get?names=r.example%2Fml%2F{image}%3A1")[0] == 200
            assert [line for line in engine.requests if "_ping" not in line] == engine.requests[-3:]
        assert all(engine.requests for engine in behind.values())


def test_replica_that_is_gone_costs_its_builds_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with routed(tmp_path) as (path, pool, behind, served):
        gone, left = NAMES
        served[gone][0].__exit__(None, None, None)
        assert all(ask(path, "POST", f"/build?t=r.example/ml/{image}:1")[0] == 200 for image in IMAGES[:10])
        assert behind[gone].requests == []
        assert sum("/build" in line for line in behind[left].requests) == 10
        line = f"slipway:runners.build: {gone}: no answer at {served[gone][0].host}: "
        output = capsys.readouterr().out
        assert output.startswith(line)
        assert output.endswith("; other replicas take its images\n")
        assert output.count("\n") == 1
        assert pool.answering(NAMES) == [left]


def test_build_cut_by_its_client_ends_on_its_replica(tmp_path: Path) -> None:
    with routed(tmp_path) as (path, pool, behind, _):
        first, second = (behind[name] for name in pool.order("image0"))
        connection = Unix(path)
        with closing(connection):
            connection.putrequest("POST", "/build?t=r.example/ml/image0:1")
            connection.putheader("Content-Length", "100")
            connection.endheaders(b"half")
            wait_for(lambda: any("/build" in line for line in first.requests))
        wait_for(lambda: first.ended == len(first.requests))
        assert second.requests == []


def test_session_of_a_build_reaches_its_replica(tmp_path: Path) -> None:
    with routed(tmp_path) as (path, pool, behind, _):
        first = behind[pool.order("image0")[0]]
        assert ask(path, "POST", "/build?t=r.example/ml/image0:1&session=s")[0] == 200
        with session(path, "s") as stream:
            assert stream.read(6) == b"hello "
            stream.write(b"world")
            stream.flush()
            assert stream.read(5) == b"world"
        assert first.requests[-1] == "POST /session"


def test_replica_with_another_certificate_gets_no_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with routed(tmp_path) as (path, pool, behind, served):
        stranger, right = NAMES
        pool.learn(stranger, served[right][1])
        assert all(ask(path, "POST", f"/build?t=r.example/ml/{image}:1")[0] == 200 for image in IMAGES[:10])
        assert behind[stranger].requests == []
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().out


def test_replica_refuses_a_client_without_its_certificate(tmp_path: Path) -> None:
    with routed(tmp_path) as (_, pool, behind, served):
        name = NAMES[0]
        other = make(["127.0.0.1"])
        pool.learn(name, {**served[name][1], "cert": other["client_cert"], "key": other["client_key"]})
        with pytest.raises(SlipwayError, match=f"{name}: no answer at tcp://127.0.0.1:"):
            pool.check(name)
        assert behind[name].requests == []


def test_replica_that_answers_with_an_error_is_passed_over(tmp_path: Path) -> None:
    with routed(tmp_path) as (_, pool, behind, _served):
        name = NAMES[0]
        behind[name].response = b"HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n"
        assert refusal_line(pool.check, name).endswith(": HTTP 500")
        assert {pool.engine(image) for image in IMAGES} == {NAMES[1]}


def test_replicas_wait_for_the_certificates_of_the_update(tmp_path: Path) -> None:
    with routed(tmp_path, learned=False) as (path, pool, _, served):
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(ask(path, "POST", "/build?t=r.example/x:1")[0]))
        asking.start()
        asking.join(0.2)
        assert answers == []
        for name, (_, certificates) in served.items():
            pool.learn(name, certificates)
        asking.join(10)
        assert answers == [200]


def test_replica_without_a_certificate_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("containers.engine.replicas._LEARNING_SECONDS", 0)
    pool = Replicas(AMD64, dict.fromkeys(NAMES, "127.0.0.1:1"))
    line = refusal_line(pool.engine, "x")
    reasons = "; ".join(f"{name}: this update has no certificate for it" for name in NAMES)
    assert line == f"slipway:runners.build: no engine answers: {reasons}"


def test_replicas_that_all_are_gone_are_an_error_of_the_build(tmp_path: Path) -> None:
    with routed(tmp_path) as (path, _, _behind, served):
        for relay, _ in served.values():
            relay.__exit__(None, None, None)
        status, body = ask(path, "POST", "/build?t=r.example/ml/x:1")
        assert status == 503
        assert json.loads(body)["message"].startswith(f"slipway:runners.build: no engine answers: {NAMES[0]}: no ans")


@every("pool", [Pool(AMD64, ["ssh://a", "ssh://b"], IMAGES, together=True)])
def test_pool_of_images_that_stay_has_one_engine_for_all(pool: Pool) -> None:
    assert len({tuple(pool.order(image)) for image in IMAGES}) == 1
    together = Replicas(AMD64, dict.fromkeys(NAMES, "a:1"), IMAGES, together=True)
    assert len({tuple(together.order(image)) for image in IMAGES}) == 1


def stack(**values: Any) -> plan.Plan:
    """Return the plan of a `local` stack that is built on its runners."""
    keys = {"flavor": "local", "tagSuffix": "t", "registry": REGISTRY, "buildOn": "runners", "runners": RUNNERS}
    return plan.make("local", {**keys, **values}, search=False)


def test_start_serves_replicas_and_asks_none(tmp_path: Path) -> None:
    replicas = engines.start(stack(), tmp_path)
    assert {platform: pool.engines for platform, pool in replicas.items()} == {AMD64: (*NAMES,)}
    assert (tmp_path / ".slipway/engines/local-amd64.sock").is_socket()
    assert engines.start(stack(runners={**RUNNERS, "build": {**RUNNERS["build"], "replicas": 1}}), tmp_path) == {}


def test_replicas_and_a_list_of_engines_share_two_platforms(tmp_path: Path) -> None:
    both = stack(platforms=[AMD64, ARM64], engines={ARM64: ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]})
    replicas = engines.start(both, tmp_path)
    assert replicas.keys() == {AMD64}
    sockets = {path.name for path in (tmp_path / ".slipway/engines").iterdir()}
    assert sockets == {"local-amd64.sock", "local-arm64.sock"}
    # Each pool shares its own platform's images in equal numbers.
    names = both.names_for(AMD64)
    firsts = [replicas[AMD64].order(name)[0] for name in names]
    assert max(map(firsts.count, NAMES)) <= -(-len(names) // 2)


def test_replicas_of_two_platforms_share_each_its_images(tmp_path: Path) -> None:
    build = {**RUNNERS["build"], "platforms": {ARM64: {"replicas": 2, "nodeSelector": {"acme.example/pool": "arm"}}}}
    both = stack(platforms=[AMD64, ARM64], runners={**RUNNERS, "build": build})
    replicas = engines.start(both, tmp_path)
    other = ["slipway-runners-build/build-arm64", "slipway-runners-build/build-arm64-1"]
    assert {platform: pool.engines for platform, pool in replicas.items()} == {AMD64: (*NAMES,), ARM64: (*other,)}
    sockets = {path.name for path in (tmp_path / ".slipway/engines").iterdir()}
    assert sockets == {"local-amd64.sock", "local-arm64.sock"}
    keys = {platform: pool.key for platform, pool in replicas.items()}
    assert keys == {AMD64: "slipway:runners.build", ARM64: "slipway:runners.build.platforms.linux/arm64"}
    # One daemon of a platform needs no pool; the other platform's images are not its.
    del build["platforms"][ARM64]["replicas"]
    one = engines.pools(stack(platforms=[AMD64, ARM64], runners={**RUNNERS, "build": build}))
    assert {platform: pool.engines for platform, pool in one.items()} == {AMD64: (*NAMES,)}


def test_image_of_no_pools_platform_is_the_runners_own() -> None:
    """A source is for linux/amd64, which a service for arm64 alone has no replicas of."""
    keys = {"flavor": "local", "registry": REGISTRY, "buildOn": "runners", "platform": ARM64}
    runners = {**RUNNERS, "profile": "cpu-arm64", "build": {"replicas": 2}}
    del runners["nodeSelector"]
    sources = [f"source{number}" for number in range(9)]
    images = (*(planned(name, product=True) for name in sources), planned("torch", platform=ARM64, SOURCE="source0"))
    pools = engines.pools(plan.Plan("t", flavors.load({**keys, "runners": runners}, "stack t"), images))
    assert {platform: pool.platform for platform, pool in pools.items()} == {AMD64: ARM64, ARM64: ARM64}
    assert pools[AMD64] is pools[ARM64]
    firsts = [pools[ARM64].order(name)[0] for name in (*sources, "torch")]
    assert {firsts.count(name) for name in NAMES} == {5}


def test_addresses_of_replicas_are_their_own() -> None:
    config = KubernetesRunnersConfig.model_validate(RUNNERS)
    assert config.build
    assert build_service.addresses(config, config.build) == {
        AMD64: {
            NAMES[0]: "build.slipway-runners-build.svc:2376",
            NAMES[1]: "build-1.slipway-runners-build.svc:2376",
        }
    }


def test_provenance_names_replicas_in_their_order() -> None:
    signing = {"key": "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"}
    recorder, _ = run(signing=signing, registry=REGISTRY, buildOn="runners", runners=RUNNERS, preview=True)
    provenances = recorder.of_type("pulumi-python:dynamic/image:Provenance")
    shared = Replicas(AMD64, dict.fromkeys(NAMES, ""), ["torch", "extras"])
    for name in ("torch", "extras"):
        assert provenances[f"{name}-provenance"]["engines"] == shared.order(name)
    assert "engines" not in AttestProvenance.triggers


def relayed(engine: socket.socket) -> socket.socket:
    """Return a connection that is joined with an engine's."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, engine:
            pass_on(theirs, engine)

    threading.Thread(target=serve, daemon=True).start()
    return ours


@contextmanager
def secured() -> Iterator[tuple[socket.socket, ssl.SSLSocket]]:
    """Yield both ends of a TLS connection, the client's behind a relay."""
    pem = make(["127.0.0.1"])
    tls = {"ca": pem["ca"], "cert": pem["client_cert"], "key": pem["client_key"]}
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[ssl.SSLSocket] = []

    def accept() -> None:
        context = server_context(pem["ca"], pem["server_cert"], pem["server_key"])
        accepted.append(context.wrap_socket(listener.accept()[0], server_side=True))

    with closing(listener):
        accepting = threading.Thread(target=accept)
        accepting.start()
        secure = Connection(Address(f"tcp://127.0.0.1:{listener.getsockname()[1]}", tls=tls)).socket
        client = relayed(secure)
        accepting.join()
    client.settimeout(10)
    accepted[0].settimeout(10)
    with client, accepted[0]:
        yield client, accepted[0]


def received(source: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size and (block := source.recv(1 << 16)):
        content += block
    return content


def ended(source: socket.socket) -> bool:
    """Return whether the other end has left."""
    try:
        return source.recv(1) == b""
    except ConnectionResetError:  # it had not read the tickets for a next session
        return True


def test_relay_passes_much_both_ways_at_once() -> None:
    sent = bytes(range(256)) * 20_000
    with secured() as (client, server):
        # The server reads nothing before it has sent everything: what it sends must not wait for it.
        client.sendall(sent[:100_000])
        answer = threading.Thread(target=server.sendall, args=[sent])
        answer.start()
        assert received(client, len(sent)) == sent
        answer.join()
        rest = threading.Thread(target=client.sendall, args=[sent[100_000:]])
        rest.start()
        assert received(server, len(sent)) == sent
        rest.join()


class Refusing:
    """The TLS connection to an engine that has answered and left before it read what it is sent."""

    def __init__(self, answer: bytes) -> None:
        self._left = [answer[:1000], answer[1000:], b""]
        self._readable, self._end = socket.socketpair()

    def begin(self) -> None:
        """Have something to read."""
        self._end.sendall(b"always")

    def fileno(self) -> int:
        return self._readable.fileno()

    def setblocking(self, flag: bool) -> None:
        pass

    def shutdown(self, how: int) -> None:
        pass

    def recv(self, _size: int) -> bytes:
        return self._left.pop(0)

    def send(self, _content: bytes) -> int:
        raise BrokenPipeError

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._readable.close()
        self._end.close()


def test_relay_gives_an_answer_that_comes_before_the_end() -> None:
    answer = bytes(range(256)) * 200
    engine = Refusing(answer)
    client = relayed(cast("socket.socket", engine))
    client.settimeout(10)
    with client:
        client.send(bytes(1000))
        engine.begin()
        assert received(client, len(answer)) == answer


def test_relay_ends_when_either_end_leaves() -> None:
    with secured() as (client, server):
        server.sendall(b"last")
        server.close()
        assert received(client, 100) == b"last"
    with secured() as (client, server):
        client.sendall(b"half")
        client.shutdown(socket.SHUT_WR)  # as of a client that has gone
        assert received(server, 4) == b"half"
        assert ended(server)
    with secured() as (client, server):
        client.close()
        assert ended(server)


def test_relay_carries_an_http_response() -> None:
    with secured() as (client, server):
        connection = http.client.HTTPConnection("docker")
        connection.sock = client
        connection.request("GET", "/_ping")
        assert server.recv(1 << 16).startswith(b"GET /_ping HTTP/1.1\r\n")
        server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
        assert connection.getresponse().read() == b"OK"
