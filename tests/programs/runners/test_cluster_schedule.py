"""``schedule`` of runners in a cluster: the program that sets ``minRunners``, with its own account, and its objects."""

from __future__ import annotations

import json
import os
import random
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from components.runners.ec2.scaler_functions import clock_changes
from components.runners.kubernetes.periodic import minimum
from scaler.schedule import least
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.fakes.closed_host import certificate
from tests.fakes.loopback import LoopbackServer, run_server
from tests.unit.runners.test_cluster_schedule import OFFICE, config

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata")


def program(own: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the variables of the CronJob's program."""
    (job,) = (each for each in minimum.minimum(own, "r.example/runner:1") if each["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_minimum_is_that_of_ec2_at_each_time() -> None:
    """Random schedules and times, many of them in the hours in which clocks change, in five zones."""
    draw = random.Random(48)
    changes = {zone: clock_changes(zone) for zone in ZONES}
    cases: list[tuple[dict[str, Any], int]] = []
    for _ in range(3000):
        entries: list[dict[str, Any]] = [
            {
                "zone": draw.choice(ZONES),
                "days": draw.sample(range(7), draw.randint(1, 7)),
                "start": draw.randrange(0, 1440, 30),
                "end": draw.choice((1440, draw.randrange(1, 1440))),
                "least": draw.randint(0, 9),
            }
            for _ in range(draw.randint(1, 3))
        ]
        near = draw.choice(changes[entries[0]["zone"]][1:] or [(1_800_000_000, 0)])[0] + draw.randint(-9000, 9000)
        at = draw.choice((near, draw.randint(1_770_000_000, 2_200_000_000)))
        cases.append(({"least": draw.randint(0, 3), "entries": entries}, at))
    text = program(config(schedule=[OFFICE]))["MINIMUM"].partition("// What fails for one set")[0]
    text += "const cases = JSON.parse(require('fs').readFileSync(0))\n"
    text += "console.log(JSON.stringify(cases.map(([schedule, at]) => least(schedule, new Date(1000 * at)))))\n"
    done = subprocess.run(
        ["node", "-e", text], input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=60
    )
    expected = [least(at, schedule["least"], {**schedule, "zones": changes}) for schedule, at in cases]
    assert json.loads(done.stdout) == expected
    assert len(set(expected)) > 5


class _Api(LoopbackServer):
    """The part of the API server that the program asks: scale sets, and which of them its account may change."""

    def __init__(self, sets: dict[str, int | None], denied: set[str]) -> None:
        self.sets, self.denied = sets, denied
        self.patches: list[tuple[str, str, Any]] = []
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Api

    def _answer(self) -> None:
        assert self.headers["Authorization"] == "Bearer the-token"
        place, _, name = self.path.rpartition("/")
        assert place == "/apis/actions.github.com/v1alpha1/namespaces/slipway-runners/autoscalingrunnersets"
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        if name in self.server.denied:
            self._send(403, {"message": f'autoscalingrunnersets "{name}" is forbidden'})
            return
        if self.command == "PATCH":
            self.server.patches.append((name, self.headers["Content-Type"], body))
            self.server.sets[name] = body["spec"]["minRunners"]
        known = self.server.sets[name]
        self._send(200, {"spec": {} if known is None else {"minRunners": known}})

    def _send(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = _answer  # noqa: N815 - as the base class looks for them

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def api(tmp_path: Path, sets: dict[str, int | None], denied: set[str]) -> Iterator[_Api]:
    """Serve the API with a certificate of its own, and lay an account's files beside it."""
    (tmp_path / "token").write_text("the-token")
    both, root = certificate(tmp_path, "127.0.0.1")
    (tmp_path / "ca.crt").write_text(root)
    server = _Api(sets, denied)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with run_server(server) as running:
        yield running


def round_at(
    when: datetime, own: KubernetesRunnersConfig, port: int, tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    """Let the CronJob's program run at a time."""
    variables = program(own)
    text = variables.pop("MINIMUM").replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path))
    at = int(when.astimezone(UTC).timestamp() * 1000)
    fixed = f"const RealDate = Date; Date = class extends RealDate {{ constructor() {{ super({at}) }} }}\n"
    variables |= {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        "PATH": os.environ["PATH"],
    }
    return subprocess.run(
        ["node", "-e", fixed + text], env=variables, capture_output=True, text=True, check=False, timeout=60
    )


def test_rounds_follow_the_clock_over_summer_time(tmp_path: Path) -> None:
    own = config(maxRunners=9, minRunners=1, schedule=[{**OFFICE, "days": ["sun", "mon"]}])
    berlin = ZoneInfo("Europe/Berlin")
    with api(tmp_path, {"slipway-runners": None}, set()) as server:
        for when, expected in (
            # Clocks change on Sunday, 28 March 2027, and 31 October: the office opens at 8 by what they show.
            (datetime(2027, 3, 21, 7, 59, tzinfo=berlin), 1),
            (datetime(2027, 3, 21, 8, 0, tzinfo=berlin), 2),
            (datetime(2027, 3, 28, 7, 59, tzinfo=berlin), 1),
            (datetime(2027, 3, 28, 8, 0, tzinfo=berlin), 2),
            (datetime(2027, 3, 28, 18, 30, tzinfo=berlin), 1),
            (datetime(2027, 10, 31, 8, 0, tzinfo=berlin), 2),
            (datetime(2027, 11, 1, 7, 59, tzinfo=berlin), 1),
            (datetime(2027, 11, 2, 12, 0, tzinfo=berlin), 1),  # a Tuesday
        ):
            done = round_at(when, own, server.server_address[1], tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert server.sets["slipway-runners"] == expected, when
        assert {kind for _, kind, _ in server.patches} == {"application/merge-patch+json"}
        assert len(server.patches) == 7  # what is so already is left alone


def test_set_that_may_not_be_changed_costs_no_other(tmp_path: Path) -> None:
    own = config(sets={"a": {"schedule": [{"minRunners": 1, "days": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]}]},
                       "b": {"schedule": [{"minRunners": 3, "days": ["wed"]}]}, "c": {}})  # fmt: skip
    with api(tmp_path, {"a": 0, "b": 0, "c": 0}, {"a"}) as server:
        done = round_at(datetime(2027, 3, 24, 12, tzinfo=UTC), own, server.server_address[1], tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "autoscalingrunnersets/a: 403" in done.stderr
        assert server.sets == {"a": 0, "b": 3, "c": 0}
