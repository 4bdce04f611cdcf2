"""Harnesses of what comes over the network: calls of the webhook, and answers of AWS, GitHub, registries and indexes."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import hmac
import http.client
import io
import json
import os
import socket
import ssl
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from email.parser import BytesHeaderParser
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
import urllib3.connection
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from containers.errors import SlipwayError
from containers.image import registry_image
from containers.registry.client import Repository
from containers.registry.credentials import Login
from maintenance.refresh import apt_index, torch_table
from scaler import aws, github, jobs, keeper, webhook
from tests.fakes.aws.runner_world import ENVIRONMENT, GROUPS, Faults, Machine, World
from toolchain.provider.docker_api import registry_digest

BETWEEN = b"\n--\n"
"""Divides an input into answers: one for each connection, and the last for all that follow."""

_LONGEST = 1000
"""Characters of a value in the scaler's log."""


def delivery(data: bytes) -> None:
    """Take a webhook's call, signed, and not signed."""
    variables = {"WEBHOOK_SECRET": "arn", "OWN_LABELS": "a", "LABELS": "a,b", "GITHUB_SCOPE": "acme"}
    variables |= {"JOBS": ENVIRONMENT["JOBS"], "RETRIES": "2"}
    aws._SECRETS["arn"] = aws._Secret(time.time(), "key")
    signature = f"sha256={hmac.new(b'key', data, hashlib.sha256).hexdigest()}"
    headers = {"X-Hub-Signature-256": signature, "content-type": "application/json", "x-github-event": "workflow_job"}
    signed = {"headers": headers, "body": base64.b64encode(data).decode(), "isBase64Encoded": True}
    world = World(1, Faults(0.0, (0.0, 0.0), 0.0), 0)
    with (
        patch.dict(os.environ, variables),
        patch.object(webhook, "client", world.client),
        patch.object(jobs, "time", world),
        _logged(),
    ):
        assert webhook.handle(signed, None)["statusCode"] in {200, 202, 403, 422}
        for encoded in (False, True):
            forged = {"headers": headers, "body": data.decode("latin-1") + "x", "isBase64Encoded": encoded}
            assert webhook.handle(forged, None)["statusCode"] in {400, 401}


@functools.cache
def _account() -> tuple[dict[str, Any], list[bytes]]:
    """Return the scaler's clients of AWS by service, and a list of one item, which each answers with."""
    answer = [b""]

    def answered(request: Any, **_: object) -> AWSResponse:
        status, body = (400, answer[0][1:]) if answer[0].startswith(b"!") else (200, answer[0])
        raw: Any = SimpleNamespace(stream=lambda *_args, **_more: iter([body]))
        return AWSResponse(request.url, status, {}, raw)

    once = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    services = ("autoscaling", "cloudwatch", "dynamodb", "ec2", "secretsmanager")
    clients: dict[str, Any] = {name: boto3.client(name, "eu-west-1", config=once, **keys) for name in services}
    for client in clients.values():
        client.meta.events.register("before-send", answered)
    return clients, answer


@contextmanager
def _logged() -> Iterator[io.StringIO]:
    """Keep what a round prints; afterwards, check that each line is one of a log, and none is long."""
    with redirect_stdout(io.StringIO()) as printed:
        yield printed
    lines = [json.loads(line) for line in printed.getvalue().splitlines()]
    assert all(len(str(value)) < _LONGEST for line in lines for value in line.values())


def aws_answer(data: bytes) -> None:
    """Do a round of the scaler in which every call of AWS's has the same answer; with ``!`` before it, a refusal."""
    clients, answer = _account()
    answer[0] = data
    with ExitStack() as stack:
        for module in (aws, keeper):
            stack.enter_context(patch.object(module, "client", clients.__getitem__))
        stack.enter_context(patch.dict(aws._SECRETS, clear=True))
        stack.enter_context(patch.object(aws, "_LIST_SECONDS", 0.1))
        stack.enter_context(patch.object(github._OPENER, "open", side_effect=OSError("away")))
        stack.enter_context(_logged())
        keeper.Keeper(ENVIRONMENT).round()


class _Connection:
    """A socket that was answered already."""

    def __init__(self, answer: bytes, sent: list[bytes]) -> None:
        self._answer = answer
        self._received = 0
        self._sent = sent

    def sendall(self, data: bytes) -> None:
        self._sent[-1] += bytes(data)

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._answer))

    def recv(self, size: int) -> bytes:
        self._received += size
        return self._answer[self._received - size : self._received]

    def fileno(self) -> int:
        return _NULL  # always readable, so that it counts as closed and is not used again

    def settimeout(self, _: object) -> None:
        """Wait for nothing."""

    setsockopt = shutdown = lambda *_: None
    close = lambda _: None  # noqa: E731


_NULL = os.open(os.devnull, os.O_RDONLY)


@contextmanager
def _answering(data: bytes, spend: Callable[[float], None] = lambda _: None) -> Iterator[list[bytes]]:
    """Answer whatever connects by HTTP, over no network and in no time; yield what is sent, by connection.

    TLS never comes about: no answer of a host's has its certificate.
    """
    answers = data.split(BETWEEN)
    sent: list[bytes] = []

    def connect(*_: object, **__: object) -> Any:
        spend(0.5)
        sent.append(b"")
        return _Connection(answers.pop(0) if len(answers) > 1 else answers[0], sent)

    def untrusted(*_: object) -> None:
        raise ssl.SSLError("no certificate")

    with ExitStack() as stack:
        stack.enter_context(patch.object(socket, "create_connection", connect))
        stack.enter_context(patch.object(urllib3.connection.HTTPConnection, "_new_conn", connect))
        for connection in (http.client.HTTPSConnection, urllib3.connection.HTTPSConnection):
            stack.enter_context(patch.object(connection, "connect", untrusted))
        stack.enter_context(patch.object(time, "sleep", lambda _: None))
        yield sent


@functools.cache
def _app() -> Mapping[str, str]:
    """Return the credentials of an App."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return {"app": "1", "installation": "2", "privateKey": key.private_bytes(*form).decode()}


def github_answer(data: bytes) -> None:
    """Do a round of the scaler, as an App if ``@`` is first, in which GitHub or a proxy answers as the input has it.

    One machine has to be registered, one runs, one is gone; a job is queued, one postponed, and one failed on a lost
    machine.
    """
    world = World(1, Faults(0.0, (0.0, 0.0), 0.0), 0)
    for number, (age, ended) in enumerate(((30, False), (900, False), (900, True))):
        machine = Machine(f"i-{number}", GROUPS["spot"], world.now - age, float("inf"), spot=True)
        machine.ended = world.now if ended else None
        world.machines[machine.id] = machine
    world.desired[GROUPS["spot"]] = len(world.machines)
    for noted in ("i-1", "i-2"):
        world.table[noted] = {"id": {"S": noted}, "state": {"S": "runner"}, "expires": {"N": str(int(world.now))}}
    for number, state in enumerate(("queued", "later", "failed")):
        world.table[str(number)] = {
            "id": {"S": str(number)},
            "state": {"S": state},
            "repository": {"S": "acme/x"},
            "since": {"N": str(int(world.now) - 3600)},
            "runner": {"S": "lost"},
        }
    world.table["lost"] = {"id": {"S": "lost"}, "state": {"S": "lost"}}
    credentials = _app() if data[:1] == b"@" else {"token": "canary"}
    with ExitStack() as stack:
        stack.enter_context(_answering(data.removeprefix(b"@"), world.spend))
        for module in (github, jobs, keeper):
            stack.enter_context(patch.object(module, "time", world))
        stack.enter_context(patch.object(keeper, "client", world.client))
        stack.enter_context(patch.object(keeper, "secret", lambda *_, **__: json.dumps(credentials)))
        printed = stack.enter_context(_logged())
        assert keeper.Keeper({**ENVIRONMENT, "GITHUB_API": "http://api.example"}).round() is not None
    assert "canary" not in printed.getvalue()
    assert "PRIVATE" not in printed.getvalue()


_IMAGE = "localhost:5000/x:1"
_LOGIN = Login("localhost:5000", "me", "canary")
_AUTH = [{"address": "http://localhost:5000", "username": "me", "password": "canary"}]
_OF_REGISTRY: Sequence[Callable[[], object]] = (
    lambda: Repository(_IMAGE, _LOGIN).visible_digest(),
    lambda: Repository(_IMAGE, _LOGIN).tags(),
    lambda: Repository(_IMAGE, _LOGIN).tag("2"),
    lambda: Repository(_IMAGE).blob(f"sha256:{hashlib.sha256(b'x').hexdigest()}", lambda stream: stream.read(1 << 20)),
    lambda: registry_image.fetch(_IMAGE, _LOGIN),
    lambda: registry_image.platforms(_IMAGE, _LOGIN),
    lambda: registry_digest.digest(_IMAGE, _AUTH, verify=True),
)


def registry_answer(data: bytes) -> None:
    """Ask a registry, for what the first byte says; the login goes to this machine alone, as nothing is encrypted."""
    with _answering(data[1:]) as sent, suppress(SlipwayError):
        _OF_REGISTRY[data[0] % len(_OF_REGISTRY) if data else 0]()
    for request in sent:
        headers = BytesHeaderParser().parsebytes(request.partition(b"\r\n")[2])
        basic = headers.get("Authorization", "").startswith("Basic ")
        assert not basic or headers["Host"].startswith(("localhost", "127.")), headers["Host"]


_OF_INDEX: Sequence[Callable[[], object]] = (
    lambda: torch_table.versions("http://index.example/simple", "torch"),
    lambda: list(torch_table.table("http://index.example/simple", "vllm")),
    lambda: apt_index.versions("http://apt.example", "libnccl2"),
)


def index_answer(data: bytes) -> None:
    """Ask a Python index, or an archive of apt, for what the first byte says."""
    with _answering(data[1:]), redirect_stderr(io.StringIO()), suppress(SlipwayError):
        _OF_INDEX[data[0] % len(_OF_INDEX) if data else 0]()


def _http(body: bytes | str | object = b"", status: int = 200, **headers: str) -> bytes:
    """Return an answer that ends with its connection."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + content


def _first(number: int, *answers: bytes) -> bytes:
    return bytes([number]) + BETWEEN.join(answers)


_JOB = {"id": 7, "labels": ["a"], "created_at": "2027-01-15T08:00:00Z", "conclusion": None, "runner_name": None}
_PAYLOAD = {"action": "queued", "repository": {"full_name": "acme/x"}, "workflow_job": {**_JOB, "run_attempt": 1}}
_ENDED = {**_JOB, "conclusion": "failure", "runner_name": "x-i-0", "run_attempt": 1}
DELIVERIES = [
    json.dumps(each).encode()
    for each in (
        _PAYLOAD,
        {**_PAYLOAD, "action": "in_progress"},
        {**_PAYLOAD, "action": "waiting"},
        {**_PAYLOAD, "action": "completed", "workflow_job": _ENDED},
        {**_PAYLOAD, "workflow_job": {**_JOB, "labels": ["a", "c"]}},
        {**_PAYLOAD, "repository": {"full_name": "other/x"}},
    )
]

_ROW = {"id": {"S": "7"}, "state": {"S": "queued"}, "repository": {"S": "acme/x"}, "since": {"N": "4000000000"}}
_RESULT = b"DescribeAutoScalingGroupsResult"
_GROUPS = b"<R><%b><AutoScalingGroups>%b</AutoScalingGroups></%b></R>" % (
    _RESULT,
    b"".join(
        b"<member><AutoScalingGroupName>%b</AutoScalingGroupName><DesiredCapacity>1</DesiredCapacity><MaxSize>6</MaxSize>"
        b"<Instances><member><InstanceId>i-0</InstanceId><LifecycleState>InService</LifecycleState></member></Instances>"
        b"</member>" % name.encode()
        for name in GROUPS.values()
    ),
    _RESULT,
)
_MACHINES = (
    b"<R><reservationSet><item><instancesSet><item><instanceId>i-0</instanceId>"
    b"<launchTime>2027-01-15T08:00:00Z</launchTime><instanceState><name>running</name></instanceState></item>"
    b"</instancesSet></item></reservationSet></R>"
)
AWS_ANSWERS = [
    b"{}",
    b"!<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>",
    json.dumps({"Items": [_ROW], "Parameters": [{"Name": "/a/i-0"}], "SecretString": "{}"}).encode(),
    json.dumps({"Items": [{**_ROW, "left": {"N": "1"}}], "LastEvaluatedKey": {"id": {"S": "7"}}}).encode(),
    _GROUPS,
    _MACHINES,
]

_RUNNERS = {
    "runners": [
        {"id": number, "name": f"{ENVIRONMENT['NAME']}-i-{number}", "status": "online", "busy": number == 1}
        for number in (1, 2, 9)
    ]
}
_DELIVERY = {
    "id": 5,
    "guid": "a",
    "event": "workflow_job",
    "status": "Timed out",
    "delivered_at": "2027-01-15T08:00:00Z",
}
_EVERY = {**_RUNNERS, "token": "t", "encoded_jit_config": "Yw==", "status": "queued"}
GITHUB_ANSWERS = [
    _http(_EVERY),
    b"@" + BETWEEN.join([_http(_EVERY)] * 7 + [_http([_DELIVERY], Link='<https://api.example/a?x=1>; rel="next"')]),
    BETWEEN.join([_http(_RUNNERS), _http({"message": "Already exists"}, 409), _http({"status": "waiting"})]),
    _http({"message": "API rate limit exceeded"}, 403),
    _http("", 302, Location="http://api.example/moved"),
]

_DIGEST = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
_CHALLENGE = _http("", 401, WWW_Authenticate='Bearer realm="http://localhost:5001/token",service="s",scope="p"')
_TOKEN = _http({"token": "t"})
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYERS = [{"digest": _DIGEST, "size": 1, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}]
REGISTRY_ANSWERS = [
    _first(0, _CHALLENGE, _TOKEN, _http("", Docker_Content_Digest=_DIGEST)),
    _first(1, _http({"tags": ["1", "2"]}, Link='</v2/x/tags/list?n=1>; rel="next"'), _http({"tags": []})),
    _first(2, _http({}, Content_Type=_INDEX, Docker_Content_Digest="x"), _http("", 201)),
    _first(3, _http("x", 307, Location="http://elsewhere.example/blob"), _http("x", Content_Length="1")),
    _first(4, _http({"config": {"digest": _DIGEST, "size": 1}, "layers": _LAYERS}), _http("x")),
    _first(5, _http({"manifests": [{"digest": _DIGEST, "platform": {"os": "linux", "architecture": "arm64"}}]})),
    _first(6, _CHALLENGE, _TOKEN, _http("x", Content_Type=_INDEX)),
    _first(3, _http(b"1\r\nx\r\n0\r\n\r\n", Transfer_Encoding="chunked")),
    _first(0, _http("", 503, Retry_After="1"), _http("", 429), _http("", 404)),
]


def _wheel(requirement: str = "torch (==2.9.0)") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(
            "vllm-1.0.0.dist-info/METADATA",
            f"Metadata-Version: 2.1\nRequires-Python: >=3.10\nRequires-Dist: {requirement}\n"
            "Requires-Dist: torchvision==0.24.0 ; platform_machine != 'x'\n\nx",
        )
        archive.writestr("vllm/envs.py", '\n    VLLM_MAIN_CUDA_VERSION: str = "12.9"\n')
    return content.getvalue()


_PAGE = (
    '<a href="../vllm-1.0.0-cp38-abi3-manylinux1_x86_64.whl#sha256=x">x</a>'
    '<a href="torch-2.9.0-cp312-cp312-linux_aarch64.whl" data-yanked>y</a><a href="t-1-py3-none-any.whl">z</a>'
)
_PACKAGES = "Package: libnccl2\nVersion: 2.28.3-1+cuda13.0\n\nPackage: b\n"


def index_of_wheel(wheel: bytes) -> bytes:
    """Return the answers of an index that has one wheel."""
    return _first(1, _http(_PAGE), _http("", Content_Length=str(len(wheel))), _http(wheel, 206))


INDEX_ANSWERS = [
    _first(0, _http(_PAGE)),
    index_of_wheel(_wheel()),
    _first(2, _http(gzip.compress(_PACKAGES.encode()))),
]
