"""Runners on EC2: what is asked for, what AWS must have for it, and what their functions decide."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import moto
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.runners.ec2.user_data import user_data
from containers.errors import SlipwayError
from scaler.decide import ON_DEMAND, RETRY_SHARE, SPOT, Decision, Machine, Requested, Rules, Runner, decide
from scaler.jobs import Job, Shortage
from stacks import flavors, plan
from stacks.checks import ec2_site
from stacks.config import ec2
from stacks.versions.checksums import runner_checksum, runner_names
from tests.helpers import sample_repository as checkout
from tests.helpers.every import every

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:slipway/github-AbCdEf"
HOOK = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:slipway/webhook-AbCdEf"
RUNNERS: dict[str, Any] = {
    "kind": "ec2",
    "region": "eu-west-1",
    "account": "123456789012",
    "github": {"url": "https://github.com/acme", "secret": SECRET},
    "labels": ["gpu"],
    "instanceTypes": ["g5.2xlarge"],
}


def load(**values: Any) -> ec2.Ec2RunnersConfig:
    config = flavors.load({"flavor": "runners", "runners": {**RUNNERS, **values}}, "stack x").runners
    assert isinstance(config, ec2.Ec2RunnersConfig)
    return config


@every(
    "values, message",
    [
        ({"spots": True}, "slipway:runners: unknown key 'spots' (did you mean 'spot'?)"),
        ({"region": "Ireland"}, "slipway:runners.region: 'Ireland': expected a region such as eu-west-1"),
        ({"instanceTypes": []}, "slipway:runners.instanceTypes: '[]': expected at least one, each only once"),
        (
            {"instanceTypes": ["p5"]},
            "slipway:runners.instanceTypes.0: 'p5': expected an instance type such as g5.xlarge",
        ),
        (
            {"instanceTypes": ["g6.2xlrge"]},
            "slipway:runners.instanceTypes.0: 'g6.2xlrge': expected an instance type such as",
        ),
        ({"labels": ["gpu", "gpu"]}, "slipway:runners.labels: '[gpu, gpu]': expected at least one, each only once"),
        ({"labels": ["GPU", "gpu"]}, "slipway:runners.labels: '[GPU, gpu]': expected at least one, each only once"),
        *(
            (
                {"labels": ["gpu", label]},
                f"slipway:runners.labels.1: '{label}': this is GitHub's own label of all its runners; choose one",
            )
            for label in ("self-hosted", "linux", "Linux", "x64", "ARM64")
        ),
        ({"labels": ["a,b"]}, "slipway:runners.labels.0: 'a,b': expected a runner's label"),
        ({"minRunners": 5, "maxRunners": 2}, "slipway:runners: minRunners 5 is more than maxRunners 2"),
        (
            {"spot": False, "spotPatience": 9},
            "slipway:runners: spotPatience has no effect, because spot is false: leave it out",
        ),
        (
            {"maxLifetime": 9},
            "slipway:runners: maxLifetime has no effect, because no machine waits for jobs with minRunners 0",
        ),
        ({"root": 20}, "slipway:runners.root: '20': input should be greater than or equal to 75"),
        ({"runner": "2.0.0"}, "slipway:runners: runner '2.0.0' is not in stacks/versions/runner.toml"),
        ({"efa": -1}, "slipway:runners.efa: '-1': expected a number of interfaces, or all"),
        ({"efa": "some"}, "slipway:runners.efa: 'some': expected a number of interfaces, or all"),
        ({"efa": True}, "slipway:runners.efa: 'true': expected a number of interfaces, or all"),
        (
            {"github": {**RUNNERS["github"], "url": "https://github.com/enterprises/acme"}},
            "slipway:runners.github.url: 'https://github.com/enterprises/acme': runners on EC2 serve an organization or a repository",
        ),
        (
            {"github": {**RUNNERS["github"], "url": "github.com/acme"}},
            "slipway:runners.github.url: 'github.com/acme': expected https://github.com/<organization>, or .../<repo",
        ),
        ({"efa": "all"}, "slipway:runners: efa needs exactly one subnet"),
        (
            {"region": "us-east-1"},
            "slipway:runners: github.secret is in region eu-west-1; the runners are in us-east-1",
        ),
        (
            {"github": {**RUNNERS["github"], "secret": SECRET.replace("123456789012", "999999999999")}},
            "slipway:runners: github.secret is in account 999999999999; the runners are in 123456789012",
        ),
        (
            {"github": {**RUNNERS["github"], "webhookSecret": HOOK.replace("123456789012", "999999999999")}},
            "slipway:runners: github.webhookSecret is in account 999999999999; the runners are in 123456789012",
        ),
        (
            {"github": {**RUNNERS["github"], "webhookSecret": SECRET}},
            "slipway:runners: github.webhookSecret is the same as github.secret; create a secret of its own",
        ),
        (
            {"listener": False},
            "slipway:runners: listener is false: nothing else tells of jobs without github.webhookSecret: leave it out",
        ),
        (
            {"alarm": {"topic": "arn:aws:sns:us-east-1:123456789012:alarms"}},
            "slipway:runners: alarm.topic is in region us-east-1; the runners are in eu-west-1",
        ),
        ({"account": "1234"}, "slipway:runners.account: '1234'"),
        (
            {"github": {**RUNNERS["github"], "secret": "ghp_abc"}},
            "slipway:runners.github.secret: expected the full ARN of a secret in Secrets Manager",
        ),
        ({"kind": "ecs"}, "slipway:runners.kind: 'ecs': expected one of kubernetes, ec2"),
    ],
)
def test_ec2_config_invalid_is_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        load(**values)
    (line,) = str(caught.value).splitlines()
    assert message in line, line
    assert "ghp_abc" not in line


def test_ec2_github_url_gives_owner_and_repository() -> None:
    github = load(github={**RUNNERS["github"], "url": "https://github.com/acme/images"}).github
    assert (github.host, github.owner, github.repository) == ("github.com", "acme", "images")
    assert (
        load(github={**RUNNERS["github"], "url": "https://ghe.example/acme/"}).github.url == "https://ghe.example/acme"
    )
    assert load().github.repository is None
    assert load().runner_labels("linux/arm64") == ("self-hosted", "linux", "arm64", "gpu")


OLD = {**RUNNERS["github"], "webhookSecret": HOOK}


@every(
    "values, listens, labels, said",
    [
        ({}, True, ("gpu",), ""),
        ({"listener": True}, True, ("gpu",), ""),
        ({"github": OLD}, False, ("self-hosted", "linux", "x64", "gpu"), "alone, set listener: true, and"),
        ({"github": OLD, "listener": False}, False, ("self-hosted", "linux", "x64", "gpu"), "alone, set listener: true, and"),
        ({"github": OLD, "listener": True}, True, ("self-hosted", "linux", "x64", "gpu"), "is needed: an hour after"),
    ],
)  # fmt: skip
def test_stack_without_a_webhook_secret_listens(
    values: dict[str, Any], listens: bool, labels: tuple[str, ...], said: str
) -> None:
    """What serves the jobs of an old stack stays as it is, until its file says otherwise; it is told of what is next."""
    config = load(**values)
    assert (config.listens, config.served_labels("linux/amd64")) == (listens, labels)
    stack = flavors.load({"flavor": "runners", "runners": {**RUNNERS, **values}}, "stack x")
    lines = [line for line in stack.warnings if "webhookSecret" in line]
    assert [said in line for line in lines] == ([True] if said else [])


@every(
    "host, api",
    [
        ("github.com", "https://api.github.com"),
        ("GitHub.com", "https://api.github.com"),
        ("acme.ghe.com", "https://api.acme.ghe.com"),
        ("ghe.example", "https://ghe.example/api/v3"),
        ("notghe.com", "https://notghe.com/api/v3"),
    ],
)
def test_ec2_github_host_gives_its_api(host: str, api: str) -> None:
    assert load(github={**RUNNERS["github"], "url": f"https://{host}/acme"}).github.api == api


def test_ec2_alarm_topic_of_another_account_is_taken() -> None:
    topic = "arn:aws:sns:eu-west-1:999999999999:alarms"
    assert load(alarm={"topic": topic}).alarm.topic == topic


@every("stack", ["gpu.eu", "g" * 37])
def test_ec2_stack_with_a_name_aws_refuses_is_refused(stack: str, tmp_path: Path) -> None:
    repository = checkout.make(tmp_path)
    registry = "{kind: ecr, repository: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml, create: false}"
    text = f"config:\n  slipway:flavor: runners\n  slipway:registry: {registry}\n"
    for name in (stack, "g" * 36):
        repository.write(f"stacks/Pulumi.{name}.yaml", f"{text}  slipway:runners: {json.dumps(RUNNERS)}\n")
    with pytest.raises(SlipwayError) as caught:
        plan.make(stack, root=tmp_path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"stack {stack}: slipway:runners: ")
    assert "at most 36 letters, digits, - and _; rename the stack's file" in line
    assert plan.make("g" * 36, root=tmp_path).images == ()


def test_runner_version_has_checksums_of_both_architectures() -> None:
    checksums = [runner_checksum(version, platform) for version in runner_names() for platform in ec2.ARCHITECTURES]
    assert len(set(checksums)) == len(checksums)
    assert all(len(bytes.fromhex(checksum)) == 32 for checksum in checksums)


def types() -> Iterator[tuple[dict[str, Any], ec2_site.InstanceType]]:
    """Yield every type with EFA as EC2 describes it, by the answers of EC2 that moto carries."""
    table = Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz"
    for name, described in json.loads(gzip.decompress(table.read_bytes())).items():
        network = described["NetworkInfo"]
        if network.get("EfaSupported"):
            efa, cards = network["EfaInfo"]["MaximumEfaInterfaces"], network["MaximumNetworkCards"]
            yield (
                described,
                ec2_site.InstanceType(name, ("x86_64",), 0, efa, cards, 0, cluster=True, spot=True, zones=()),
            )


def test_efa_interfaces_of_each_type_are_on_its_cards() -> None:
    cases = 0
    for described, machine in types():
        cards = described["NetworkInfo"]["NetworkCards"]
        for requested in (*range(1, machine.efa + 1), "all"):
            interfaces = machine.interfaces(requested)
            assert sum(kind.startswith("efa") for _, _, kind in interfaces) == (
                machine.efa if requested == "all" else requested
            )
            assert len({card for card, _, _ in interfaces}) == len(interfaces) <= len(cards)
            assert interfaces[0][:2] == (0, 0)
            assert {device for _, device, _ in interfaces[1:]} <= {1}
            for card, _, kind in interfaces:
                assert kind in cards[card]["InterfaceTypes"], (machine.name, card, kind)
            cases += 1
    assert cases > 100


def refused(*there: ec2_site.InstanceType, vpc: str = "vpc-1", **values: Any) -> str:
    """Return what is said of a configuration in two zones, where images within budgets take 80 GiB."""
    config = load(instanceTypes=[machine.name for machine in there], **values)
    networks = [
        ec2_site.Network(f"subnet-{zone}", "vpc-1", f"eu-west-1{zone}", "10.0.0.0/24", public=False) for zone in "ab"
    ]
    site = ec2_site.Site(there, networks, vpc, "ami-1", "x86_64", 60, "/dev/sda1", {}, {})
    try:
        ec2_site.check(config, site, "linux/amd64", {"torch": 20 * 1024**3})
    except SlipwayError as error:
        return str(error)
    return ""


def of(name: str, *, disks: int = 1, zones: str = "a") -> ec2_site.InstanceType:
    places = tuple(f"eu-west-1{zone}" for zone in zones)
    return ec2_site.InstanceType(name, ("x86_64",), 1, 0, 1, disks, cluster=True, spot=True, zones=places)


@every("values, minutes", [({}, 15), ({"minRunners": 1, "maxLifetime": 3}, 3 * 24 * 60)])
def test_runner_of_a_minimum_waits_for_its_lifetime(values: dict[str, int], minutes: int) -> None:
    config = load(idle=15, **values)
    text = user_data(config, "linux/amd64", name="slipway-t", gpus=0, efa=0)
    assert f" IDLE={minutes}\n" in text


@every("platform, name", [("linux/amd64", "x64"), ("linux/arm64", "arm64")])
def test_runner_is_that_of_its_processor(platform: str, name: str) -> None:
    text = user_data(load(), platform, name="slipway-t", gpus=0, efa=0)
    version = load().runner
    assert f"/v{version}/actions-runner-linux-{name}-{version}.tar.gz" in text
    assert runner_checksum(version, platform) in text


def test_job_may_use_sudo_without_a_password_as_at_github() -> None:
    """sudo reads no file that others than root may write, nor one with a dot in its name (sudoers(5))."""
    document = yaml.safe_load(user_data(load(), "linux/amd64", name="slipway-t", gpus=0, efa=0))
    file = next(each for each in document["write_files"] if each["path"].startswith("/etc/sudoers.d/"))
    assert (file["path"], file["permissions"]) == ("/etc/sudoers.d/slipway-runner", "0440")
    assert file["content"] == "runner ALL=(ALL) NOPASSWD: ALL\n"


def test_root_volume_without_disks_must_hold_the_images() -> None:
    assert refused(of("g5.2xlarge"), of("p3.2xlarge", disks=0), root=139) == (
        "slipway:runners.root: 139 GiB is too small: the machine image takes 60 GiB, and torch within budgets 80; "
        "give at least 140"
    )
    assert refused(of("g5.2xlarge"), of("p3.2xlarge", disks=0), root=140) == ""
    assert refused(of("g5.2xlarge"), root=75) == ""


def test_subnets_are_all_in_one_vpc() -> None:
    assert refused(of("g5.2xlarge"), vpc="vpc-2").splitlines() == [
        f"slipway:runners.subnets: subnet-{zone} is in vpc-1; the others, or vpc, are in vpc-2" for zone in "ab"
    ]


def test_gpus_by_default_are_the_fewest_of_any_type() -> None:
    types = [replace(of("p4d.24xlarge"), gpus=8), replace(of("g5.12xlarge"), gpus=4)]
    site = ec2_site.Site(types, [], "vpc-1", "ami-1", "x86_64", 60, "/dev/sda1", {}, {})
    assert [site.gpus(gpus) for gpus in (None, 0, 2)] == [4, 0, 2]


def test_instance_type_with_fewer_gpus_is_refused() -> None:
    assert refused(of("g5.2xlarge"), minGpus=1) == ""
    assert refused(of("g5.2xlarge"), minGpus=2) == (
        "slipway:runners.instanceTypes: g5.2xlarge has 1 NVIDIA GPUs; minGpus asks for 2"
    )


@every(
    "efa, interfaces, message",
    [
        ("all", 0, "has 0 EFA interfaces; efa asks for all"),
        ("all", 1, ""),
        (1, 1, ""),
        (2, 1, "has 1 EFA interfaces; efa asks for 2"),
    ],
)
def test_instance_type_with_fewer_efa_is_refused(efa: int | str, interfaces: int, message: str) -> None:
    line = refused(replace(of("g5.8xlarge"), efa=interfaces), efa=efa, subnets=["subnet-0123456789abcdef0"])
    assert line == (message and f"slipway:runners.instanceTypes: g5.8xlarge {message}")


def test_instance_type_outside_the_subnets_zones_is_refused() -> None:
    assert refused(of("g5.2xlarge"), of("p5.48xlarge", zones="bc")) == ""
    assert refused(of("g5.2xlarge"), of("p5.48xlarge", zones="c")) == (
        "slipway:runners.instanceTypes: p5.48xlarge is not offered in eu-west-1a, eu-west-1b, where the subnets are; "
        "it is offered in eu-west-1c"
    )
    assert refused(of("p6.48xlarge", zones="")).endswith("where the subnets are; nor elsewhere in eu-west-1")


RULES = Rules(groups=(SPOT, ON_DEMAND), least=0, most=20, patience=300, idle=600, boot=1200, lifetime=86400)


def machines(*started: float, group: str = SPOT) -> list[Machine]:
    return [Machine(f"i-{number}", group, at) for number, at in enumerate(started)]


def test_decide_with_busy_machines_keeps_the_minimum_idle() -> None:
    """As on Kubernetes: ``minRunners`` are those that wait for jobs, besides those that have one."""
    there = machines(0, 0)
    busy = [Runner(number, machine.id, online=True, busy=True) for number, machine in enumerate(there)]
    rules = replace(RULES, least=2, most=3)
    assert sum(decide(100, rules, [], there, busy, {"i-0", "i-1"}).desired.values()) == 3
    rules = replace(rules, most=9)
    assert sum(decide(100, rules, [Job(1, "a/b", 0)], there, busy, {"i-0", "i-1"}).desired.values()) == 5
    assert sum(decide(100, rules, None, there, busy, {"i-0", "i-1"}).desired.values()) == 4


def test_decide_without_jobs_keeps_the_minimum() -> None:
    rules = replace(RULES, least=2)
    assert decide(0, rules, [], [], [], set()).desired == {SPOT: 2, ON_DEMAND: 0}
    there = machines(0, 0, 0)
    idle = [Runner(number, machine.id, online=True, busy=False) for number, machine in enumerate(there)]
    done = decide(10_000, rules, [], there, idle, {machine.id for machine in there})
    assert (len(done.end), done.desired) == (1, {SPOT: 2, ON_DEMAND: 0})


def test_minimum_asks_for_each_capacity_in_turn() -> None:
    """It begins anew with each machine of the first kind, and after ten minutes without a shortage."""
    rules, asked, shortage = replace(RULES, least=2, most=2), [], None
    for now in range(10_000, 11_200, 60):
        done = decide(now, rules, [], [], [], set(), shortage)
        shortage = shortage if now == 10_240 else done.shortage  # a round that could note nothing
        asked.append(done.desired[ON_DEMAND])
    assert asked == [0] * 5 + [2] * 5 + [0] * 5 + [2] * 5
    for there, expected in ((machines(11_150), 0), (machines(11_150, group=ON_DEMAND), 2)):
        assert decide(11_160, rules, [], there, [], set(), shortage).desired[ON_DEMAND] == expected
    undescribed = [replace(machines(11_160)[0], running=False)]  # EC2 did not say since when it is there
    assert decide(11_160, rules, [], undescribed, [], set(), shortage).desired[ON_DEMAND] == 1
    full = decide(11_200, rules, [], machines(11_100, 11_100), [], set(), shortage)
    assert (full.desired, full.shortage and full.shortage.seen) == ({SPOT: 2, ON_DEMAND: 0}, 0)
    assert decide(12_000, rules, [], [], [], set(), shortage).desired == {SPOT: 2, ON_DEMAND: 0}


def test_minimum_that_came_from_spot_is_asked_of_it_again() -> None:
    """Jobs that come every six to ten minutes: their warm machines were on-demand ones in half of the cases, or more."""
    rules, there = replace(RULES, least=1), machines(10_008)
    busy = [Runner(1, "i-0", online=True, busy=True)]
    first = decide(10_000, rules, [], [], [], set()).shortage
    lacking = decide(10_020, rules, [], [], [], set(), first).shortage  # Auto Scaling does not list it yet
    for shortage in (first, lacking):
        done = decide(10_480, rules, [], there, busy, {"i-0": 10_060}, shortage)
        assert done.desired == {SPOT: 2, ON_DEMAND: 0}


def test_wait_for_a_place_is_no_lack_of_spot_capacity() -> None:
    """With more jobs than ``maxRunners``, nearly every machine was an on-demand one."""
    rules, there, waiting = replace(RULES, most=2), machines(0, 0), [Job(number, "a/b", 100) for number in (1, 2)]
    busy = [Runner(number, machine.id, online=True, busy=True) for number, machine in enumerate(there)]
    prepared = {each.id: 60.0 for each in there}
    shortage = decide(100, rules, waiting, [], [], {}).shortage  # when the two others came
    shortage = decide(3_000, rules, waiting, there, busy, prepared, shortage).shortage
    asked = []
    for now in (3_060, 3_359, 3_360):
        done = decide(now, rules, waiting, there[:1], busy[:1], {"i-0": 60.0}, shortage)
        shortage = done.shortage
        asked.append(done.desired[ON_DEMAND])
    assert asked == [0, 0, 1]
    assert decide(3_000, rules, waiting[:1], there[:1], busy[:1], {"i-0": 60.0}).desired == {SPOT: 2, ON_DEMAND: 0}


def test_places_that_become_free_each_minute_are_asked_of_spot() -> None:
    """In each round one is free, and its machine comes with the next. Without spot capacity, on-demand ones come."""
    rules, waiting = replace(RULES, most=4), [Job(number, "a/b", 0) for number in range(9)]
    for dry, expected in ((float("inf"), 0), (3_000.0, 3_300)):
        shortage, on_demand = None, 0
        for now in range(900, 3_600, 60):
            there = machines(*(now - 40 - 300 * n for n in range(3) if now - 40 - 300 * n < dry))
            busy = [Runner(number, each.id, online=True, busy=True) for number, each in enumerate(there)]
            done = decide(now, rules, waiting, there, busy, {each.id: 0.0 for each in there}, shortage)
            shortage, on_demand = done.shortage, on_demand or (now if done.desired[ON_DEMAND] else 0)
        assert on_demand == expected


@every(
    "most, asked, on_demand",
    [(1, Requested(1), 0), (1, Requested(0, late=1), 0), (1, Requested(0), 1), (2, Requested(1), 1)],
)
def test_machine_on_its_way_counts_until_it_is_not_asked_for(most: int, asked: Requested, on_demand: int) -> None:
    """Auto Scaling starts it and does not list it yet, while it is the turn of on-demand capacity."""
    missing = Shortage(10_000, 10_350)
    job, rules = Job(1, "a/b", 10_000), replace(RULES, most=most)
    done = decide(10_360, rules, [job], [], [], {}, missing, {SPOT: asked, ON_DEMAND: Requested(0)})
    assert done.desired == {SPOT: 0, ON_DEMAND: on_demand}


@every("most, spot", [(1, 0), (2, 1)])
def test_machine_that_may_stay_is_replaced_once_it_has_ended(most: int, spot: int) -> None:
    """Its runner comes online late: with a job, GitHub keeps it."""
    there, listed = machines(0), [Runner(0, "i-0", online=False, busy=False)]
    rules, asked = replace(RULES, most=most), {SPOT: Requested(1), ON_DEMAND: Requested(0)}
    done = decide(5000, rules, [Job(1, "a/b", 4990)], there, listed, {"i-0": 60}, None, asked)
    assert (done.end, done.desired) == ({"i-0": "no runner came online"}, {SPOT: spot, ON_DEMAND: 0})


def test_machine_asked_for_again_leaves_no_room_for_another() -> None:
    rules, waiting = replace(RULES, most=2), [Job(number, "a/b", 10_000) for number in (1, 2)]
    asked = {SPOT: Requested(0), ON_DEMAND: Requested(0, late=1)}
    for now, desired in ((10_060, {SPOT: 1, ON_DEMAND: 0}), (10_360, {SPOT: 0, ON_DEMAND: 2})):
        done = decide(now, rules, waiting, [], [], {}, Shortage(10_000, now - 10), asked)
        assert done.desired == desired


def test_machine_of_the_minimum_that_spot_takes_comes_on_demand() -> None:
    rules, there = replace(RULES, least=1), machines(9_000)
    gone = decide(10_000, rules, [], [replace(there[0], gone=True)], [], {"i-0": 9_000})
    assert (gone.desired, gone.lost) == ({SPOT: 0, ON_DEMAND: 1}, {"i-0"})
    desired = [decide(now, rules, [], [], [], {}, gone.shortage).desired[SPOT] for now in (10_060, 10_299, 10_300)]
    assert desired == [0, 0, 1]
    broken = decide(10_300, rules, [], there, [Runner(1, "i-0", online=False, busy=False)], {"i-0": 9_000})
    assert (broken.end, broken.desired) == ({"i-0": "no runner came online"}, {SPOT: 1, ON_DEMAND: 0})
    finished = decide(10_000, rules, [], there, [], {"i-0": 9_000})
    assert (finished.end, finished.desired) == ({"i-0": "job finished"}, {SPOT: 1, ON_DEMAND: 0})


def test_spot_that_takes_one_beside_a_young_one_is_not_asked() -> None:
    """Neither until the machine is there, however late that is, nor for the next one that is taken."""
    rules, there = replace(RULES, least=3), machines(9_000, 9_950, 9_990)
    listed = [Runner(number, each.id, online=True, busy=False) for number, each in enumerate(there)]
    prepared = {each.id: each.started for each in there}
    gone = decide(10_000, rules, [], [replace(there[0], gone=True), *there[1:]], listed, prepared)
    assert gone.desired == {SPOT: 2, ON_DEMAND: 1}
    rest, shortage, asked = there[1:], gone.shortage, []
    for now in range(10_060, 10_360, 60):
        done = decide(now, rules, [], rest, listed[1:], {"i-1": 9_950, "i-2": 9_990}, shortage)
        shortage = done.shortage
        asked.append(done.desired[ON_DEMAND])
    assert asked == [1, 1, 1, 1, 0]  # in turn, from then on
    later = [replace(rest[0], gone=True), rest[1], *machines(10_100, group=ON_DEMAND)]
    again = decide(10_120, rules, [], later, listed[1:], {"i-1": 9_950, "i-2": 9_990}, gone.shortage)
    assert again.desired == {SPOT: 1, ON_DEMAND: 2}
    new = [*machines(10_030), rest[1]]  # spot capacity is there again
    assert decide(10_060, rules, [], new, listed[1:], {}, gone.shortage).desired == {SPOT: 3, ON_DEMAND: 0}


def test_job_that_lost_its_machine_asks_on_demand_first() -> None:
    job = Job(1, "a/b", 0, lost=True)
    assert asked_of_spot(job, 0, 240, 300, 600) == [0, 0, 1, 0]
    spot = replace(RULES, groups=(SPOT,))
    assert decide(0, spot, [job], [], [], set()).desired == {SPOT: 1}


def test_decide_keeps_machines_of_unsure_runners() -> None:
    """They may have a job, and count as having none. One whose machine is no more may be at work, too."""
    there = [*machines(0, 0), Machine("i-2", SPOT, 0, leaving=True, waits=True)]
    runners = [Runner(n, f"i-{n}", online=False, busy=False, unsure=True) for n in range(4)]
    done = decide(1300, replace(RULES, least=2), [], there, runners, {each.machine for each in runners})
    assert (done.end, done.hold, done.release, done.forget) == ({}, ["i-2"], [], [])
    assert done.desired == {SPOT: 2, ON_DEMAND: 0}


def test_decide_without_jobs_keeps_a_booting_machine() -> None:
    assert decide(700, RULES, [], machines(0), [], set()).end == {}
    online = [Runner(0, "i-0", online=True, busy=False)]
    assert decide(700, RULES, [], machines(0), online, {"i-0"}).end == {"i-0": "idle"}


def test_decide_with_old_machines_replaces_only_idle_ones() -> None:
    rules = replace(RULES, least=2)
    there = machines(0, 0, 80_000)
    runners = [Runner(0, "i-0", online=True, busy=False), Runner(1, "i-1", online=True, busy=True)]
    runners.append(Runner(2, "i-2", online=True, busy=False))
    done = decide(90_000, rules, [], there, runners, {"i-0", "i-1", "i-2"})
    assert done.end == {"i-0": "max lifetime reached"}
    assert decide(90_000, replace(rules, least=3), [], there, runners, set()).desired == {SPOT: 4, ON_DEMAND: 0}


def asked_of_spot(job: Job, *times: float) -> list[int]:
    """Return how many machines spot capacity is asked for, seconds after the first round of one in each minute."""
    shortage, asked = None, {}
    for now in range(0, int(times[-1]) + 60, 60):
        done = decide(10_000 + now, RULES, [job], [], [], set(), shortage)
        shortage, asked[now] = done.shortage, done.desired[SPOT]
    return [asked[int(time)] for time in times]


def test_decide_with_a_waiting_job_alternates_capacity() -> None:
    """From when it is asked for: what the job waited before says nothing of spot capacity."""
    asked = asked_of_spot(Job(1, "a/b", -9_000), *range(0, 1500, 60))
    assert asked == [1] * 5 + [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5


def test_decide_with_an_unassigned_job_retries_later() -> None:
    there = machines(0)
    runners = [Runner(0, "i-0", online=True, busy=False)]
    now = RULES.boot + RULES.idle + 1
    jobs = [Job(1, "a/b", 0), Job(2, "a/b", now - 60)]
    done = decide(now, RULES, jobs, there, runners, {"i-0"})
    assert (done.unassigned, done.desired) == ([1], {SPOT: 1, ON_DEMAND: 0})
    unassigned = replace(jobs[0], unassigned_since=now)
    later = now + RETRY_SHARE * now
    assert decide(later - 1, RULES, [unassigned], [], [], set()).desired == {SPOT: 0, ON_DEMAND: 0}
    assert sum(decide(later, RULES, [unassigned], [], [], set()).desired.values()) == 1


def test_job_that_waited_behind_a_full_set_is_not_blamed_at_once() -> None:
    """Its patience counts from when GitHub gave it to the set: a runner that idles speaks against it only then."""
    runners, now = [Runner(0, "i-0", online=True, busy=False)], 10_000
    for waited, unassigned in ((60, []), (RULES.boot + 60, [1])):
        job = Job(1, "a/b", 0, assigned=now - waited)
        assert decide(now, RULES, [job], machines(0), runners, {"i-0"}).unassigned == unassigned


def test_machine_that_gets_no_job_is_not_all_that_there_is() -> None:
    """It is of the minimum, so nothing else would end it. A job gets another one, or its place."""
    runners, now = [Runner(0, "i-0", online=True, busy=False)], RULES.boot + RULES.idle + 1
    left = Job(1, "a/b", 0, unassigned_since=now - RETRY_SHARE * now)
    done = decide(now, replace(RULES, least=1), [left], machines(0), runners, {"i-0": 60})
    assert (done.end, sum(done.desired.values()), done.unassigned) == ({}, 2, [])
    full = decide(now, replace(RULES, least=1, most=1), [Job(1, "a/b", 0)], machines(0), runners, {"i-0": 60})
    assert (full.end, full.unassigned) == ({"i-0": "GitHub gave it no job"}, [1])


def test_decide_idle_machine_speaks_against_one_job() -> None:
    """GitHub may give no job to anyone for a while: that is no reason to give up all of them."""
    runners = [Runner(0, "i-0", online=True, busy=False)]
    jobs = [Job(number, "a/b", number) for number in range(8)]
    done = decide(5000, RULES, jobs, machines(0), runners, {"i-0"})
    assert (done.unassigned, sum(done.desired.values())) == ([0], 7)


def test_decide_without_spot_takes_on_demand_at_once() -> None:
    rules = replace(RULES, groups=(ON_DEMAND,))
    assert decide(0, rules, [Job(1, "a/b", 0)], [], [], set()).desired == {ON_DEMAND: 1}


def test_decide_without_runners_list_starts_but_ends_none() -> None:
    """GitHub is away: a machine that has been up for long has its job, and a young one is for those that wait."""
    there = [
        *machines(0, 4900),
        Machine("i-2", SPOT, 4900, gone=True),
        Machine("i-3", SPOT, 0, leaving=True, waits=True),
    ]
    prepared = {"i-0", "i-1", "i-3"}
    jobs = [Job(number, "a/b", 4990) for number in range(2)]
    done = decide(5000, RULES, jobs, there, None, prepared)
    assert (done.end, done.hold, done.release, done.lost) == ({"i-2": "taken away"}, ["i-3"], [], ())
    assert done.desired == {SPOT: 3, ON_DEMAND: 0}
    assert decide(5000, RULES, jobs, there[:2], None, None).end == {}


@every("described", [True, False])
def test_finished_job_of_a_machine_not_described_may_be_lost(described: bool) -> None:
    """EC2 took the machine, GitHub failed its job, and then EC2 did not answer: the job was not run again."""
    there = [replace(machines(0)[0], running=described)]
    done = decide(5000, RULES, [], there, [], {"i-0": 60})
    assert (done.end, {*done.lost}) == ({"i-0": "job finished"}, set() if described else {"i-0"})


def test_decide_without_jobs_table_and_runner_ends_no_machine() -> None:
    """Nobody can ask GitHub for a runner whose number is not known: the machine may work on a job."""
    there = [*machines(0), Machine("i-1", SPOT, 0, leaving=True, waits=True), Machine("i-2", SPOT, 0, gone=True)]
    done = decide(5000, RULES, None, there, [], None)
    assert (done.end, done.release, done.hold) == ({"i-2": "taken away"}, [], ["i-1"])


def test_decide_without_jobs_table_changes_no_number() -> None:
    online = [Runner(0, "i-0", online=True, busy=False)]
    done = decide(5000, RULES, None, machines(0, 4900), online, {"i-0"})
    assert (done.end, done.desired, done.prepare) == ({}, {SPOT: 2, ON_DEMAND: 0}, ["i-1"])


@given(
    st.lists(st.floats(0, 5000), max_size=30),
    st.lists(
        st.tuples(
            st.sampled_from([SPOT, ON_DEMAND]),
            st.floats(0, 5000),
            st.sampled_from(["", "leaving", "waits"]),
            st.sampled_from(["none", "offline", "idle", "busy"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=20,
    ),
)
def test_decide_ends_no_busy_machine_and_starts_none_in_vain(
    waits: list[float], there: list[tuple[str, float, str, str, bool, bool]]
) -> None:
    machines = [
        Machine(f"i-{n}", group, 5000 - age, bool(way), way == "waits", ended)
        for n, (group, age, way, _, ended, _) in enumerate(there)
    ]
    runners = [
        Runner(n, f"i-{n}", online=state != "offline", busy=state == "busy")
        for n, (_, _, _, state, _, _) in enumerate(there)
        if state != "none"
    ]
    prepared = {f"i-{n}" for n, (_, _, _, _, _, known) in enumerate(there) if known}
    jobs = [Job(n, "a/b", 5000 - wait) for n, wait in enumerate(sorted(waits, reverse=True))]
    done = decide(5000, RULES, jobs, machines, runners, prepared)
    ended = {machine.id for machine in machines if machine.gone}
    busy = {runner.machine for runner in runners if runner.busy} - ended
    assert not busy & (set(done.end) | set(done.release) | set(done.lost))
    assert ended & prepared <= set(done.lost) <= prepared
    leaving = {machine.id for machine in machines if machine.leaving}
    assert set(done.release) | set(done.hold) == {machine.id for machine in machines if machine.waits}
    assert not leaving & (set(done.end) | set(done.prepare))
    remaining = [machine for machine in machines if not machine.leaving and machine.id not in done.end]
    for group in (SPOT, ON_DEMAND):  # never fewer than there are: Auto Scaling would have to choose one to end
        assert done.desired[group] >= sum(machine.group == group for machine in remaining)
    working = sum(machine.id in busy for machine in remaining)
    counted = len(jobs) - len(done.unassigned)
    assert sum(done.desired.values()) == max(len(remaining), min(working + counted, RULES.most))
    assert not set(done.forget) & {runner.id for runner in runners}


@dataclass
class Work:
    """A job of the simulated day: when it is queued, how long it runs, and when it got its runner."""

    id: int
    queued: float
    seconds: float
    began: float | None = None
    ended: float | None = None


class Day:
    """A day of jobs, on machines that take their time to start, with spot capacity that comes and goes.

    GitHub gives a job to any runner that is idle; an ephemeral runner is gone after its job. Every minute the keeper's
    decision is carried out as ``keeper`` does it. Times are in seconds; ``on_demand`` is whether there is any, and
    ``taken`` how likely EC2 takes a machine away in a minute: its job fails, and its runner is listed on, offline.
    """

    BOOT = (90, 420)
    """How long a machine takes until its runner is up, at least and at most."""

    def __init__(self, seed: int, rules: Rules, *, on_demand: bool = True, taken: float = 0) -> None:
        self.on_demand = on_demand
        self.taken = taken
        self.failed: dict[str, Work] = {}
        self.again = 0
        self.random = random.Random(seed)
        self.rules = rules
        self.jobs = self._arrivals()
        self.machines: dict[str, Machine] = {}
        self.up: dict[str, float] = {}
        self.busy: dict[str, Work] = {}
        self.over: set[str] = set()
        self.prepared: set[str] = set()
        self.numbers = count()
        self.paid = 0.0
        self.killed: list[str] = []
        self.shortage: Shortage | None = None
        self.droughts = sorted(self.random.uniform(0, 86400) for _ in range(3))

    def _arrivals(self) -> list[Work]:
        """Working hours with most of the jobs, a quiet night, and two bursts."""
        times: list[float] = []
        at = 0.0
        while (at := at + self.random.expovariate((12 if 8 <= at / 3600 < 18 else 0.7) / 3600)) < 86400:
            times.append(at)
        for start in (self.random.uniform(0, 80000) for _ in range(2)):
            times += [start + self.random.uniform(0, 60) for _ in range(12)]
        lasts = (self.random.lognormvariate(6.5, 0.8) for _ in times)
        return [
            Work(number, at, min(last, 7200))
            for number, (at, last) in enumerate(zip(sorted(times), lasts, strict=True))
        ]

    def run(self) -> None:
        """Live through the day and what is left of its work, second by second in steps of ten."""
        for now in range(0, 86400 + 4 * 3600, 10):
            self._github(now)
            if now % 60 == 0:
                self._keeper(now)
            self.paid += 10 * len(self.machines)

    def _github(self, now: float) -> None:
        for machine, work in list(self.busy.items()):
            if now >= (work.began or 0) + work.seconds:
                work.ended = now
                self.over.add(machine)
                del self.busy[machine]
        idle = [m for m in self.up if self._online(m, now) and m not in self.busy and m not in self.over]
        waiting = [work for work in self.jobs if work.queued <= now and work.began is None]
        for machine, work in zip(idle, waiting, strict=False):
            work.began = now
            self.busy[machine] = work

    def _online(self, machine: str, now: float) -> bool:
        return self.up[machine] <= now and not (machine in self.machines and self.machines[machine].gone)

    def _take_away(self) -> None:
        for machine in list(self.machines.values()):
            if self.random.random() < self.taken and not machine.gone:
                self.machines[machine.id] = replace(machine, leaving=True, waits=True, gone=True)
                if work := self.busy.pop(machine.id, None):
                    self.failed[machine.id] = work

    def _keeper(self, now: float) -> None:
        if self.taken:
            self._take_away()
        jobs = [Job(work.id, "a/b", work.queued) for work in self.jobs if work.queued <= now and work.began is None]
        runners = [
            Runner(int(m[2:]), m, online=self._online(m, now), busy=m in self.busy)
            for m in self.up
            if m not in self.over
        ]
        done = decide(now, self.rules, jobs, list(self.machines.values()), runners, self.prepared, self.shortage)
        self.shortage = done.shortage or self.shortage
        assert done.unassigned == []
        for machine in done.end:
            if machine in self.busy:
                self.killed.append(machine)
            del self.machines[machine]
            self.up.pop(machine, None)
        for machine in done.release:
            del self.machines[machine]
            self.up.pop(machine, None)
        for machine in done.lost:
            if work := self.failed.pop(machine, None):
                work.queued, work.began = now, None
                self.again += 1
        for machine in done.prepare:
            self.prepared.add(machine)
            self.up[machine] = self.machines[machine].started + self.random.uniform(*self.BOOT)
        self._launch(now, done)

    def _launch(self, now: float, done: Decision) -> None:
        dry = {SPOT: any(start <= now < start + 3600 for start in self.droughts), ON_DEMAND: not self.on_demand}
        for group, desired in done.desired.items():
            there = sum(machine.group == group for machine in self.machines.values())
            for _ in range(0 if dry[group] else desired - there):
                machine = f"i-{next(self.numbers)}"
                self.machines[machine] = Machine(machine, group, now)


@every("seed", range(10))
def test_decide_over_a_day_bounds_waits_and_costs(
    seed: int,
) -> None:
    day = Day(seed, replace(RULES, most=40))
    day.run()
    assert day.killed == []
    assert all(work.ended is not None for work in day.jobs)
    # A round to see that it is late, the patience with spot, a round to register, and the longest start.
    bound = RULES.patience + 2 * 60 + Day.BOOT[1] + 60
    waits = [(work.began or 0) - work.queued for work in day.jobs]
    assert max(waits) <= bound
    assert day.machines == {}  # nothing is left behind
    useful = sum(work.seconds for work in day.jobs)
    busiest = max(
        sum((other.began or 0) <= (work.began or 0) < (other.ended or 0) for other in day.jobs) for work in day.jobs
    )
    always_on = busiest * 86400
    assert 1 - useful / day.paid < 0.35  # what is paid for starting, waiting and ending
    assert day.paid < always_on / 4


@every("seed", range(3))
def test_decide_without_on_demand_capacity_waits_for_spot(seed: int) -> None:
    day = Day(seed, replace(RULES, most=40), on_demand=False)
    day.run()
    assert all(work.ended is not None for work in day.jobs)
    # A drought may follow another; then the rest of the turn that is on-demand's, and what it takes otherwise.
    bound = 3 * 3600 + RULES.patience + 3 * 60 + Day.BOOT[1]
    assert 3600 / 2 < max((work.began or 0) - work.queued for work in day.jobs) <= bound


@every("seed", range(3))
def test_decide_after_interruptions_runs_jobs_again(seed: int) -> None:
    day = Day(seed, replace(RULES, most=40), taken=0.01)
    day.run()
    assert day.killed == []
    assert day.again > 10
    assert day.failed == {}
    assert all(work.ended is not None for work in day.jobs)
    assert day.machines == {}


def test_decide_at_the_maximum_finishes_every_job() -> None:
    day = Day(1, replace(RULES, most=2))
    day.run()
    assert day.killed == []
    assert all(work.began is not None for work in day.jobs)
