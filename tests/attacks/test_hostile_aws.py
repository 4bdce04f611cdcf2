"""Something between the scaler and AWS answers in AWS's place: it costs the call, and no secret is in what is logged.

The scaler's clients are boto3's own, and each answer is read from a socket.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pulumi
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from components.registry import ecr_registry
from components.runners.ec2 import aws_lookup
from components.runners.ec2.builder.builder_instance import BuilderInstance
from containers.errors import SlipwayError
from scaler import aws, github, keeper, webhook
from scaler.jobs import Rows
from tests.attacks.test_hostile_github import api, send, serving
from tests.fakes.aws.runner_world import ENVIRONMENT, GROUPS
from tests.fakes.loopback import LoopbackServer, run_server

TOKEN, CONFIG = "canary-token", "canary-config"
ENDED, NEW, LOST = "i-0a", "i-0b", "i-0c"
"""Machines: one whose job is over, one that has no configuration yet, and one that is gone before its job was over."""

Answer = tuple[int, bytes]


def query(action: str, result: str) -> bytes:
    return f"<{action}Response><{action}Result>{result}</{action}Result></{action}Response>".encode()


def members(*texts: str) -> str:
    return "".join(f"<member>{text}</member>" for text in texts)


def row(job: int, since: object, **more: Any) -> dict[str, Any]:
    return {
        "id": {"S": str(job)},
        "state": {"S": "queued"},
        "repository": {"S": "acme/x"},
        "since": {"N": str(since)},
        **more,
    }


def noted(machine: str) -> dict[str, Any]:
    return {"id": {"S": machine}, "state": {"S": "runner"}, "expires": {"N": str(int(time.time()))}}


def machines(*ids: str) -> str:
    started = datetime.fromtimestamp(time.time() - 60, UTC).isoformat()
    return "".join(
        f"<item><instanceId>{one}</instanceId><launchTime>{started}</launchTime>"
        "<instanceState><name>running</name></instanceState></item>"
        for one in ids
    )


def good() -> dict[str, bytes]:
    """Return AWS's answers of a round that calls every action: two jobs wait, the second of which is over at GitHub."""
    spot, on_demand = (
        f"<AutoScalingGroupName>{name}</AutoScalingGroupName><DesiredCapacity>{count}</DesiredCapacity>"
        f"<MaxSize>6</MaxSize><Instances>{instances}</Instances>"
        for name, count, instances in (
            (
                GROUPS["spot"],
                2,
                members(
                    *(
                        f"<InstanceId>{one}</InstanceId><LifecycleState>InService</LifecycleState>"
                        for one in (ENDED, NEW)
                    )
                ),
            ),
            (GROUPS["on-demand"], 0, ""),
        )
    )
    refused = "<StatusCode>Failed</StatusCode><StatusMessage>no capacity</StatusMessage>"
    return {
        "Scan": json.dumps(
            {"Items": [row(7, int(time.time()) - 500), row(8, int(time.time()) - 400), noted(ENDED), noted(LOST)]}
        ).encode(),
        "GetSecretValue": json.dumps({"SecretString": json.dumps({"token": TOKEN})}).encode(),
        "DescribeAutoScalingGroups": query(
            "DescribeAutoScalingGroups", f"<AutoScalingGroups>{members(spot, on_demand)}</AutoScalingGroups>"
        ),
        "DescribeInstances": (
            f"<DescribeInstancesResponse><reservationSet><item><instancesSet>{machines(ENDED, NEW)}</instancesSet>"
            "</item></reservationSet></DescribeInstancesResponse>"
        ).encode(),
        "DescribeScalingActivities": query("DescribeScalingActivities", f"<Activities>{members(refused)}</Activities>"),
        "TerminateInstanceInAutoScalingGroup": query("TerminateInstanceInAutoScalingGroup", ""),
        "SetDesiredCapacity": b"<SetDesiredCapacityResponse/>",
        "TransactWriteItems": b"{}",
        "PutItem": b"{}",
        "PutMetricData": b"",
    }


ENDING = {"TransactWriteItems", "TerminateInstanceInAutoScalingGroup"}
WITHOUT: Mapping[str, set[str]] = {
    "Scan": ENDING | {"PutItem", "SetDesiredCapacity", "DescribeScalingActivities", "PutMetricData"},
    "GetSecretValue": ENDING | {"SetDesiredCapacity", "PutItem"},
    "DescribeAutoScalingGroups": ENDING | {"SetDesiredCapacity", "DescribeInstances"},
}
"""By action: what a round does not ask for without an answer to it. Without any other, it asks for everything."""

NESTED = b"[" * 100_000
LINES = "\r\n::add-mask::x\r\n##[error]\x1b[2J\x07"
SHAPES: tuple[Answer, ...] = (
    *((200, body) for body in (b"", b"null", b"[]", b"7", b'"text"', b"{", b"{}", b"<", b"<x/>", b"\xff\xfe", NESTED)),
    *((200, b"<a>" * 50_000), (200, b"<html>Bad gateway</html>"), (200, b'{"SecretString": null}')),
    (200, b'{"SecretString": ["canary-token"]}'),
    (200, b'{"Items": null, "Parameters": null}'),
    (200, b'{"Items": [null], "Parameters": [null]}'),
    (200, b'{"Items": [{}], "Parameters": [{}]}'),
    (200, b'{"Items": {"a": 1}, "Parameters": "text", "SecretString": 7}'),
    (200, b'{"Items": [{"id": 7, "state": []}], "Parameters": [{"Name": 7}], "SecretString": "7"}'),
    (200, json.dumps({"Items": [row(7, "nan"), row(8, "-inf"), row(9, "inf")], "SecretString": "{}"}).encode()),
    (200, json.dumps({"SecretString": json.dumps({"token": f"{TOKEN}\r\nX: y"})}).encode()),
    (200, json.dumps({"SecretString": json.dumps({"token": [TOKEN]})}).encode()),
    (200, json.dumps({"SecretString": f"token={TOKEN}"}).encode()),
    (200, json.dumps({"SecretString": json.dumps({"app": 1, "installation": 2, "privateKey": [TOKEN]})}).encode()),
    (200, b'{"ARN": "a", "SecretString": "canary-token", "Name": "\xff"}'),
    (200, b'{"SecretString": "canary-token\xff"}'),
    (200, b'{"SecretString": "canary-token\\ud800"}'),
    (302, b""),
    (403, b"POST / HTTP/1.1\r\nX-Amz-Security-Token: canary-session\r\n\r\n{}"),
    (403, b'{"message": "canary-token"}'),
    (400, json.dumps({"__type": "ThrottlingException", "message": f"Rate exceeded{LINES}"}).encode()),
    (400, json.dumps({"__type": ["x"], "message": {"a": 1}}).encode()),
    (403, b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no\n::error::\x1b[2J</Message></Error>"),
    (403, b"x" * 1_000_000),
    (503, f"<html>{LINES}</html>".encode()),
)
"""Answers to whatever is called: of another shape, refusals, and secrets that are none."""


class Server(LoopbackServer):
    """AWS and GitHub, at one address. ``hostile`` answers some actions in AWS's place."""

    def __init__(self) -> None:
        self.hostile: Callable[[str, dict[str, Any]], Answer | None] = lambda _action, _given: None
        self.half = ""
        self.requested: list[str] = []
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer as GitHub, at which the second job is over."""
        body: Any = {"runners": []}
        if self.path.endswith("/access_tokens"):
            body = {"token": TOKEN}
        elif self.path.startswith("/app/hook/deliveries"):
            body = []
        elif self.path.endswith("/generate-jitconfig"):
            body = {"encoded_jit_config": CONFIG}
        elif "/jobs/" in self.path:
            body = {"status": "completed" if self.path.endswith("/8") else "queued"}
        self._send(200, json.dumps(body).encode())

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith(("/orgs/", "/app/")):
            self.do_GET()
            return
        given: dict[str, Any] = {}
        if target := self.headers["X-Amz-Target"]:
            action, given = target.rpartition(".")[2], json.loads(content)
        else:
            given = {key: values[0] for key, values in parse_qs(content.decode("latin-1")).items()}
            action = given.get("Action") or self.path.rpartition("/")[2]
        self.server.requested.append(action)
        status, body = self.server.hostile(action, given) or (200, good()[action])
        self._send(status, body, half=action == self.server.half)

    def _send(self, status: int, body: bytes, *, half: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + half))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.close_connection = half

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Server]:
    """AWS at a socket, with the clients of all tests: to make them takes longer than to play a round."""
    with run_server(Server()) as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **ENVIRONMENT,
            "GITHUB_API": cloud.url,
            "AWS_ENDPOINT_URL": cloud.url,
            "AWS_ACCESS_KEY_ID": "canary-key-id",
            "AWS_SECRET_ACCESS_KEY": "canary-key",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }.items():
            patch.setenv(name, value)
        # Nobody waits between two tries of a call.
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None, time=time.time))
        aws.client.cache_clear()
        yield cloud
    aws.client.cache_clear()


@pytest.fixture
def server(cloud: Server) -> Iterator[Server]:
    """AWS, which nobody attacks yet."""
    aws._SECRETS.clear()
    cloud.requested.clear()
    yield cloud
    cloud.hostile, cloud.half = lambda _action, _given: None, ""
    aws._SECRETS.clear()


def played(server: Server, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Do a round, and return what it logged: lines of bounded length, and no secret in them."""
    server.requested.clear()
    aws._SECRETS.clear()
    keeper.handle({}, None)
    output = "".join(capsys.readouterr())
    assert "canary" not in output
    assert max(map(len, output.splitlines()), default=0) < 1000
    assert output.isascii()
    assert not set(output) & {"\x1b", "\r", "\x07"}
    return [json.loads(line) for line in output.splitlines()]


def everything_but(*actions: str) -> set[str]:
    return set(good()) - {one for action in actions for one in WITHOUT.get(action, ())}


def test_round_without_faults_calls_every_action(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert not [line for line in played(server, capsys) if line["did"] == "refused" and "to" in line]
    assert set(server.requested) == set(good())


def test_round_of_an_app_logs_no_part_of_its_key(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    pem = key.private_bytes(serialization.Encoding.PEM, *form).decode()
    secret = json.dumps({"app": "1", "installation": "2", "privateKey": pem})
    server.hostile = lambda called, _: (
        (200, json.dumps({"SecretString": secret}).encode()) if called == "GetSecretValue" else None
    )
    logged = json.dumps(played(server, capsys))
    assert set(server.requested) == set(good())
    assert "registered" in logged
    assert not [line for line in pem.splitlines()[1:-1] if line in logged]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_round_ends_whatever_all_of_aws_answers(
    server: Server, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    server.hostile = lambda _action, _given: SHAPES[number]
    played(server, capsys)
    assert {"Scan", "GetSecretValue", "DescribeAutoScalingGroups"} <= set(server.requested)


@pytest.mark.parametrize("action", good())
def test_failed_call_costs_what_needs_its_answer_alone(
    server: Server, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    for status, body in ((400, SHAPES[-5][1]), (200, good()[action][: len(good()[action]) // 2] + b"<"), (200, NESTED)):
        server.hostile = lambda called, _: (status, body) if called == action else None  # noqa: B023
        played(server, capsys)
        assert set(server.requested) >= everything_but(action), (action, status, body[:100])
    server.hostile, server.half = lambda _action, _given: None, action
    played(server, capsys)
    assert set(server.requested) >= everything_but(action)


def endless(action: str, called: str, token: Callable[[], str]) -> Answer | None:
    """Return a page that names another one after it."""
    if called != action:
        return None
    more = token()
    if action == "DescribeInstances":
        return 200, good()[action].replace(
            b"<reservationSet>", f"<nextToken>{more}</nextToken><reservationSet>".encode()
        )
    page = json.loads(good()[action])
    return 200, json.dumps({**page, "NextToken": more, "LastEvaluatedKey": {"id": {"S": more}}}).encode()


@pytest.mark.parametrize("token", [lambda: "again", lambda: uuid.uuid4().hex], ids=["same", "new"])
@pytest.mark.parametrize("action", ["Scan", "DescribeInstances"])
def test_list_without_end_costs_its_call(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    token: Callable[[], str],
) -> None:
    monkeypatch.setattr(aws, "_LIST_SECONDS", 0.2)
    server.hostile = lambda called, _: endless(action, called, token)
    begun = time.monotonic()
    logged = played(server, capsys)
    assert time.monotonic() - begun < 60
    assert len([line for line in logged if line["did"] == "refused" and "to" in line]) == 1
    assert set(server.requested) >= everything_but(action)


def test_list_of_thousands_ends_in_time(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(number, int(time.time()) - 60) for number in range(9, 4000)]
    many = {
        "Scan": json.dumps({"Items": [*json.loads(good()["Scan"])["Items"], *rows]}).encode(),
        "DescribeInstances": good()["DescribeInstances"].replace(
            b"<instancesSet>",
            f"<instancesSet>{machines(*(f'i-{number:x}' for number in range(4096, 8096)))}".encode(),
        ),
    }
    server.hostile = lambda called, _: (200, many[called]) if called in many else None
    begun = time.process_time()
    played(server, capsys)
    assert time.process_time() - begun < 10
    assert set(server.requested) == set(good())


@pytest.mark.parametrize(
    "poison",
    [
        *({"since": {"N": "nan"}}, {"since": {"N": "1e999"}}, {"id": {"S": "x"}}, {"state": None}, {"left": {}}),
        *(
            {"state": {"S": "failed"}},
            {"repository": {"S": "../../orgs/acme"}},
            {"repository": {"S": "acme/x\r\nX: y"}},
        ),
        *({"repository": {"S": name}} for name in ("../..", "acme/..", "./x", "acme/.", "acme", "acme/x/y", "é/x")),
    ],
)
def test_poisoned_row_costs_its_own_job(
    server: Server, capsys: pytest.CaptureFixture[str], poison: dict[str, Any]
) -> None:
    items = [{**row(9, int(time.time()) - 450), **poison}, *json.loads(good()["Scan"])["Items"]]
    server.hostile = lambda called, _: (200, json.dumps({"Items": items}).encode()) if called == "Scan" else None
    logged = played(server, capsys)
    assert set(server.requested) == set(good())
    assert [line["why"] for line in logged if line.get("to") == "read the jobs"] == [
        "1 rows of the table are not a job's"
    ]


BODY = json.dumps(
    {
        "action": "queued",
        "repository": {"full_name": "acme/x"},
        "workflow_job": {"id": 7, "labels": ["gpu"], "created_at": datetime.now(UTC).isoformat()},
    }
)


def delivered(key: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Deliver a queued job to the webhook, signed with a key, and return its status. What failed is one line."""
    answer = answered(key)
    output = "".join(capsys.readouterr())
    assert len(output.splitlines()) == (answer["statusCode"] == 503)
    assert "canary" not in output + answer["body"]
    status: int = answer["statusCode"]
    return status


def answered(key: str) -> webhook.Answer:
    signature = hmac.new(key.encode(), BODY.encode(), hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-event": "workflow_job"}
    return webhook.handle({"headers": {**headers, "content-type": "application/json"}, "body": BODY}, None)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_webhook_answers_whatever_aws_answers(server: Server, capsys: pytest.CaptureFixture[str], number: int) -> None:
    server.hostile = lambda _action, _given: SHAPES[number]
    assert delivered("canary-hook", capsys) in {401, 503}
    # What was no secret is not kept: the next call reads it anew.
    hook = json.dumps({"SecretString": "canary-hook"}).encode()
    server.hostile = lambda called, _: (200, hook) if called == "GetSecretValue" else SHAPES[number]
    for held in aws._SECRETS.values():
        held.read, held.failed = held.read - 60, held.failed - 60
    assert delivered("canary-hook", capsys) in {202, 503}


@pytest.mark.parametrize("text", ["", " ", "\r\n"])
def test_empty_webhook_secret_lets_nobody_in(server: Server, capsys: pytest.CaptureFixture[str], text: str) -> None:
    server.hostile = lambda called, _: (
        (200, json.dumps({"SecretString": text}).encode()) if called == "GetSecretValue" else None
    )
    assert delivered("", capsys) == 503
    assert "PutItem" not in server.requested


class Hook:
    """The webhook, which has read its secret, with a clock. ``answer`` is what AWS answers who asks for the secret."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: Answer = (200, json.dumps({"SecretString": "canary-hook"}).encode())
        self._server, self._now = server, time.time()
        server.hostile = lambda called, _: self.answer if called == "GetSecretValue" else None
        monkeypatch.setattr(aws, "time", SimpleNamespace(time=lambda: self._now))
        assert answered("canary-hook")["statusCode"] == 202

    def statuses(self, *keys: str, after: float = 0) -> list[int]:
        """Deliver a job with each key as its signature's, some seconds later; return the answers."""
        self._now += after
        self._server.requested.clear()
        return [answered(key)["statusCode"] for key in keys]

    @property
    def reads(self) -> int:
        """How often the secret was asked for since then, with botocore's second try."""
        return self._server.requested.count("GetSecretValue")


AWAY: Answer = (503, b"<html>canary</html>")
THROTTLED: Answer = (400, b'{"__type": "ThrottlingException", "message": "no"}')
GONE: tuple[Answer, ...] = tuple(
    (400, b'{"__type": "%b", "message": "no"}' % code)
    for code in (
        b"AccessDeniedException",
        b"DecryptionFailure",
        b"InvalidRequestException",
        b"com.amazonaws.secretsmanager#ResourceNotFoundException",
    )
)
"""What Secrets Manager answers of a secret that is denied, marked for deletion or deleted."""
NO_SECRETS: tuple[Answer, ...] = tuple(
    (200, body)
    for body in (
        *(
            b'{"SecretString": ""}',
            b'{"SecretString": " \\n"}',
            b'{"SecretString": 7}',
            b'{"SecretBinary": "Y2FuYXJ5"}',
        ),
        *(b'{"SecretString": "canary\\ud800"}', b'{"SecretString": "canary\xff"}', b"{}"),
    )
)


@pytest.mark.parametrize("answer", NO_SECRETS)
def test_emptied_webhook_secret_ends_the_former_one(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer = answer
    assert hook.statuses("canary-hook", after=3601) == [503]
    hook.answer = AWAY  # an outage does not bring it back
    assert hook.statuses("canary-hook", after=11) == [503]
    output = "".join(capsys.readouterr())
    assert "is empty or no text" in output
    assert "canary" not in output


def test_emptied_secret_is_noticed_by_another_signature(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer = NO_SECRETS[0]
    assert hook.statuses("forged", "canary-hook", after=31) == [503, 503]


@pytest.mark.parametrize("answer", GONE)
def test_deleted_or_denied_webhook_secret_is_forgotten(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer, usable = answer, hook.answer
    assert hook.statuses("canary-hook", "canary-hook", after=3601) == [503, 503]
    hook.answer = AWAY  # an outage does not bring it back
    assert hook.statuses("canary-hook", after=11) == [503]
    hook.answer = usable
    assert hook.statuses("canary-hook", after=11) == [202]
    assert "canary" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("answer", [AWAY, THROTTLED])
def test_outage_leaves_the_secret_and_is_logged_once(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer = answer
    assert hook.statuses("canary-hook", "canary-hook", after=3601) == [202, 202]
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert json.loads(line)["to"] == "read a secret again"
    assert "canary" not in line


@pytest.mark.parametrize(("answer", "status"), [(AWAY, 401), (GONE[0], 503), (NO_SECRETS[0], 503)])
def test_forged_deliveries_repeat_no_failed_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Answer, status: int
) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer = answer
    assert hook.statuses(*["forged"] * 20, after=31) == [status] * 20
    assert hook.reads == (2 if answer == AWAY else 1)
    hook.statuses("forged", after=11)
    assert hook.reads > 0


@pytest.mark.parametrize("answer", [AWAY, NO_SECRETS[0]])
def test_secret_that_comes_back_counts_within_seconds(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    hook = Hook(server, monkeypatch)
    hook.answer, usable = answer, hook.answer
    hook.statuses("canary-hook", after=3601)
    hook.answer = usable
    assert hook.statuses("canary-hook", after=11) == [202]
    assert hook.reads == 1


def test_missing_variable_is_no_mistake_of_aws(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    Hook(server, monkeypatch)
    monkeypatch.delenv("LABELS")
    with pytest.raises(KeyError, match="LABELS"):
        answered("canary-hook")


@pytest.mark.parametrize(
    "form", ["{}", "POST / HTTP/1.1\r\nAuthorization: canary\r\n\r\n{}", "<html>{}</html>", '{{"message": {}}}']
)
def test_refusal_that_repeats_its_request_is_not_logged(
    server: Server, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    echoed: list[str] = []

    def echo(called: str, given: dict[str, Any]) -> Answer | None:
        if called != "TransactWriteItems":
            return None
        echoed.append(json.dumps(given))
        return 403, form.format(json.dumps(echoed[-1]) if "message" in form else echoed[-1]).encode()

    server.hostile = echo
    whys = [line["why"] for line in played(server, capsys) if "TransactWriteItems" in line.get("why", "")]
    assert whys == ["TransactWriteItems: refused without a reason of AWS's: 403"] * len(echoed)
    assert echoed
    assert all(CONFIG in one for one in echoed)


def test_refusal_of_aws_is_logged_with_its_reason(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.hostile = lambda called, _: GONE[0] if called == "TransactWriteItems" else None
    whys = [line["why"] for line in played(server, capsys) if line["did"] == "refused"]
    assert "TransactWriteItems: AWS refuses it: 400, AccessDeniedException: no" in whys


@pytest.mark.parametrize(
    "token", ["canary-token\n", "canary-token\r\nX: y", "canary-t\u2026", ["canary-token"], "\x1b[2Jcanary"]
)
def test_token_of_other_characters_is_in_no_error(token: Any) -> None:
    api = github.GitHub("http://127.0.0.1:1", "acme", lambda: {"token": token}, time.time() + 5)
    with pytest.raises(github.Refused) as caught:
        api.state("acme/x", 7)
    assert "canary" not in str(caught.value)


def test_token_in_the_answer_of_a_proxy_is_in_no_error() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, f"{'x' * 290}{handler.headers['Authorization']}".encode(), 407)

    with serving(answer) as proxy, pytest.raises(github.Refused) as caught:
        api(proxy.url).state("acme/x", 7)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("config", [None, {}, [CONFIG], f"{CONFIG}\nLD_PRELOAD=/tmp/x", ""])
def test_configuration_of_more_than_a_line_is_refused(config: Any) -> None:
    answer = partial(send, content=json.dumps({"encoded_jit_config": config}).encode())
    with serving(answer) as own, pytest.raises(github.Refused, match="no text on one line") as caught:
        api(own.url).register("x", [], 1)
    assert "canary" not in str(caught.value)


@pytest.fixture(scope="module")
def builder(cloud: Server) -> BuilderInstance:
    """The builder's machine at that AWS."""
    assert cloud.url
    return BuilderInstance("eu-west-1", "slipway-t-builder")


def instances(*ids: str) -> Answer:
    return 200, good()["DescribeInstances"].replace(machines(ENDED, NEW).encode(), machines(*ids).encode())


@pytest.mark.parametrize(
    "answer",
    [*SHAPES, instances("--profile=x"), instances("i-0a; id"), instances(""), instances(f"i-0a{LINES.strip()}")],
)
def test_builder_whatever_ec2_answers_is_one_line(server: Server, builder: BuilderInstance, answer: Answer) -> None:
    server.hostile = lambda _action, _given: answer
    for act in (builder.stop, lambda: builder.start(0)):
        with pytest.raises(SlipwayError) as caught:
            act()
        line = str(caught.value)
        assert line.startswith("the builder slipway-t-builder in eu-west-1: ")
        assert line.isprintable()
        assert len(line) < 600
        assert "canary" not in line


@pytest.mark.parametrize("answer", [(200, b'{"RequestId": "canary\xff"}'), (403, b"Authorization: canary")])
def test_refused_key_of_the_builder_has_no_answer_in_it(
    server: Server, builder: BuilderInstance, tmp_path: Path, answer: Answer
) -> None:
    (tmp_path / "key.pub").write_text(f"ssh-ed25519 {'A' * 80}")
    server.hostile = lambda _action, _given: answer
    with pytest.raises(SlipwayError, match="^the builder slipway-t-builder in eu-west-1: ") as caught:
        builder.admit("i-0123456789abcdef0", "slipway", tmp_path / "key")
    assert server.requested == ["SendSSHPublicKey"]
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("answer", [None, [], {}, SimpleNamespace(), SimpleNamespace(gpuses=[None])])
def test_instance_type_of_another_shape_is_one_line(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get_instance_type", "get_instance_type_offerings", "get_ami", "get_parameter", "get_subnets"):
        monkeypatch.setattr(f"pulumi_aws.{'ssm' if name == 'get_parameter' else 'ec2'}.{name}", lambda **_: answer)
    config: Any = SimpleNamespace(subnets=(), vpc="vpc-1")
    options = pulumi.InvokeOptions()
    for look in (
        lambda: aws_lookup._machine("p5.48xlarge", options),
        lambda: aws_lookup._image(None, "linux/amd64", "image", options),
        lambda: aws_lookup._networks(config, options),
    ):
        with pytest.raises(SlipwayError, match=r"^slipway:runners\..*: AWS's answer has another shape") as caught:
            look()
        assert str(caught.value).isprintable()
    with pytest.raises(SlipwayError) as caught, aws_lookup._aws_errors("image: ami-1"):
        b"canary\xff".decode()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("answer", [None, [], {}, {"userName": "AWS"}, {"userName": "AWS", "password": ["canary"]}])
def test_token_of_another_shape_is_one_line(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def invoked(*_: object) -> Any:
        return answer

    monkeypatch.setattr(ecr_registry, "invoke_async", invoked)
    registry: Any = SimpleNamespace(_provider=None, _args=SimpleNamespace(account="1"), server="r.example")
    with pytest.raises(pulumi.RunError, match="^slipway:registry: r.example: no token: ") as caught:
        asyncio.run(ecr_registry.EcrRegistry._token(registry, []))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("reason", [f"denied{LINES}", "x" * 10_000])
def test_refused_token_is_one_line(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def invoked(*_: object) -> Any:
        raise RuntimeError(f"invoking x: returned an error: {reason}")

    monkeypatch.setattr(ecr_registry, "invoke_async", invoked)
    registry: Any = SimpleNamespace(_provider=None, _args=SimpleNamespace(account="1"), server="r.example")
    with pytest.raises(pulumi.RunError) as caught:
        asyncio.run(ecr_registry.EcrRegistry._token(registry, []))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    with pytest.raises(SlipwayError) as refused, aws_lookup._aws_errors("image: ami-1"):
        raise RuntimeError(f"returned an error: {reason}")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("name", ["acme/.github", "acme/..x", "a.b/c-d_e", "acme/x.."])
def test_repository_of_any_allowed_name_is_read(name: str) -> None:
    rows = Rows()
    rows.add({**row(7, 4_000_000_000), "repository": {"S": name}}, time.time())
    assert [job.repository for job in rows.waiting] == [name]
