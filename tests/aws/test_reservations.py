"""Capacity reservations and Capacity Blocks of runners on EC2: refused at preview, or used by what is launched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.aws.conftest import ACCOUNT, REGION
from tests.aws.runners import NAME, TOPIC, RunnersProject, image
from tests.aws.test_ecr import UNCHANGED
from tests.aws.test_runners import documented
from tests.fakes.aws.reservations import block, plant, reservation, served
from tests.provider.conftest import Registry

FIRST = reservation()["CapacityReservationId"]
SECOND = reservation(1)["CapacityReservationId"]


@pytest.fixture
def project(tmp_path: Path, moto: str, registry: Registry) -> Iterator[RunnersProject]:
    """A fresh project on an AWS that has a machine image, and reservations."""
    requests.post(f"{moto}/moto-api/reset", timeout=30).raise_for_status()
    image(moto, "x86_64")
    with served():
        project = RunnersProject(tmp_path / "project", moto, registry)
        project.add_stack()
        yield project


def reserve(project: RunnersProject, **values: Any) -> None:
    project.runners(**{"reservation": {"ids": [FIRST]}, **values})


def placement_group(name: str) -> str:
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/{name}"


def private_subnet(project: RunnersProject) -> str:
    ec2 = project.api("ec2")
    vpc = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    subnet: str = ec2.create_subnet(VpcId=vpc, CidrBlock="172.31.200.0/24", AvailabilityZone=f"{REGION}a")["Subnet"][
        "SubnetId"
    ]
    return subnet


TOMORROW = datetime.now(UTC) + timedelta(days=1)


def planted_cases() -> dict[str, tuple[dict[str, Any], dict[str, Any], str]]:
    """Return the cases by name, as of now: their times are near."""
    return {
        "expired": (block(days=-1, State="expired"), {}, r" is expired, not active: it ended at "),
        "over, and still listed as active": (block(days=-0.1), {}, r" ended at \d{4}-"),
        "cancelled": (reservation(State="cancelled"), {}, r" is cancelled, not active: give another"),
        "not paid": (block(State="payment-failed"), {}, r" is payment-failed, not active: give another"),
        "not started": (
            block(State="scheduled", StartDate=TOMORROW),
            {},
            rf" is scheduled, not active: it starts at {TOMORROW:%Y-%m-%d %H:%M} UTC",
        ),
        "ends before a job could": (block(days=0.05), {}, r" ends at .*, and no job starts there from .*, 60 minutes"),
        "of another zone": (
            reservation(AvailabilityZone="eu-west-1d"),
            {},
            r" is in eu-west-1d; the machines are in eu-west-1a, eu-west-1b, eu-west-1c",
        ),
        "of another type": (
            reservation(InstanceType="p5.48xlarge"),
            {},
            r" is for p5.48xlarge; the machines are g5.2xlarge, g6.2xlarge",
        ),
        "over its count": (
            reservation(TotalInstanceCount=2),
            {},
            r": 2 machines in all, and maxRunners is 4: give less in maxRunners, or reservation.fallback: true",
        ),
        "in a placement group": (
            reservation(PlacementGroupArn=placement_group("theirs")),
            {},
            r" is in the placement group theirs; machines without efa are in none",
        ),
        "in no placement group": (
            reservation(InstanceType="p4d.24xlarge"),
            {"instanceTypes": ["p4d.24xlarge"], "minGpus": 8, "efa": "all"},
            r" is in no placement group, and machines with efa are in one",
        ),
        "of another account": (
            reservation(OwnerId="999999999999"),
            {},
            r" is of account 999999999999, not of 123456789012",
        ),
        "of another platform": (
            reservation(InstancePlatform="Windows"),
            {},
            r" is for Windows; the machines are Linux/UNIX",
        ),
        "of another tenancy": (
            reservation(Tenancy="dedicated"),
            {},
            r" has tenancy dedicated; the machines have default",
        ),
        "on an Outpost": (
            reservation(OutpostArn=f"arn:aws:outposts:{REGION}:{ACCOUNT}:outpost/op-0123456789abcdef0"),
            {},
            r" is on an Outpost; the machines are in the region's own zones",
        ),
        "that its owner takes back": (reservation(Interruptible=True), {}, r" is interruptible: its owner takes"),
        "without machines": (
            reservation(TotalInstanceCount=0, AvailableInstanceCount=0),
            {"reservation": {"ids": [FIRST], "fallback": True}},
            r" has no machine",
        ),
        "of which EC2 does not know": (
            reservation(1),
            {},
            r": DescribeCapacityReservations: AWS refuses it: 400, InvalidCapacityReservationId.NotFound: The capacity",
        ),
        "without the tag": (
            reservation(Tags=[{"Key": "team", "Value": "web"}]),
            {"reservation": {"tags": {"team": "ml"}}},
            r"^reservation: team=ml: eu-west-1 has no such reservation",
        ),
        "with the tag, and over": (
            reservation(State="expired", Tags=[{"Key": "team", "Value": "ml"}]),
            {"reservation": {"tags": {"team": "ml"}}},
            r" is expired, not active",
        ),
    }


"""What EC2 has, what the stack asks for beside it, and what is said."""


ALONE = {"over its count", "of which EC2 does not know"}
"""Cases that say something of all reservations together, or are of one that is not there."""


def refused(project: RunnersProject, **values: Any) -> list[str]:
    """Preview the stack, which must be refused, and return what is said of its reservations."""
    reserve(project, **values)
    run = project.preview(check=False)
    assert run.returncode
    assert "Traceback" not in run.output
    return re.findall(r"slipway:runners\.(reservation: .*)", run.output)


def test_each_useless_reservation_is_refused_at_preview(project: RunnersProject) -> None:
    cases = {
        name: (planted, message)
        for name, (planted, values, message) in planted_cases().items()
        if not values and name not in ALONE
    }
    assert len(cases) > 9
    names = {reservation(number)["CapacityReservationId"]: name for number, name in enumerate(cases, 1)}
    plant(*({**cases[name][0], "CapacityReservationId": own} for own, name in names.items()))
    lines = refused(project, reservation={"ids": [*names], "fallback": True})
    for own, name in names.items():
        said = {line for line in lines if own in line}
        assert len(said) == 1, (name, lines)
        assert re.search(cases[name][1], said.pop()), (name, lines)


@pytest.mark.parametrize("name", [name for name, (_, values, _) in planted_cases().items() if values or name in ALONE])
def test_useless_reservation_is_refused_at_preview(project: RunnersProject, name: str) -> None:
    planted, values, message = planted_cases()[name]
    plant(planted)
    if "efa" in values:
        values = {**values, "subnets": [private_subnet(project)]}
    (line,) = set(refused(project, **values))
    assert re.search(message, line), line


def test_reservations_life_launches_into_them_alone(project: RunnersProject) -> None:
    """A block and a reservation are taken first, in the order of their ids, and spot capacity where they are full."""
    tags = [{"Key": "team", "Value": "ml"}]
    plant(
        block(1, days=40, TotalInstanceCount=2, Tags=tags),
        reservation(InstanceType="g6.2xlarge", AvailabilityZone="eu-west-1b", Tags=tags),
        block(2, State="scheduled", StartDate=TOMORROW, Tags=tags),
        block(3, State="expired", days=-3, Tags=tags),
        reservation(4, InstanceType="p5.48xlarge"),
    )
    reserve(project, reservation={"tags": {"team": "ml"}, "fallback": True})
    preview = project.preview("--diff").output
    ends = block(1, days=40)["EndDate"]
    assert f"Capacity Block: 2 g5.2xlarge in eu-west-1a, until {ends:%Y-%m-%d}" in preview
    assert re.search(r"capacity reservation: 4 g6\.2xlarge in eu-west-1b, without an end", preview)
    assert "other machines are taken: spot, then on-demand" in preview
    project.up()

    groups = project.outputs()["runners"]["groups"]
    assert groups == {kind: f"{NAME}-{kind}" for kind in (SECOND, FIRST, "spot", "on-demand")}
    launch = project.template(f"{NAME}-{SECOND}")["LaunchTemplateData"]
    assert launch["CapacityReservationSpecification"] == {
        "CapacityReservationTarget": {"CapacityReservationId": SECOND}
    }
    assert (launch["InstanceType"], launch["InstanceMarketOptions"]) == ("g5.2xlarge", {"MarketType": "capacity-block"})
    launch = project.template(f"{NAME}-{FIRST}")["LaunchTemplateData"]
    assert launch["CapacityReservationSpecification"]["CapacityReservationTarget"] == {"CapacityReservationId": FIRST}
    assert (launch["InstanceType"], launch.get("InstanceMarketOptions")) == ("g6.2xlarge", None)
    for kind, most, zone in ((SECOND, 2, "a"), (FIRST, 4, "b")):
        group = project.group(kind)
        assert (group["MaxSize"], group["AvailabilityZones"]) == (most, [f"{REGION}{zone}"])
        assert group["LaunchTemplate"]["LaunchTemplateName"] == f"{NAME}-{kind}"
        assert "MixedInstancesPolicy" not in group
    alarms = project.api("cloudwatch").describe_alarms(AlarmNamePrefix=f"{NAME}-cr-")["MetricAlarms"]
    assert {alarm["AlarmName"]: alarm["Threshold"] for alarm in alarms} == {
        **{f"{NAME}-{SECOND}-{days}": days * 24 for days in (14, 3, 1)},
        f"{NAME}-{FIRST}-1": 24,  # without an end, it may be cancelled
    }
    assert {alarm["MetricName"] for alarm in alarms} == {"ReservationHoursLeft"}
    assert {topic for alarm in alarms for topic in alarm["AlarmActions"]} == {TOPIC}
    keeper = project.policy("keeper")["Statement"]
    assert any("ec2:DescribeCapacityReservations" in statement["Action"] for statement in keeper)
    assert UNCHANGED.search(project.up().output)
    assert UNCHANGED.search(project.refresh().output)

    # Without other machines, nothing but the reservation is there; in its last days the preview warns.
    plant(block(1, days=2.5, AvailableInstanceCount=0, InstanceMatchCriteria="open"))
    reserve(project, reservation={"ids": [SECOND]})
    preview = project.preview("--diff").output
    assert re.search(rf"reservation: {SECOND} ends in 2 days, at .*; then jobs wait", preview)
    assert f"reservation: {SECOND} is open: any g5.2xlarge of the account in eu-west-1a takes a machine" in preview
    assert f"reservation: {SECOND}: all 4 machines are in use now, by jobs or by others; jobs wait" in preview
    project.up()
    assert project.outputs()["runners"]["groups"] == {SECOND: f"{NAME}-{SECOND}"}
    project.runners()
    project.up()
    assert project.outputs()["runners"]["groups"] == {kind: f"{NAME}-{kind}" for kind in ("spot", "on-demand")}
    assert not project.api("cloudwatch").describe_alarms(AlarmNamePrefix=f"{NAME}-cr-")["MetricAlarms"]
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert sorted(project.calls() - documented()) == []


def test_reservation_with_efa_is_in_its_placement_group(project: RunnersProject) -> None:
    plant(reservation(InstanceType="p4d.24xlarge", PlacementGroupArn=placement_group("theirs")))
    machines = {"instanceTypes": ["p4d.24xlarge"], "minGpus": 8, "efa": "all", "subnets": [private_subnet(project)]}
    reserve(project, **machines)
    project.up()
    assert project.template(f"{NAME}-{FIRST}")["LaunchTemplateData"]["Placement"] == {"GroupName": "theirs"}
    assert project.resources("ec2/placementGroup:PlacementGroup") == []
