"""Harnesses of what engines, clusters, clouds and programs answer: Docker, kubectl, Azure, and Grype's report."""

from __future__ import annotations

import base64
import http.client
import io
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from components.engines.relayed_build import Download, Interrupted
from components.runners.kubernetes import cluster_health
from oci import engine_platforms
from oci.engine import engine_access
from oci.engine.engine_access import Access
from oci.gpu import node_drivers
from oci.logins import azure_login
from oci.vulnerabilities import grype, scan_record, verdict
from stacks.config.gates.vulnerabilities import Vulnerabilities
from stacks.config.kubernetes import KubernetesRunners
from stacks.errors import SlipwayError
from tests.fakes.vulnerability_scanner import REPORT
from tests.fuzzing import network_answers
from toolchain.docker_provider import build, reference
from toolchain.docker_provider.docker_api.docker_config import Credential
from toolchain.docker_provider.docker_api.engine import Address, Engine
from toolchain.docker_provider.docker_api.protos import StatusResponse
from toolchain.docker_provider.docker_api.push_progress import BuildLog, follow
from toolchain.provider_base import Operation, ProviderError

_NOW = datetime(2026, 11, 25, tzinfo=UTC)
_NAME = "r.example/x:1"
_LONGEST_LINE = 10_000


def grype_report(data: bytes) -> None:
    """Read what Grype reports of an image, judge it, and make the record of it."""
    with suppress(SlipwayError):
        scan = grype._parse(data.decode(errors="replace"), _NAME, _NOW)
        result = verdict.judge(scan.vulnerabilities, _POLICY, _NOW.date())
        lines = [*result.lines(), *(str(each) for each, _ in result.excepted)]
        record = scan_record.predicate(scan, _POLICY)
        lines.append(scan_record.summary(json.loads(json.dumps(record))))
        assert all("\n" not in line and line.encode() for line in lines)


class _Display:
    """Takes what is shown of a build."""

    def status(self, line: str) -> None:
        assert len(line) < _LONGEST_LINE

    log = lambda *_: None  # noqa: E731
    hide = staticmethod(str)


_ENGINE = Engine(Address("tcp://engine.example"))


def _work() -> Any:
    image: Any = SimpleNamespace(name=_NAME)
    keychain: Any = SimpleNamespace(for_push=Credential())
    display: Any = _Display()
    return build._Work(image, _ENGINE, keychain, display, Operation(), {})


def _built() -> None:
    with _ENGINE.request("POST", "/build") as response:
        BuildLog(_Display().status, str).follow(response.messages())


def _pulled() -> None:
    with _ENGINE.request("POST", "/images/create") as response:
        follow(response.messages(), _Display().status)


def _saved() -> None:
    plain = lambda *_: http.client.HTTPConnection("engine.example")  # noqa: E731
    access = Access("tcp://engine.example", tls={"ca": "x"})
    with patch.object(engine_access, "connection", plain), engine_access.saving(_NAME, access) as stream:
        while stream.read(1 << 16):
            pass


_OF_ENGINE: Sequence[Callable[[], object]] = (
    lambda: Engine.connect(_ENGINE.address),
    lambda: _work().identity(),
    lambda: _ENGINE.upgrade("/session", "h2c", []),
    _built,
    _pulled,
    lambda: _work().push(reference.parse(_NAME), "sha256:a"),
    _saved,
)


def engine_answer(data: bytes) -> None:
    """Ask a Docker engine, for what the first byte says."""
    with network_answers._answering(data[1:]), suppress(SlipwayError, ProviderError):
        _OF_ENGINE[data[0] % len(_OF_ENGINE) if data else 0]()


def relayed(data: bytes) -> None:
    """Pass on to a client what engines answer to its build."""
    client: Any = SimpleNamespace(sendall=lambda _: None)
    download = Download(client)
    for answer in data.split(network_answers.BETWEEN):
        engine: Any = SimpleNamespace(makefile=lambda _, answer=answer: io.BufferedReader(io.BytesIO(answer)))
        with suppress(Interrupted):
            download.pass_on(engine)
    download.fail("no engine")


@contextmanager
def _printing(data: bytes) -> Iterator[None]:
    """Have each program print the input, and fail if it begins with ``!``."""

    def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        printed: Any = data.removeprefix(b"!")
        printed = printed.decode(errors="replace") if options.get("text") else printed
        failed = data[:1] == b"!"
        if failed and options.get("check"):
            raise subprocess.CalledProcessError(1, command, printed, printed)
        return subprocess.CompletedProcess(command, int(failed), printed, printed)

    with patch.object(subprocess, "run", run):
        yield


def docker_client(data: bytes) -> None:
    """Ask the docker client which platforms an engine runs."""
    with _printing(data), suppress(SlipwayError):
        engine_platforms.runnable_platforms("ssh://engine.example")


def cluster(data: bytes) -> None:
    """Ask kubectl what keeps jobs waiting, and for the drivers of nodes."""
    with _printing(data):
        lines = cluster_health.warnings(_RUNNERS)
        assert all("\n" not in line for line in lines)
        with suppress(SlipwayError):
            drivers = node_drivers.read()
            assert all("\n" not in node_drivers.listed(names) for names in drivers.by_driver.values())


def azure(data: bytes) -> None:
    """Ask Azure for a token."""
    with network_answers._answering(data), suppress(SlipwayError):
        token = azure_login._post("http://login.example/token", {}, "access_token")
        assert token
        assert token.isascii()
        assert token.isprintable()


_POLICY = Vulnerabilities.model_validate(
    {
        "severity": "low",
        "exceptions": [
            {"id": "CVE-2026-0001", "reason": "it is not called", "until": "2027-01-01", "packages": "a*"},
            {"id": "CVE-2026-0002", "reason": "it is not called", "until": "2026-01-01"},
        ],
    }
)
_RUNNERS = KubernetesRunners.model_validate(
    {
        "kind": "kubernetes",
        "profile": "eks-p5",
        "github": {"url": "https://github.com/acme", "secret": "s"},
        "build": {"replicas": 2},
    }
)
GRYPE_REPORTS = [json.dumps(REPORT).encode()]


def _trace() -> str:
    status = StatusResponse()
    vertex = status.vertexes.add(digest="d", name="[1/2] RUN x", error="exit code: 1")
    vertex.started.FromSeconds(1)
    vertex.completed.FromSeconds(2)
    status.statuses.add(id="1", vertex="d", current=1, total=2)
    status.logs.add(vertex="d", msg=b"line\rover\n")
    status.warnings.add(vertex="d", short=b"old")
    return base64.b64encode(status.SerializeToString()).decode()


def _stream(*messages: object) -> bytes:
    return network_answers._http(b"".join(json.dumps(message).encode() + b"\r\n" for message in messages))


_DOCUMENT = network_answers._http({"Id": "sha256:a", "RepoDigests": [f"r.example/x@sha256:{'a' * 64}"]})
_PROGRESS = {"id": "a1", "status": "Pushing", "progressDetail": {"current": 5, "total": 9}}
ENGINE_ANSWERS = [
    network_answers._first(0, network_answers._http("OK", Api_Version="1.40")),
    network_answers._first(1, _DOCUMENT),
    network_answers._first(2, network_answers._http("", 101, Upgrade="h2c")),
    network_answers._first(
        3,
        _stream(
            {"id": "moby.buildkit.trace", "aux": _trace()},
            {"stream": "Step 1/2 : RUN x\n"},
            {"aux": {"ID": "sha256:a"}},
            {"errorDetail": {"message": 'process "x" did not complete successfully: exit code: 1'}, "error": "x"},
        ),
    ),
    network_answers._first(4, _stream(_PROGRESS, {"status": f"1: digest: sha256:{'a' * 64} size: 5"})),
    network_answers._first(5, _stream(_PROGRESS, {"aux": {"Digest": "sha256:a", "Size": 5}}), _DOCUMENT),
    network_answers._first(5, _stream(_PROGRESS), _DOCUMENT),
    network_answers._first(6, network_answers._http({"message": "no such image"}, 404)),
    network_answers._first(6, network_answers._http(b"3\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked")),
]
_CHUNKED = network_answers._http(b'10\r\n{"stream": "x"}\n\r\n0\r\n\r\n', Transfer_Encoding="chunked")
RELAYED = [
    _CHUNKED,
    network_answers.BETWEEN.join([_CHUNKED[:-5], network_answers._http({"message": "busy"}, 503, Content_Length="19")]),
]
DOCKER_CLIENTS = [b"linux/amd64\n", b"Loaded image ID: sha256:aa\n", b"!exec format error\n"]
_NODE = {
    "metadata": {"name": "n", "labels": {"nvidia.com/cuda.driver-version.full": "550.107.02"}},
    "status": {"allocatable": {"nvidia.com/gpu": "8"}},
}
_POD = {
    "spec": {"selector": {"matchLabels": {}}},
    "metadata": {"name": "listener", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}],
        "conditions": [{"status": "False", "message": "0/3 nodes"}],
    },
}
_REPLICA = {
    "metadata": {"name": "build-1", "creationTimestamp": "2026-11-20T00:00:00Z", "labels": {"a": "b"}},
    "spec": {"selector": {"matchLabels": {"a": "b"}}},
    "status": {"phase": "Running", "conditions": [{"status": "False", "message": "not ready"}]},
}
"""A deployment without a ready pod, and its pod."""
CLUSTERS = [json.dumps({"items": [each]}).encode() for each in (_NODE, _POD, _REPLICA)]
CLUSTERS.append(b"!error: the server doesn't have a resource type\n")
AZURE_ANSWERS = [
    network_answers._http({"access_token": "ey.x"}),
    network_answers._http({"error_description": "no\r\n"}, 400),
    network_answers._http({"errors": [{"message": "no"}]}, 401),
]
