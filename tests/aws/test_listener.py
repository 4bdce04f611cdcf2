"""The listener: its thread, its rounds and its machines, on AWS's API as moto has it, and a stand-in for GitHub's service."""

from __future__ import annotations

import base64
import json
import random
import string
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from scaler import aws
from scaler.jobs import LISTENER, Job, Jobs
from scaler.listening import listener
from scaler.listening.assigned_jobs import AssignedJobs
from tests.aws.conftest import REGION
from tests.aws.runners import NAME, client
from tests.aws.test_scaler import Scaler, scaler  # noqa: F401 - the fixture
from tests.fakes.github.scale_set_service import ScaleSetService, served


class Listened(Scaler):
    """A scaler whose keeper listens to a scale set; ``service`` is GitHub."""

    service: ScaleSetService

    @contextmanager
    def listening(self, seconds: float = 300.0) -> Iterator[listener.Listener]:
        """Let a listener run until what is below is done."""
        one = listener.Listener(self.environment)
        thread = threading.Thread(target=one.run, args=[seconds], daemon=True)
        thread.start()
        try:
            yield one
        finally:
            one._end = 0.0
            one._wake.set()
            thread.join(60)
            assert not thread.is_alive()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "it does not come true"
        time.sleep(0.02)


@pytest.fixture
def listened(scaler: Scaler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listened]:  # noqa: F811 - the fixture
    monkeypatch.setattr(listener, "_SPACING", 0.5)
    monkeypatch.setattr(listener, "_CALL_SECONDS", 0.5)
    monkeypatch.setattr(listener, "_MINUTE", 2.0)
    with served() as service:
        environment = {
            **scaler.environment,
            "GITHUB_API": service.address,
            "GITHUB_URL": "https://github.com/acme",
        }
        one = Listened(scaler.moto, service, environment)
        one.service = service
        yield one


def test_assigned_job_gets_machine_that_ends_after_it(listened: Listened) -> None:
    service = listened.service
    with listened.listening():
        until(lambda: service.capacities)
        service.offer(11)
        until(lambda: listened.desired()["spot"] == 1)
        until(listened.configs)
        ((machine, config),) = listened.configs().items()
        assert json.loads(base64.b64decode(config)) == {
            "set": True, "name": f"{NAME}-{machine}", "workFolder": "_work",
        }  # fmt: skip
        service.start(11, f"{NAME}-{machine}")
        until(lambda: service.messages == {})
        assert listened.instances() == [machine]
        service.complete(11)
        until(lambda: listened.instances() == [])
        until(lambda: listened.configs() == {})
        assert listened.desired() == {"spot": 0, "on-demand": 0}
    assert (service.acquired, set(service.capacities), service.sessions) == ([11], {4}, {})


def test_95_of_100_messages_reach_aws_in_two_seconds(listened: Listened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are slow here, and do not keep a message waiting: GitHub takes three seconds to list the runners."""
    service, scaling = listened.service, aws.client("autoscaling")
    service.slow_list = 3.0
    waits = []

    def resize(*, DesiredCapacity: int, **_: object) -> None:  # noqa: N803 - as boto3 has it
        waits.append(time.monotonic() - service.sent_at)
        groups[0]["DesiredCapacity"] = DesiredCapacity

    groups = [listened.group(f"{NAME}-{kind}") for kind in ("spot", "on-demand")]
    monkeypatch.setattr(scaling, "set_desired_capacity", resize)
    monkeypatch.setattr(
        scaling,
        "describe_auto_scaling_groups",
        lambda **_: {"AutoScalingGroups": [{**each, "MaxSize": 500} for each in groups]},
    )
    listened.environment["RULES"] = json.dumps({**json.loads(listened.environment["RULES"]), "most": 500})
    with listened.listening():
        until(lambda: listened.metric() >= 0)
        for number in range(1, 101):
            service.assign(number)
            until(lambda: service.messages == {})
        assert groups[0]["DesiredCapacity"] == 100
    assert sorted(waits)[len(waits) * 95 // 100] < 2, waits


@pytest.mark.parametrize(("repositories", "most"), [(1, 0.4), (2000, 0.95)])
def test_row_of_a_listener_with_3000_machines_fits(scaler: Scaler, repositories: int, most: float) -> None:  # noqa: F811
    """With GitHub's longest names of runners, owners and repositories, none of which looks like another.

    DynamoDB counts the names and the values of an item, at most 400 KB ("Item sizes and formats"). moto refuses more.
    """
    draw = random.Random(3000)

    def name(length: int) -> str:
        return "".join(draw.choices(string.ascii_letters + string.digits + "-._", k=length))

    def runner() -> str:
        return f"{prefix}i-0{draw.getrandbits(64):016x}"

    def request() -> int:
        return draw.randrange(10**9, 10**10)

    prefix = name(64 - 19)
    where = [f"{name(39)}/{name(100)}" for _ in range(repositories)]
    waiting = [
        Job(-request(), where[n % repositories], 1.8e9 + draw.random(), 1.8e9 + draw.random()) for n in range(1000)
    ]
    known = AssignedJobs(
        session=name(36),
        assigned=4000,
        running=3000,
        waiting={-job.id: job for job in waiting},
        busy={runner(): request() for _ in range(3000)},
        ended=dict.fromkeys(each for _ in range(3000) for each in (str(request()), runner())),
        failed={runner(): (where[(1000 + n) % repositories], request()) for n in range(1000)},
        taken=dict.fromkeys(draw.getrandbits(64) for _ in range(500)),
    )
    table, jobs = scaler.api("dynamodb"), Jobs(scaler.api("dynamodb"), f"{NAME}-jobs")
    jobs.note_listener("keeper 1", known.text(), first=True)
    assert AssignedJobs.of(jobs.rows().listener) == known
    row = table.get_item(TableName=f"{NAME}-jobs", Key={"id": {"S": LISTENER}})["Item"]
    size = sum(len(each) + len(value.get("B", value.get("S", 21 * " "))) for each, value in row.items())
    assert size < most * 400 * 1024, size
    with pytest.raises(ClientError, match="Item size"):
        table.put_item(TableName=f"{NAME}-jobs", Item={**row, "known": {"S": known.text()}})


def test_lease_of_a_table_is_one_listeners(scaler: Scaler) -> None:  # noqa: F811
    jobs = Jobs(scaler.api("dynamodb"), f"{NAME}-jobs")
    assert jobs.lead("keeper 1", "") == ""
    jobs.note_listener("keeper 1", "all that it knows", first=True)
    note = jobs.lead("keeper 11", "")
    assert note.startswith("keeper 1 ")
    assert jobs.lead("keeper 1", "") == ""
    jobs.leave("keeper 11")
    assert jobs.lead("keeper 11", note).startswith("keeper 1 ")  # it has noted again
    rows = jobs.rows()
    assert (rows.listener, rows.unreadable) == ("all that it knows", 0)
    jobs.leave("keeper 1")
    assert jobs.lead("keeper 2", "") == ""
    silent = jobs.lead("keeper 3", "")
    assert jobs.lead("keeper 3", silent) == ""


def test_listener_that_began_first_keeps_nothing_any_more(scaler: Scaler) -> None:  # noqa: F811
    """It was silent, and may be in the middle of a message all the same."""
    jobs = Jobs(scaler.api("dynamodb"), f"{NAME}-jobs")
    for text in ("old", "older"):
        jobs.note_listener("keeper 1", text, first=text == "old")
        assert jobs.rows().listener == text
    jobs.note_listener("keeper 2", "new", first=True)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        jobs.note_listener("keeper 1", "old", first=False)
    assert jobs.rows().listener == "new"


def test_messages_twice_ask_for_each_machine_once(listened: Listened) -> None:
    service = listened.service
    service.twice = True
    with listened.listening():
        service.assign(1, 2)
        until(lambda: listened.desired()["spot"] == 2)
        until(lambda: service.messages == {})
        assert sorted(service.sent) == sorted(2 * [*dict.fromkeys(service.sent)])
        until(lambda: len(listened.configs()) == 2)
    assert listened.desired() == {"spot": 2, "on-demand": 0}


def test_message_that_github_does_not_delete_is_deleted_later(listened: Listened) -> None:
    """Else it would come again in the next session, with numbers of before."""
    service = listened.service
    with listened.listening():
        until(lambda: service.capacities)
        service.refused = {f"/queue/{service.opened[0]}/{service.number() + 1}": [503]}
        service.assign(1)
        until(lambda: service.messages == {})
    assert (len(service.opened), service.refused.popitem()[1]) == (1, [])


def test_second_listener_waits_and_says_so(listened: Listened, capsys: pytest.CaptureFixture[str]) -> None:
    """Until then, the set keeps the labels of the first, which may be another stack's."""
    service = listened.service
    service.conflict = True
    service.sets[7] = {"id": 7, "name": NAME, "labels": [{"name": "theirs"}]}
    with listened.listening():
        until(lambda: "another listener has the session" in capsys.readouterr().out)
        service.assign(1)
        assert listened.desired() == {"spot": 0, "on-demand": 0}
        assert service.sets[7]["labels"] == [{"name": "theirs"}]
        service.conflict = False
        until(lambda: listened.desired()["spot"] == 1)
        assert [each["name"] for each in service.sets[7]["labels"]] == ["gpu"]


@pytest.mark.parametrize("fault", ["ended", "revoked", "down", "expired", "refused", "slow"])
def test_listener_goes_on_after_each_fault(listened: Listened, fault: str) -> None:
    service = listened.service
    with listened.listening():
        until(lambda: service.capacities)
        service.assign(1)
        until(lambda: listened.desired()["spot"] == 1)
        if fault == "ended":
            service.sessions.clear()
        elif fault == "expired":
            service.sessions = dict.fromkeys(service.sessions, "another token")
            service.admins.clear()
        elif fault == "refused":
            service.refused = {"/acquirejobs": [500, 404], "/sessions": [502], f"/queue/{service.opened[0]}": [500]}
        elif fault == "slow":
            service.slow = 2.0
        else:
            setattr(service, fault, True)
            service.sessions.clear()
            time.sleep(1.5)
            setattr(service, fault, False)
        service.offer(2)
        until(lambda: listened.desired()["spot"] == 2)
    assert service.acquired in ([2], [])


def test_next_listener_ends_the_session_of_a_killed_one(listened: Listened) -> None:
    service = listened.service
    killed = listener.Listener(listened.environment)
    killed._end = time.time() + 60
    killed._begin()
    assert list(service.sessions) == service.opened
    service.assign(1)
    with listened.listening():
        until(lambda: listened.desired()["spot"] == 1)
        assert len(service.opened) == 2
    assert service.sessions == {}


def test_job_that_lost_its_machine_is_run_again(listened: Listened) -> None:
    service = listened.service
    with listened.listening():
        service.assign(1)
        until(lambda: len(listened.configs()) == 1)
        (machine,) = listened.configs()
        service.start(1, f"{NAME}-{machine}")
        until(lambda: service.messages == {})
        service.runs[7001] = [
            *({"id": 1000 + number, "runner_name": "another", "run_attempt": 1} for number in range(100)),
            {"id": 91, "runner_name": f"{NAME}-{machine}", "run_attempt": 1},
        ]
        listened.api("ec2").terminate_instances(InstanceIds=[machine])
        del service.runners[service.named(f"{NAME}-{machine}")["id"]]
        service.complete(1, "Failed")
        until(lambda: service.again == [91])
    assert service.again == [91]


def test_jobs_noted_by_the_webhook_get_their_own_runners(listened: Listened) -> None:
    """A stack that moves over: the webhook noted two jobs before the set was known, and notes that of the set, too."""
    service = listened.service
    listened.environment["WEBHOOK"] = "too"
    assert [listened.job(number, ago=60) for number in (1, 2)] == [202, 202]
    with listened.listening():
        service.assign(11)
        assert listened.job(3) == 202
        until(lambda: len(listened.configs()) == 3)
        kinds = [json.loads(base64.b64decode(config)) for config in listened.configs().values()]
        assert sorted("set" in config for config in kinds) == [False, False, True]
        assert {tuple(config["labels"]) for config in kinds if "labels" in config} == {
            ("self-hosted", "linux", "x64", "gpu")
        }
        listened.job(1, "in_progress")
        listened.job(2, "in_progress")
    assert listened.desired() == {"spot": 3, "on-demand": 0}


def test_refused_set_costs_no_job_of_the_webhook(listened: Listened) -> None:
    service = listened.service
    service.refused = {"/actions/runner-registration": [403] * 1000}
    listened.environment["WEBHOOK"] = "too"
    assert listened.job(1) == 202
    service.jobs = {1: "queued"}
    with listened.listening():
        until(listened.configs)
        ((machine, config),) = listened.configs().items()
        assert "set" not in json.loads(base64.b64decode(config))
    assert listened.instances() == [machine]


def test_60_jobs_at_once_get_their_runners(listened: Listened) -> None:
    rules = json.loads(listened.environment["RULES"])
    listened.environment["RULES"] = json.dumps({**rules, "most": 60})
    for group in ("spot", "on-demand"):
        listened.api("autoscaling").update_auto_scaling_group(AutoScalingGroupName=f"{NAME}-{group}", MaxSize=60)
    aws.client.cache_clear()
    with listened.listening():
        listened.service.assign(*range(1, 61))
        until(lambda: listened.desired()["spot"] == 60)
        until(lambda: len(listened.service.runners) == 60)


def test_each_of_two_sets_starts_machines_of_its_own(listened: Listened) -> None:
    """Both are served by one function: a job of one starts no machine of the other, and each keeps its ceiling."""
    moto, first = listened.moto, listened.service
    scaling = client("autoscaling", moto)
    client("dynamodb", moto).create_table(
        TableName=f"{NAME}.big-jobs",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    groups = {kind: f"{NAME}.big-{kind}" for kind in ("spot", "on-demand")}
    for name in groups.values():
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=2,
            AvailabilityZones=[f"{REGION}a"],
            NewInstancesProtectedFromScaleIn=True,
            LaunchTemplate={"LaunchTemplateName": NAME, "Version": "$Latest"},
        )
    rules = json.loads(listened.environment["RULES"])
    with served() as second:
        second.runners = first.runners  # one organization
        own = {
            "NAME": f"{NAME}.big", "SCALE_SET": "big", "JOBS": f"{NAME}.big-jobs", "GROUPS": json.dumps(groups), "OWN_LABELS": "big",
            "RULES": json.dumps({**rules, "most": 2}), "GITHUB_API": second.address,
        }  # fmt: skip
        ends = 12.0
        both = [listened.environment, {**listened.environment, **own}]
        thread = threading.Thread(target=listener.listen, args=[both, ends], daemon=True)
        thread.start()
        until(lambda: first.capacities and second.capacities)
        second.assign(1, 2, 3)
        until(lambda: scaling_of(scaling, groups["spot"]) == 2)
        assert listened.desired() == {"spot": 0, "on-demand": 0}
        first.assign(4)
        until(lambda: listened.desired()["spot"] == 1)
        until(lambda: len(first.runners) == 3)
        thread.join(60)
        assert [scaling_of(scaling, name) for name in groups.values()] == [2, 0]
    names = sorted(runner["name"].partition("-i-")[0] for runner in first.runners.values())
    assert names == [NAME, f"{NAME}.big", f"{NAME}.big"]
    assert (set(first.capacities), set(second.capacities)) == ({4}, {2})
    assert [[one["name"] for one in each.sets.values()] for each in (first, second)] == [[NAME], ["big"]]


def scaling_of(scaling: Any, group: str) -> int:
    answer = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    return int(answer["AutoScalingGroups"][0]["DesiredCapacity"])
