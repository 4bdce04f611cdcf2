"""Harnesses of what engines, clusters, clouds and programs answer: Docker, kubectl, Azure, and Grype's report."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from components.runners.kubernetes import cluster_health
from containers.engine import engine_image, engine_platforms
from containers.engine.connection import Address
from containers.engine.engine import Engine
from containers.errors import SlipwayError
from containers.evidence.vulnerabilities import grype, scan_record, verdict
from containers.image.gpu import node_drivers
from containers.registry.credentials import Login
from containers.registry.logins import azure_login, google_login
from stacks.config.gates.vulnerabilities import VulnerabilitiesConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.fakes.vulnerability_scanner import REPORT
from tests.fuzzing import network_answers
from toolchain.provider import build, image_name
from toolchain.provider.docker_api.protos import StatusResponse
from toolchain.provider.docker_api.push_progress import BuildLog, follow
from toolchain.provider.provider_base import Operation

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
    keychain: Any = SimpleNamespace(for_host=lambda _: Login("", "", ""))
    display: Any = _Display()
    return build._Work(image, _ENGINE, keychain, display, Operation(), {})


def _built() -> None:
    with _ENGINE.request("POST", "/build") as response:
        BuildLog(_Display().status, str).follow(response.messages())


def _pulled() -> None:
    with _ENGINE.request("POST", "/images/create") as response:
        follow(response.messages(), _Display().status)


def _saved() -> None:
    with engine_image.saving(_NAME, _ENGINE.address) as stream:
        while stream.read(1 << 16):
            pass


def _platforms() -> None:
    assert set(engine_platforms.runnable_platforms(_ENGINE.address.host)) <= {*engine_platforms.PLATFORMS}


_OF_ENGINE: Sequence[Callable[[], object]] = (
    lambda: Engine.connect(_ENGINE.address),
    lambda: _work().identity(),
    lambda: _ENGINE.upgrade("/session", "h2c", []),
    _built,
    _pulled,
    lambda: _work().push(image_name.parse(_NAME), "sha256:a", None),
    _saved,
    _platforms,
)


def engine_answer(data: bytes) -> None:
    """Ask a Docker engine, for what the first byte says."""
    with network_answers._answering(data[1:]), suppress(SlipwayError):
        _OF_ENGINE[data[0] % len(_OF_ENGINE) if data else 0]()


@contextmanager
def _printing(data: bytes) -> Iterator[None]:
    """Have each program print a part of the input, and those that follow the last; it fails if that begins with ``!``."""
    answers = data.split(network_answers.BETWEEN)

    def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        printed: Any = answer.removeprefix(b"!")
        printed = printed.decode(errors="replace") if options.get("text") else printed
        failed = answer[:1] == b"!"
        if failed and options.get("check"):
            raise subprocess.CalledProcessError(1, command, printed, printed)
        return subprocess.CompletedProcess(command, int(failed), printed, printed)

    with patch.object(subprocess, "run", run):
        yield


def cluster(data: bytes) -> None:
    """Ask kubectl what keeps jobs waiting, and for the drivers of nodes."""
    with _printing(data):
        lines = cluster_health.warnings(_RUNNERS)
        assert all("\n" not in line for line in lines)
        with suppress(SlipwayError):
            drivers = node_drivers.read()
            assert all("\n" not in node_drivers.listed(names) for names in drivers.by_driver.values())


def azure(data: bytes) -> None:
    """Log in to a registry of Azure: ask for a token of Entra, and for the registry's in its place."""
    with ExitStack() as stack:
        stack.enter_context(network_answers._answering(data))
        clouds = {"io": ("http://login.example", "https://registry.example")}
        stack.enter_context(patch.object(azure_login, "_CLOUDS", clouds))
        stack.enter_context(patch.object(azure_login, "_EXCHANGE", "http://{host}/oauth2/exchange"))
        identity = dict(zip(azure_login.VARIABLES, ("client", "tenant", os.devnull), strict=True))
        stack.enter_context(patch.dict(os.environ, identity))
        _log_in(azure_login, "acme.azurecr.io")


def google(data: bytes) -> None:
    """Log in to a registry of Google: exchange a job's token, and Google's for one of a service account."""
    account = "http://iam.example/{}"
    credentials = {
        "type": "external_account",
        "audience": "pool",
        "subject_token_type": "jwt",
        "token_url": "http://sts.example",
        "service_account_impersonation_url": account.format("a@b"),
        "credential_source": {"file": "token"},
    }
    with ExitStack() as stack:
        stack.enter_context(network_answers._answering(data))
        for name, value in {
            "STS": credentials["token_url"],
            "IMPERSONATE": account,
            "_file": lambda: "credentials",
            "_read": lambda file: json.dumps(credentials) if file == "credentials" else "jobs",
        }.items():
            stack.enter_context(patch.object(google_login, name, value))
        _log_in(google_login, "europe-docker.pkg.dev")


def _log_in(cloud: Any, host: str) -> None:
    try:
        user, token = cloud.login(host)
    except SlipwayError as error:
        assert "\n" not in str(error)
    else:
        assert user == cloud.USER
        assert token
        assert token.isascii()
        assert token.isprintable()


_POLICY = VulnerabilitiesConfig.model_validate(
    {
        "severity": "low",
        "exceptions": [
            {"id": "CVE-2026-0001", "reason": "it is not called", "until": "2027-01-01", "packages": "a*"},
            {"id": "CVE-2026-0002", "reason": "it is not called", "until": "2026-01-01"},
        ],
    }
)
_RUNNERS = KubernetesRunnersConfig.model_validate(
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
    network_answers._first(
        7,
        network_answers._http({"Os": "linux", "Arch": "amd64"}),
        _stream({"stream": "Loaded image ID: sha256:aa\n"}),
        network_answers._http({"Id": "c"}, 201),
        network_answers._http("", 204),
        network_answers._http({"StatusCode": 1}),
        network_answers._http("exec format error\n"),
        network_answers._http("[]"),
    ),
]
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
_REPLICA: Mapping[str, Any] = {
    "metadata": {"name": "build-1", "creationTimestamp": "2026-11-20T00:00:00Z", "labels": {"a": "b"}},
    "spec": {"selector": {"matchLabels": {"a": "b"}}},
    "status": {"phase": "Running", "conditions": [{"status": "False", "message": "not ready"}]},
}
"""A deployment without a ready pod, and its pod."""
CLUSTERS = [json.dumps({"items": [each]}).encode() for each in (_NODE, _POD, _REPLICA)]
_NO_RESOURCE = b"!error: the server doesn't have a resource type\n"
CLUSTERS.append(_NO_RESOURCE)
_ENDED = {**_POD, "status": {"phase": "Failed", "reason": "Evicted", "message": "no space"}}
_RUNNER = {"metadata": _POD["metadata"], "status": {"phase": "Failed", "reason": "TooManyPodFailures", "message": "x"}}
_LATE = {"metadata": {**_REPLICA["metadata"], "name": "late"}, "status": {"phase": "Pending"}}


def _cluster(*lists: Sequence[object]) -> bytes:
    """Return what kubectl lists, one command after the other: nodes, pods, runners, deployments, and nodes."""
    return network_answers.BETWEEN.join(json.dumps({"items": each}).encode() for each in lists)


_SMALL = {"metadata": {"name": "m"}, "status": {"allocatable": {"nvidia.com/gpu": "1k", "rdma/ib": "2Ki"}}}
CLUSTERS += [
    _cluster([_NODE, _SMALL], [_POD, _ENDED], [_POD], [_REPLICA], [_RUNNER, _LATE], [_REPLICA], [_REPLICA], [_NODE]),
    _cluster([], [], [{"metadata": {"name": "arc"}}], [], [], [_LATE], [], [{**_REPLICA, "status": {}}], [_SMALL]),
    network_answers.BETWEEN.join([_cluster([], [], [], [], []), _NO_RESOURCE, _cluster([], [_REPLICA])]),
]
_TOKENS = {"access_token": "ey.x", "accessToken": "ey.z", "refresh_token": "ey.y"}
LOGIN_ANSWERS = [
    network_answers._http(_TOKENS),
    network_answers._http({"error_description": "no\r\n"}, 400),
    network_answers._http({"errors": [{"message": "no"}]}, 401),
    network_answers._http({"errors": []}, 404),
    network_answers.BETWEEN.join(
        [
            network_answers._http("", 503, Retry_After="1"),
            network_answers._http({"access_token": "a"}, Content_Length="21"),
            network_answers._http("busy", 429),
            network_answers._http("", 302, Location="http://elsewhere.example/"),
        ]
    ),
    network_answers._http(gzip.compress(json.dumps(_TOKENS).encode()), Content_Encoding="gzip"),
    network_answers._http(b'11\r\n{"access_token":1\r\n1\r\n}\r\n0\r\n\r\n', Transfer_Encoding="chunked"),
    network_answers._http(_TOKENS, Content_Length="999"),
]
