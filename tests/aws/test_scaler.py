"""The functions that start and end runners: their handlers, on AWS's API as moto has it, and on a stand-in for GitHub."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import requests
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from moto.autoscaling.models import FakeAutoScalingGroup
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from cli.runners.keeper_report import keeper_report
from cli.runners.runner_status import report
from components.runners.ec2.scaler_functions import METRICS
from containers.errors import SlipwayError
from scaler import aws, github, keeper, webhook
from scaler.decide import Decision
from scaler.jobs import _LONGEST_LIFE, Job, Jobs
from stacks.config.ec2 import Ec2RunnersConfig
from tests.aws.conftest import ACCOUNT, REGION
from tests.aws.runners import NAME, RUNNERS, client
from tests.fakes.aws.reservations import block, plant
from tests.fakes.aws.reservations import served as planted
from tests.fakes.github.runner_api import TOKEN, World, served

HOOK = "the webhook's secret"
GROUPS = {"spot": f"{NAME}-spot", "on-demand": f"{NAME}-on-demand"}
CONFIGS = f"{NAME}-configs"
MACHINES = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/"
PAYLOAD = json.loads(
    """{"action": "queued", "workflow_job": {"id": 29679449526, "run_id": 10000000001, "run_attempt": 1,
    "workflow_name": "images", "head_branch": "main", "head_sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821",
    "url": "https://api.github.com/repos/acme/images/actions/jobs/29679449526", "status": "queued", "conclusion": null,
    "created_at": "2026-01-28T05:30:41Z", "started_at": "2026-01-28T05:30:41Z", "completed_at": null, "name": "build",
    "steps": [], "labels": ["self-hosted", "linux", "gpu"], "runner_id": null, "runner_name": null,
    "runner_group_id": null, "runner_group_name": null}, "repository": {"id": 186853002, "name": "images",
    "full_name": "acme/images", "private": true, "owner": {"login": "acme", "id": 21031067, "type": "Organization"}},
    "organization": {"login": "acme", "id": 21031067}, "sender": {"login": "octocat", "id": 1, "type": "User"}}"""
)
"""A delivery as GitHub documents it ("Webhook events and payloads", workflow_job), of an organization's webhook."""


@dataclass
class Scaler:
    """The functions' surroundings: AWS, GitHub, and a clock that only goes when told to."""

    moto: str
    github: World
    environment: dict[str, str]

    def api(self, service: str) -> Any:
        return client(service, self.moto)

    def deliver(
        self,
        body: bytes,
        *,
        secret: str = HOOK,
        event: str = "workflow_job",
        encoded: bool = False,
        content: str = "application/json",
    ) -> int:
        """Deliver a webhook, signed as GitHub signs it; return the status of the answer."""
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        answer = webhook.handle(
            {
                "version": "2.0",
                "headers": {
                    "x-hub-signature-256": f"sha256={signature}",
                    "x-github-event": event,
                    "content-type": content,
                },
                "body": base64.b64encode(body).decode() if encoded else body.decode(),
                "isBase64Encoded": encoded,
            },
            None,
        )
        status: int = answer["statusCode"]
        return status

    def job(self, number: int, action: str = "queued", *, ago: float = 0, **other: Any) -> int:
        """Deliver what GitHub says of a job that was made some seconds ago."""
        if action == "queued":
            self.github.jobs[number] = "queued"
        return self.deliver(payload(number, action, ago=ago, **other))

    def round(self) -> Decision:
        """Let the keeper do a round."""
        done = keeper.Keeper(self.environment).round()
        assert done
        return done

    def desired(self) -> dict[str, int]:
        return {kind: self.group(name)["DesiredCapacity"] for kind, name in GROUPS.items()}

    def group(self, name: str) -> Any:
        answer = self.api("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        return answer["AutoScalingGroups"][0]

    def instances(self) -> list[str]:
        return sorted(one["InstanceId"] for name in GROUPS.values() for one in self.group(name)["Instances"])

    def configs(self) -> dict[str, str]:
        """Return the configurations that were put, by machine, of machines that the keeper has noted."""
        noted = Jobs(self.api("dynamodb"), f"{NAME}-jobs").rows().registered
        items = self.api("dynamodb").scan(TableName=CONFIGS)["Items"]
        configs = {one["machine"]["S"].removeprefix(MACHINES): one["config"]["S"] for one in items}
        assert noted.keys() <= configs.keys()
        return {machine: configs[machine] for machine in noted}

    def come_up(self, *, busy: bool = False) -> None:
        """Let every machine that has its configuration start its runner, and take a job."""
        for machine in self.configs():
            self.github.named(f"{NAME}-{machine}").update(status="online", busy=busy)

    def metric(self, name: str = "LongestQueued", **more: str) -> float:
        """Return the greatest value of the last hour; by default of how long the longest waiting job has."""
        answer = self.api("cloudwatch").get_metric_statistics(
            Namespace=METRICS,
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in {"Runners": NAME, **more}.items()],
            StartTime=time.time() - 3600,
            EndTime=time.time() + 3600,
            Period=3600,
            Statistics=["Maximum"],
        )
        return max((float(point["Maximum"]) for point in answer["Datapoints"]), default=-1.0)


def payload(
    number: int, action: str = "queued", *, ago: float = 0, repository: str = "acme/images", **job: Any
) -> bytes:
    """Return a delivery about a job."""
    created = datetime.fromtimestamp(time.time() - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    owner, _, name = repository.partition("/")
    delivery = {
        **PAYLOAD,
        "action": action,
        "workflow_job": {**PAYLOAD["workflow_job"], "id": number, "created_at": created, "status": action, **job},
        "repository": {**PAYLOAD["repository"], "name": name, "full_name": repository, "owner": {"login": owner}},
    }
    return json.dumps(delivery).encode()


@pytest.fixture
def scaler(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scaler]:
    """What the stack makes, as far as the functions need it; the stack itself is applied in test_runners.py."""
    requests.post(f"{moto}/moto-api/reset", timeout=30).raise_for_status()
    for name, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }.items():
        monkeypatch.setenv(name, value)
    aws.client.cache_clear()
    aws._SECRETS.clear()
    secrets = client("secretsmanager", moto)
    credentials = secrets.create_secret(Name="github", SecretString=json.dumps({"token": TOKEN}))["ARN"]
    signing = secrets.create_secret(Name="webhook", SecretString=HOOK)["ARN"]
    for table, key in ((f"{NAME}-jobs", "id"), (CONFIGS, "machine")):
        client("dynamodb", moto).create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        )
    ec2, scaling = client("ec2", moto), client("autoscaling", moto)
    image = ec2.register_image(Name="a machine image")["ImageId"]
    template = {"ImageId": image, "InstanceType": "g5.2xlarge"}
    ec2.create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=template)
    for name in GROUPS.values():
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=4,
            AvailabilityZones=[f"{REGION}a"],
            NewInstancesProtectedFromScaleIn=True,
            LaunchTemplate={"LaunchTemplateName": NAME, "Version": "$Latest"},
        )
    rules = {"least": 0, "most": 4, "patience": 300, "idle": 600, "boot": 1200, "lifetime": 7 * 86400}
    with served() as (world, address):
        environment = {
            "JOBS": f"{NAME}-jobs",
            "GITHUB_SCOPE": "acme",
            "LABELS": "self-hosted,linux,x64,gpu",
            "OWN_LABELS": "gpu",
            "WEBHOOK_SECRET": signing,
            "RETRIES": "1",
            "NAME": NAME,
            "GROUPS": json.dumps(GROUPS),
            "RULES": json.dumps(rules),
            "RUNNER_GROUP": "7",
            "CONFIGS": CONFIGS,
            "MACHINES": MACHINES,
            "HOOK": "leave",
            "METRICS": METRICS,
            "GITHUB_API": address,
            "GITHUB_SECRET": credentials,
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Scaler(moto, world, environment)


def test_job_gets_machine_that_ends_after_it(scaler: Scaler) -> None:
    assert scaler.job(1) == 202
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}
    assert scaler.desired() == {"spot": 1, "on-demand": 0}
    (machine,) = scaler.instances()
    scaler.round()
    config = json.loads(base64.b64decode(scaler.configs()[machine]))
    assert config["name"] == f"{NAME}-{machine}"
    assert (config["labels"], config["runner_group_id"]) == (["self-hosted", "linux", "x64", "gpu"], 7)
    key = {"machine": {"S": f"{MACHINES}{machine}"}}
    item = scaler.api("dynamodb").get_item(TableName=CONFIGS, Key=key)["Item"]
    assert 1200 + 3590 < int(item["expires"]["N"]) - time.time() <= 1200 + 3600

    scaler.come_up(busy=True)
    scaler.job(1, "in_progress")
    for _ in range(3):
        done = scaler.round()
        assert (done.desired, done.end, done.prepare) == ({"spot": 1, "on-demand": 0}, {}, [])
    scaler.job(1, "completed")
    scaler.github.finish(f"{NAME}-{machine}")
    assert scaler.round().end == {machine: "job finished"}
    assert scaler.instances() == []
    assert scaler.desired() == {"spot": 0, "on-demand": 0}
    scaler.round()
    assert scaler.configs() == {}


def test_report_of_a_round_says_why_each_job_waits(scaler: Scaler) -> None:
    config = Ec2RunnersConfig.model_validate(RUNNERS)

    def known() -> dict[str, tuple[str, str, str]]:
        at, jobs = keeper_report(NAME.removeprefix("slipway-"), config)
        assert time.time() - at < 60
        return {job.job: (job.step, job.place, job.kind) for job in jobs}

    with pytest.raises(SlipwayError, match="the keeper has written no report to slipway-t-jobs"):
        known()
    scaler.job(1)
    scaler.round()
    assert known() == {"1": ("assigned", "", "starting")}
    scaler.round()
    (machine,) = scaler.instances()
    assert known() == {"1": ("booted", machine, "starting")}
    scaler.come_up()
    scaler.round()
    assert known() == {"1": ("registered", machine, "github")}
    scaler.come_up(busy=True)
    scaler.job(1, "in_progress")
    scaler.github.down = True
    scaler.job(2)
    scaler.round()
    assert known()["2"][2] == "github"
    scaler.github.down = False
    scaler.round()
    scaler.round()
    first, second = known().items()
    assert first == ("2", ("booted", next(each for each in scaler.instances() if each != machine), "starting"))
    assert second == ("", ("started", machine, ""))
    for number in range(3, 9):
        scaler.job(number)
    scaler.round()
    scaler.round()
    assert [kind for _, _, kind in known().values()].count("limit") == 4


def test_report_is_read_with_the_profile_of_the_stack(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The machine's own login is none; the profile has one."""
    scaler.job(1)
    scaler.round()
    (tmp_path / "stacks").mkdir()
    config = {f"slipway:{key}": value for key, value in (("flavor", "runners"), ("runners", RUNNERS))}
    stack = tmp_path / "stacks/Pulumi.t.yaml"
    stack.write_text(json.dumps({"config": {**config, "aws:profile": "team"}}))
    (tmp_path / "aws").write_text("[team]\naws_access_key_id = test\naws_secret_access_key = test\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws"))
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    assert [job.job for job in report("t", tmp_path).jobs] == ["1"]
    for wrong, reason in (({}, "Unable to locate credentials"), ({"aws:profile": "none"}, "profile (none) could not")):
        stack.write_text(json.dumps({"config": {**config, **wrong}}))
        with pytest.raises(SlipwayError, match=re.escape(reason)):
            report("t", tmp_path)


def test_report_of_launches_that_failed_names_capacity(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moto starts each machine; here it says what EC2 Auto Scaling says where there are none."""
    text = "We currently do not have sufficient g5.2xlarge capacity in the Availability Zone you requested"
    activities = [{"StatusCode": "Failed", "StatusMessage": text}, {"StatusCode": "Successful", "Description": "L"}]
    scaling = aws.client("autoscaling")
    monkeypatch.setattr(scaling, "describe_scaling_activities", lambda **_: {"Activities": activities})
    monkeypatch.setattr(scaling, "set_desired_capacity", lambda **_: None)
    scaler.job(1, ago=600)
    scaler.round()
    _, (job,) = keeper_report("t", Ec2RunnersConfig.model_validate(RUNNERS))
    assert (job.kind, job.cause) == ("capacity", text)


@pytest.fixture
def block_scaler(scaler: Scaler) -> Iterator[Scaler]:
    """A keeper whose first group is in a Capacity Block of one machine; the other one is on demand."""
    name = block()["CapacityReservationId"]
    known = {name: {"count": 1, "ends": None, "lead": 5400}}
    scaler.environment["GROUPS"] = json.dumps({name: GROUPS["spot"], "on-demand": GROUPS["on-demand"]})
    scaler.environment["RESERVATIONS"] = json.dumps(known)
    with planted():
        yield scaler


def test_keeper_uses_a_block_and_drains_it_before_its_end(block_scaler: Scaler) -> None:
    scaler, (name, other) = block_scaler, json.loads(block_scaler.environment["GROUPS"])
    plant(block(TotalInstanceCount=1, AvailableInstanceCount=1))
    scaler.job(1)
    scaler.job(2)
    assert scaler.round().desired == {name: 1, other: 1}
    assert scaler.desired() == {"spot": 1, "on-demand": 1}
    scaler.round()
    scaler.come_up(busy=True)
    scaler.job(1, "in_progress")
    scaler.job(2, "in_progress")
    # 80 minutes before the end: one with a job stays, and a new job gets no machine there.
    plant(block(days=80 / 1440, TotalInstanceCount=2, AvailableInstanceCount=1))
    scaler.job(3)
    done = scaler.round()
    assert (done.end, done.desired) == ({}, {name: 1, other: 2})
    assert 479 < scaler.metric("ReservationHoursLeft", Reservation=name) < 480  # of the first round, 20 days ahead
    (machine,) = (one["InstanceId"] for one in scaler.group(GROUPS["spot"])["Instances"])
    scaler.github.named(f"{NAME}-{machine}").update(busy=False)
    assert scaler.round().end == {machine: "its reservation ends"}
    assert scaler.desired()["spot"] == 0


def test_job_waits_for_a_full_block_and_is_told_so(block_scaler: Scaler) -> None:
    scaler = block_scaler
    name = block()["CapacityReservationId"]
    scaler.environment["GROUPS"] = json.dumps({name: GROUPS["spot"]})
    plant(block(TotalInstanceCount=1, AvailableInstanceCount=0))
    scaler.job(1)
    assert scaler.round().desired == {name: 0}
    _, (job,) = keeper_report("t", Ec2RunnersConfig.model_validate(RUNNERS))
    assert (job.kind, job.cause) == (
        "capacity",
        f"the capacity reservation {name} has no room: all 1 machines are in use",
    )
    plant()
    scaler.round()
    _, (job,) = keeper_report("t", Ec2RunnersConfig.model_validate(RUNNERS))
    assert (job.kind, job.cause) == ("capacity", f"the capacity reservation {name} has ended, or ends soon")


def test_machine_is_noted_with_its_configuration_or_not_at_all(scaler: Scaler) -> None:
    """Without the table of configurations, nothing is noted; the next round takes the runner back, the one after puts both."""
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.environment["CONFIGS"] = "missing"
    scaler.round()
    assert [one["name"] for one in scaler.github.runners.values()] == [f"{NAME}-{machine}"]
    assert scaler.configs() == {}
    scaler.environment["CONFIGS"] = CONFIGS
    scaler.round()
    assert (scaler.github.runners, scaler.configs()) == ({}, {})
    scaler.round()
    assert list(scaler.configs()) == [machine]


def test_delivery_without_valid_signature_is_refused(scaler: Scaler) -> None:
    body = payload(1)
    assert scaler.deliver(body, secret="another") == 401
    assert (
        webhook.handle({"headers": {"x-github-event": "workflow_job"}, "body": body.decode()}, None)["statusCode"]
        == 401
    )
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}
    assert scaler.deliver(body, content="application/x-www-form-urlencoded") == 415
    assert scaler.deliver(b"payload=%7B%7D", event="ping", content="application/x-www-form-urlencoded") == 415
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}
    assert scaler.deliver(body, encoded=True, content="Application/JSON; charset=utf-8") == 202
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}


@pytest.mark.parametrize(
    ("delivery", "status"),
    [
        (payload(1, repository="acme-evil/images"), 200),
        (payload(1, repository="other/acme"), 200),
        (payload(1, labels=["ubuntu-latest"]), 200),
        (payload(1, labels=["self-hosted", "linux"]), 200),
        (payload(1, labels=["self-hosted", "gpu", "windows"]), 200),
        (payload(1, "waiting"), 202),
        (payload(1, ago=25 * 3600), 202),
    ],
    ids=["prefix", "owner", "github's", "anybody's", "windows", "waiting", "old"],
)
def test_job_of_other_runners_gets_no_machine(scaler: Scaler, delivery: bytes, status: int) -> None:
    assert scaler.deliver(delivery) == status
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}


def test_delivery_ping_and_labels_of_any_case_are_accepted(scaler: Scaler) -> None:
    assert scaler.deliver(b'{"zen": "Design for failure."}', event="ping") == 200
    assert scaler.deliver(payload(1, labels=["Self-Hosted", "GPU"], repository="Acme/Images")) == 202
    scaler.github.jobs[1] = "queued"
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}


def test_delivery_after_the_secret_was_replaced_is_taken(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaler.job(1) == 202
    secrets = scaler.api("secretsmanager")
    secrets.put_secret_value(SecretId=scaler.environment["WEBHOOK_SECRET"], SecretString="its successor")
    assert scaler.deliver(payload(2), secret="its successor") == 401  # the secret was read just now
    monkeypatch.setattr(webhook, "_REPLACED", -1)
    assert scaler.deliver(payload(2), secret="its successor") == 202
    assert scaler.deliver(payload(3)) == 401


@pytest.mark.parametrize("days", [{"RecoveryWindowInDays": 7}, {"ForceDeleteWithoutRecovery": True}])
def test_deleted_webhook_secret_takes_no_delivery(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch, days: dict[str, Any]
) -> None:
    assert scaler.job(1) == 202
    scaler.api("secretsmanager").delete_secret(SecretId=scaler.environment["WEBHOOK_SECRET"], **days)
    assert scaler.job(2) == 202  # it is used for an hour, without a call
    monkeypatch.setattr(webhook, "_SECONDS_OLD", -1)
    assert [scaler.job(number) for number in (3, 4)] == [503, 503]


def test_deleted_credentials_cost_github_alone(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler.job(1)
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}
    secret = scaler.environment["GITHUB_SECRET"]
    scaler.api("secretsmanager").delete_secret(SecretId=secret, RecoveryWindowInDays=7)
    monkeypatch.setattr(aws._SECRETS[secret], "read", 0.0)
    scaler.github.requests.clear()
    scaler.job(2)
    assert scaler.round().desired == {"spot": 2, "on-demand": 0}
    assert not scaler.github.requests


def test_job_queued_twice_is_noted_once(scaler: Scaler) -> None:
    jobs, job = Jobs(scaler.api("dynamodb"), f"{NAME}-jobs"), Job(1, "acme/images", time.time())
    assert [jobs.queue(job) for _ in range(2)] == [True, False]


def test_delivery_replayed_starts_no_machine(scaler: Scaler) -> None:
    first = payload(1)
    assert scaler.deliver(first) == 202
    scaler.job(1, "in_progress")
    scaler.job(1, "completed")
    assert scaler.deliver(first) == 202
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}


def test_deliveries_out_of_order_start_no_machine(scaler: Scaler) -> None:
    scaler.job(1, "completed")
    scaler.job(1, "queued")
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}


def test_burst_of_jobs_is_stored_and_bounded_by_maximum(scaler: Scaler) -> None:
    scaler.github.jobs.update(dict.fromkeys(range(500), "queued"))
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(scaler.deliver, [payload(number) for number in range(500)])) == {202}
    done = scaler.round()
    assert done.desired == {"spot": 4, "on-demand": 0}
    assert len(scaler.instances()) == 4
    assert len(Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting) == 500


def test_lowered_maximum_keeps_busy_machines(scaler: Scaler) -> None:
    for number in range(4):
        scaler.job(number)
    scaler.round()
    scaler.round()
    scaler.come_up(busy=True)
    machines = scaler.instances()
    for number in range(4):
        scaler.job(number, "in_progress")
    for name in GROUPS.values():
        scaler.api("autoscaling").update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=2)
    scaler.environment["RULES"] = json.dumps({**json.loads(scaler.environment["RULES"]), "most": 2})
    scaler.round()
    assert (scaler.instances(), scaler.desired()) == (machines, {"spot": 2, "on-demand": 0})


def test_job_cancelled_before_boot_ends_its_machine(scaler: Scaler) -> None:
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.job(1, "completed", conclusion="cancelled")
    scaler.round()
    scaler.come_up()
    assert scaler.round().end == {}  # it may yet serve another
    older(601)
    assert scaler.round().end == {machine: "idle"}
    assert (scaler.instances(), scaler.github.runners) == ([], {})


def test_job_arriving_during_a_round_keeps_the_machine(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub gave the runner a job between the look and the deed: it refuses to forget it."""
    scaler.job(1)
    scaler.round()
    scaler.job(1, "completed")
    scaler.round()
    scaler.come_up()
    older(601)
    look = github.GitHub.runners

    def late(self: github.GitHub) -> Iterator[dict[str, Any]]:
        runners = [dict(one) for one in look(self)]
        scaler.come_up(busy=True)
        return iter(runners)

    monkeypatch.setattr(github.GitHub, "runners", late)
    before = scaler.instances()
    scaler.round()
    assert scaler.instances() == before
    assert scaler.desired() == {"spot": 1, "on-demand": 0}


def test_refused_spot_becomes_on_demand_after_a_wait(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = FakeAutoScalingGroup.replace_autoscaling_group_instances

    def refuse(self: Any, count: int, tags: Any) -> None:
        if self.name == GROUPS["on-demand"]:
            launch(self, count, tags)

    monkeypatch.setattr(FakeAutoScalingGroup, "replace_autoscaling_group_instances", refuse)
    scaler.job(1, ago=100)
    scaler.job(2, ago=310)
    assert scaler.round().desired == {"spot": 2, "on-demand": 0}
    assert scaler.instances() == []
    jobs = Jobs(scaler.api("dynamodb"), f"{NAME}-jobs")
    shortage = jobs.rows().shortage
    assert shortage
    jobs.note_shortage(replace(shortage, since=shortage.since - 310))
    for _ in range(2):  # nor does it ask for ever more
        assert scaler.round().desired == {"spot": 0, "on-demand": 2}
        assert len(scaler.instances()) == 2
    assert scaler.metric() > 300


def test_job_completed_on_github_is_dropped(scaler: Scaler) -> None:
    """Its delivery got lost: a machine would be made for it again and again."""
    scaler.job(1, ago=200)
    scaler.github.jobs[1] = "completed"
    scaler.round()  # which has a machine before GitHub is asked
    assert Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting == []


@pytest.mark.parametrize(("state", "ago"), [("waiting", 130), ("pending", 130), ("waiting", 25 * 3600)])
def test_job_awaiting_approval_gets_machine_after_it(scaler: Scaler, state: str, ago: float) -> None:
    """GitHub says that it is queued before it asks for approval, and again after that, with when it was made."""
    scaler.job(1, ago=130)
    scaler.github.jobs[1] = state
    scaler.round()  # which has a machine before GitHub is asked
    assert Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting == []
    assert scaler.job(1, ago=ago) == 202
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}
    (job,) = Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting
    assert time.time() - job.since < 60


def test_job_approved_after_a_day_gets_its_machine(scaler: Scaler) -> None:
    """Where GitHub's first word of it is that it waits; `queued` then has still the time when it was made."""
    assert scaler.job(1, "waiting", ago=25 * 3600) == 202
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}
    assert scaler.job(1, ago=25 * 3600) == 202
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}


def test_approval_without_delivery_is_polled(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler.job(1, ago=130)
    scaler.github.jobs[1] = "waiting"
    scaler.round()
    scaler.github.jobs[1] = "queued"
    count = len(scaler.github.requests)
    scaler.round()
    assert "GET /repos/acme/images/actions/jobs/1" not in scaler.github.requests[count:]
    monkeypatch.setattr(keeper, "POSTPONED_RECHECK_SECONDS", -1)
    scaler.round()
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}
    assert [job.id for job in Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting] == [1]


@pytest.mark.parametrize("status", [403, 404])
def test_unreadable_job_keeps_waiting_and_blocks_no_other(
    scaler: Scaler, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a repository that the App may not read."""
    scaler.github.unreadable[1] = status
    scaler.job(1, ago=200)
    scaler.job(2)
    assert scaler.round().desired == {"spot": 2, "on-demand": 0}
    (entry,) = (one for one in logged(capsys) if one["did"] == "refused")
    assert (entry["job"], f"GitHub answers {status}" in entry["why"]) == (1, True)


def test_job_never_assigned_to_a_runner_keeps_no_machine(scaler: Scaler, capsys: pytest.CaptureFixture[str]) -> None:
    """As one of a public repository, which a runner group refuses unless it is told to allow them."""
    scaler.job(1, ago=3600)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.round()
    scaler.come_up()
    older(500)
    assert scaler.round().end == {}
    older(601)
    done = scaler.round()
    assert (done.unassigned, done.end) == ([1], {machine: "idle"})
    assert [one["job"] for one in logged(capsys) if one["did"] == "left"] == [1]
    assert scaler.round().desired == {"spot": 0, "on-demand": 0}
    assert scaler.metric() > 3000  # it waits on: the alarm is to ring
    scaler.job(2)
    assert scaler.round().desired == {"spot": 1, "on-demand": 0}
    scaler.job(1, "in_progress")
    assert [job.id for job in Jobs(scaler.api("dynamodb"), f"{NAME}-jobs").rows().waiting] == [2]


def test_machine_without_runner_is_replaced(scaler: Scaler) -> None:
    scaler.job(1)
    scaler.round()
    (first,) = scaler.instances()
    scaler.round()
    older(1201)
    done = scaler.round()
    assert done.end == {first: "no runner came online"}
    (second,) = scaler.instances()
    assert second != first
    assert [one["name"] for one in scaler.github.runners.values()] == []


def test_interrupted_registration_is_repeated(scaler: Scaler) -> None:
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.github.register(f"{NAME}-{machine}")
    scaler.round()
    assert scaler.configs() == {}
    scaler.round()
    assert list(scaler.configs()) == [machine]


def test_name_of_a_runner_that_is_not_listed_is_told(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can remove it: the job waits, and its row says for what."""
    scaler.job(1)
    scaler.round()
    monkeypatch.setattr(scaler.github, "register", lambda _: None)
    scaler.github.requests.clear()
    scaler.round()
    assert sum(each.endswith("/actions/runners") for each in scaler.github.requests) == 1  # it costs up to 30 calls
    _, (job,) = keeper_report(NAME.removeprefix("slipway-"), Ec2RunnersConfig.model_validate(RUNNERS))
    assert "A runner with the name already exists" in job.cause


def refused(*_: object, **__: object) -> NoReturn:
    raise github.Refused(502, "Unicorn!")


@pytest.mark.parametrize("answer", ["idle", "none"])
def test_runner_that_the_list_lacks_is_asked_for(scaler: Scaler, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list once ended all machines that had no job, with what they were started for."""
    scaler.job(1)
    scaler.round()
    scaler.round()
    scaler.come_up()
    monkeypatch.setattr(github.GitHub, "runners", lambda _: iter(()))
    if answer == "none":
        monkeypatch.setattr(github.GitHub, "_send", refused)
    there = [*scaler.github.runners]
    assert scaler.round().end == {}
    assert ([*scaler.github.runners], len(scaler.instances())) == (there, 1)


def test_runner_without_machine_is_removed_alone(scaler: Scaler) -> None:
    scaler.github.register(f"{NAME}-i-0123456789abcdef0")
    scaler.github.register("somebody-elses")
    another = f"{NAME}-arm64-i-0123456789abcdef0"  # of a stack whose name begins as this one's
    scaler.github.register(another)
    for number in range(150):
        scaler.github.register(f"other-{number}")
    scaler.round()
    names = {one["name"] for one in scaler.github.runners.values()}
    assert {"somebody-elses", another} < names
    assert len(names) == 152


class Hook:
    """The hook by which machines leave, of which moto knows nothing.

    A machine that is ended waits until it is told to go on, once; ``late`` is whether AWS goes on saying that it waits
    after that, as one sees who looked a moment before. ``refused`` is a call that AWS refuses.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[str, str] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.late = False
        self.refused = ""
        make = aws.client

        def client(service: str) -> Any:
            if service != "autoscaling":
                return make(service)
            client = make.__wrapped__(service)
            self._describe, self._resize = client.describe_auto_scaling_groups, client.set_desired_capacity
            client.describe_auto_scaling_groups = self._described
            client.terminate_instance_in_auto_scaling_group = self._terminate
            client.complete_lifecycle_action = self._complete
            client.record_lifecycle_action_heartbeat = self._heartbeat
            return client

        monkeypatch.setattr(keeper, "client", client)

    def leave(self, machine: str) -> None:
        """Let Auto Scaling end a machine."""
        self.states[machine] = "Terminating:Wait"

    def _described(self, **arguments: Any) -> Any:
        answer = self._describe(**arguments)
        for group in answer["AutoScalingGroups"]:
            for one in group["Instances"]:
                state = self.states.get(one["InstanceId"], one["LifecycleState"])
                one["LifecycleState"] = "Terminating:Wait" if self.late and state.startswith("Terminating") else state
        return answer

    def _fail(self, call: str, code: str, text: str) -> NoReturn:
        raise ClientError({"Error": {"Code": code, "Message": text}}, call)

    def _terminate(self, *, InstanceId: str, ShouldDecrementDesiredCapacity: bool) -> None:  # noqa: N803 - AWS's names
        if self.refused == "terminate":
            self._fail("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress", "not now")
        groups = self._describe()["AutoScalingGroups"]
        group = next(one for one in groups if InstanceId in {i["InstanceId"] for i in one["Instances"]})
        name, size = group["AutoScalingGroupName"], group["DesiredCapacity"] - ShouldDecrementDesiredCapacity
        if size < group["MinSize"]:
            text = "Currently, desiredSize equals minSize (0)."
            self._fail("TerminateInstanceInAutoScalingGroup", "ValidationError", text)
        self._resize(AutoScalingGroupName=name, DesiredCapacity=size)
        self.leave(InstanceId)

    def _complete(self, **given: Any) -> None:
        if self.refused == "complete":
            self._fail("CompleteLifecycleAction", "Throttling", "not now")
        self._heartbeat("complete_lifecycle_action", **given)
        self.states[given["InstanceId"]] = "Terminating:Proceed"

    def _heartbeat(self, name: str = "record_lifecycle_action_heartbeat", **given: Any) -> None:
        if self.states.get(given["InstanceId"]) != "Terminating:Wait":
            text = f"No active Lifecycle Action found with instance ID {given['InstanceId']}"
            self._fail(name, "ValidationError", text)
        self.calls.append((name, given))


@pytest.fixture
def hook(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """The hook of both groups."""
    assert scaler
    return Hook(monkeypatch)


def working(scaler: Scaler) -> tuple[str, str]:
    """Have a machine that works on job 1; return it and its runner's name."""
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.round()
    scaler.come_up(busy=True)
    scaler.job(1, "in_progress", runner_name=f"{NAME}-{machine}")
    return machine, f"{NAME}-{machine}"


def test_leaving_machine_waits_for_its_job(scaler: Scaler, hook: Hook) -> None:
    machine, name = working(scaler)
    hook.leave(machine)
    scaler.round()
    about = {"AutoScalingGroupName": GROUPS["spot"], "LifecycleHookName": "leave", "InstanceId": machine}
    assert hook.calls == [("record_lifecycle_action_heartbeat", about)]
    scaler.github.finish(name)
    scaler.round()
    assert hook.calls[1:] == [("complete_lifecycle_action", {**about, "LifecycleActionResult": "CONTINUE"})]


@pytest.mark.parametrize("late", [False, True])
def test_machine_shutting_down_blocks_no_other_job(scaler: Scaler, hook: Hook, late: bool) -> None:
    """It is on its way for minutes: it is told to go on once, and others have their jobs meanwhile."""
    machine, name = working(scaler)
    scaler.github.finish(name)
    hook.late = late
    for _ in range(4):
        scaler.round()
    assert [what for what, _ in hook.calls] == ["complete_lifecycle_action"]
    assert (hook.states, scaler.configs()) == ({machine: "Terminating:Proceed"}, {})
    scaler.job(2)
    assert scaler.round().desired == scaler.desired() == {"spot": 1, "on-demand": 0}


def test_machine_ends_with_desired_capacity_of_zero(scaler: Scaler, hook: Hook) -> None:
    """As somebody sets the size of a group to 0, its machines being protected."""
    machine, name = working(scaler)
    scaler.github.finish(name)
    scaler.api("autoscaling").set_desired_capacity(AutoScalingGroupName=GROUPS["spot"], DesiredCapacity=0)
    assert scaler.instances() == [machine]
    scaler.round()
    assert hook.states == {machine: "Terminating:Wait"}


@pytest.mark.parametrize(("refused", "desired"), [("complete", 1), ("terminate", 2)])  # what was not ended counts
def test_refused_call_for_one_machine_is_logged_alone(
    scaler: Scaler, hook: Hook, refused: str, desired: int, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, name = working(scaler)
    scaler.github.finish(name)
    if refused == "complete":
        hook.leave(machine)
    hook.refused = refused
    scaler.job(2)
    scaler.round()
    assert scaler.desired() == {"spot": desired, "on-demand": 0}
    (entry,) = (one for one in logged(capsys) if one["did"] == "refused")
    assert (entry["machine"], "not now" in entry["why"]) == (machine, True)


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return what the keeper printed since."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def taken_away(machine: str) -> None:
    """Let EC2 end a machine, as with spot capacity, before its group knows of it."""
    for reservation in ec2_backends[DEFAULT_ACCOUNT_ID][REGION].reservations.values():
        for instance in reservation.instances:
            if instance.id == machine:
                instance._state.name, instance._state.code = "shutting-down", 32


@pytest.mark.parametrize("runner", ["signs off before its group knows", "signs off", "is silent", "is silent and busy"])
def test_job_of_interrupted_machine_is_run_again(scaler: Scaler, hook: Hook, runner: str) -> None:
    """Through the hook, by which the machine is in its group for minutes."""
    machine, name = working(scaler)
    if runner == "signs off before its group knows":
        taken_away(machine)
        scaler.github.finish(name)
        scaler.round()
    hook.leave(machine)
    if runner == "signs off":
        scaler.round()
        taken_away(machine)
        scaler.github.finish(name)
    if runner == "is silent":  # a machine that is broken: EC2 says that it runs
        scaler.github.named(name).update(status="offline", busy=False)
    if runner == "is silent and busy":
        taken_away(machine)
        scaler.github.named(name).update(status="offline")
    scaler.round()
    assert hook.states == {machine: "Terminating:Proceed"}
    scaler.job(1, "completed", conclusion="failure", runner_name=name, run_attempt=1)
    for _ in range(3):
        scaler.round()
    assert scaler.github.again == [1]


@pytest.mark.parametrize("dies", [False, True])
def test_job_failed_by_itself_stays_failed_after_a_crash(
    scaler: Scaler, hook: Hook, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, name = working(scaler)
    scaler.github.finish(name)
    scaler.job(1, "completed", conclusion="failure", runner_name=name, run_attempt=1)
    if dies:
        with monkeypatch.context() as patch:
            patch.setattr(keeper.Keeper, "_forget_machine", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                scaler.round()
        assert machine in scaler.configs()
    for _ in range(3):
        scaler.round()
        if hook.states[machine] == "Terminating:Proceed":
            taken_away(machine)
    scaler.round()
    assert (scaler.configs(), scaler.github.again) == ({}, [])


@pytest.mark.parametrize("first", ["machine", "delivery"])
def test_job_lost_with_its_machine_is_run_again_once(scaler: Scaler, first: str) -> None:
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.round()
    scaler.come_up(busy=True)
    name = f"{NAME}-{machine}"
    scaler.job(1, "in_progress", runner_name=name)

    def lose() -> None:
        """As a spot interruption does it, to the group and to GitHub."""
        scaler.api("autoscaling").detach_instances(
            InstanceIds=[machine], AutoScalingGroupName=GROUPS["spot"], ShouldDecrementDesiredCapacity=True
        )
        scaler.api("ec2").terminate_instances(InstanceIds=[machine])

    def fail() -> None:
        scaler.job(1, "completed", conclusion="failure", runner_name=name, run_attempt=1)

    scaler.github.running = True
    for happens in (lose, fail) if first == "machine" else (fail, lose):
        happens()
        scaler.round()
    assert scaler.github.again == []  # others of its workflow run still go on
    scaler.github.running = False
    scaler.round()
    scaler.round()
    assert scaler.github.again == [1]
    scaler.job(2, "completed", conclusion="failure", runner_name=name, run_attempt=2)
    scaler.round()
    fail()  # GitHub delivers it again
    scaler.job(1, "in_progress", runner_name=name)
    fail()
    scaler.round()
    assert scaler.github.again == [1]


def test_late_delivery_keeps_the_recorded_failure(scaler: Scaler) -> None:
    machine, name = working(scaler)
    scaler.job(1, "completed", conclusion="failure", runner_name=name, run_attempt=1)
    scaler.job(1, "in_progress", runner_name=name)
    taken_away(machine)
    for _ in range(2):
        scaler.round()
    assert scaler.github.again == [1]


@pytest.mark.parametrize(
    ("forbidden", "did"),
    [
        ("The workflow run containing this job is already running", None),
        ("API rate limit exceeded for installation ID 678.", "refused"),
        ("Resource not accessible by integration", "not run again"),
    ],
)
def test_job_not_run_again_is_logged_with_its_reason(
    scaler: Scaler,
    forbidden: str,
    did: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What passes is tried again, and what does not is said once, hours later: one answer may be that of an outage."""
    machine, name = working(scaler)
    taken_away(machine)
    scaler.job(1, "completed", conclusion="failure", runner_name=name, run_attempt=1)
    scaler.round()
    if did == "not run again":
        scaler.github.forbidden = forbidden
        scaler.round()
        assert [one["to"] for one in logged(capsys) if one["did"] == "refused"] == ["run again"]
        monkeypatch.setattr(keeper, "_REFUSED_SECONDS", 0)
    capsys.readouterr()
    scaler.github.forbidden = forbidden
    for _ in range(2):
        scaler.round()
    entries = [one for one in logged(capsys) if one["did"] in {"refused", "not run again"}]
    assert [one["did"] for one in entries] == {None: [], "refused": ["refused"] * 2}.get(did, [did])
    assert all(forbidden in one["why"] for one in entries)
    scaler.github.forbidden = None
    scaler.round()
    assert scaler.github.again == ([] if did == "not run again" else [1])


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "success"])
def test_job_ended_by_itself_is_not_run_again(scaler: Scaler, conclusion: str) -> None:
    scaler.job(1)
    scaler.round()
    (machine,) = scaler.instances()
    scaler.round()
    scaler.come_up(busy=True)
    name = f"{NAME}-{machine}"
    scaler.job(1, "in_progress", runner_name=name)
    scaler.github.finish(name)
    scaler.job(1, "completed", conclusion=conclusion, runner_name=name, run_attempt=1)
    for _ in range(3):
        scaler.round()
    assert (scaler.instances(), scaler.github.again) == ([], [])


def test_github_down_starts_machines_and_ends_none(scaler: Scaler) -> None:
    scaler.job(1)
    scaler.round()
    machines = scaler.instances()
    scaler.job(2, ago=2000)
    scaler.github.down = True
    for _ in range(3):
        assert scaler.round().end == {}
    assert scaler.desired() == {"spot": 2, "on-demand": 0}
    assert set(machines) < set(scaler.instances())
    assert scaler.metric() > 1900


def test_app_signs_in_and_redelivers_lost_deliveries(scaler: Scaler) -> None:
    key = app(scaler)
    now = datetime.now(UTC).isoformat()
    scaler.github.deliveries = [
        {**FAILED, "id": 6, "guid": "again", "status": "OK"},
        {**FAILED, "id": 5, "guid": "lost"},
        *({**FAILED, "id": number, "guid": "hopeless", "delivered_at": now} for number in (4, 40, 41, 42)),
        {**FAILED, "id": 7, "guid": "malformed", "status_code": 422},
        {**FAILED, "id": 3, "guid": "again"},
        {**FAILED, "id": 2, "guid": "ping", "event": "ping"},
        {**FAILED, "id": 1, "guid": "fine", "status": "OK"},
    ]
    scaler.round()
    assert scaler.github.redelivered == [5]
    signed, _, signature = scaler.github.bearers[0].rpartition(".")
    key.public_key().verify(decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    header, claims = (json.loads(decoded(part)) for part in signed.split("."))
    assert header == {"alg": "RS256", "typ": "JWT"}
    assert claims["iss"] == "12345"
    assert claims["exp"] - claims["iat"] <= 600
    assert "ghs_678" in scaler.github.bearers


def test_lost_deliveries_of_a_burst_are_all_redelivered(scaler: Scaler) -> None:
    """The oldest first, and so many at once that the round has its time; of what is old there is one page."""
    app(scaler)
    now = datetime.now(UTC).replace(microsecond=0)
    late = [(120, now), (400, now - timedelta(hours=2))]
    times = [at for count, at in late for _ in range(count)]
    scaler.github.deliveries = [
        {**FAILED, "id": 1000 - number, "guid": str(number), "delivered_at": at.isoformat().replace("+00:00", "Z")}
        for number, at in enumerate(times)
    ]
    for _ in range(11):
        scaler.round()
        if len(scaler.github.redelivered) == 20:
            assert scaler.github.redelivered == list(range(801, 821))
        for one in scaler.github.deliveries:
            one["status"] = "OK" if one["id"] in scaler.github.redelivered else one["status"]
    assert sorted(scaler.github.redelivered) == list(range(801, 1001))


FAILED = {
    "event": "workflow_job",
    "status": "Invalid HTTP Response: 503",
    "action": "queued",
    "delivered_at": "2026-01-28T05:30:41Z",
}
"""A delivery that did not arrive ("List deliveries for an app webhook")."""


def app(scaler: Scaler) -> rsa.RSAPrivateKey:
    """Let the keeper be a GitHub App; return its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
    credentials = {"app": "12345", "installation": "678", "privateKey": pem}
    scaler.api("secretsmanager").put_secret_value(
        SecretId=scaler.environment["GITHUB_SECRET"], SecretString=json.dumps(credentials)
    )
    return key


def decoded(part: str) -> bytes:
    """Return a part of a token, as bytes."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def older(seconds: float) -> None:
    """Let every machine have started, and been registered, that much earlier."""
    for reservation in ec2_backends[DEFAULT_ACCOUNT_ID][REGION].reservations.values():
        for instance in reservation.instances:
            instance.launch_time = datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    table = client("dynamodb", os.environ["AWS_ENDPOINT_URL"])
    for row in table.scan(TableName=f"{NAME}-jobs")["Items"]:
        if row["state"]["S"] == "runner":
            expires = {"N": str(int(time.time() - seconds) + _LONGEST_LIFE)}
            table.put_item(TableName=f"{NAME}-jobs", Item={**row, "expires": expires})
