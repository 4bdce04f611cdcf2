"""Reserved machines of EC2: how they are asked for, what the keeper makes of them, and what it says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from components.runners.kubernetes import cluster_health, pod
from containers.errors import SlipwayError
from containers.image.gpu import kubectl
from containers.image.gpu.kubectl import UnknownKind
from scaler import keeper
from scaler.decide import ON_DEMAND, SPOT, Machine, Reserved, Rules, Runner, decide, room
from scaler.jobs import Job
from scaler.listening.listener import capacity
from stacks.checks import provider_settings, reservations
from stacks.config.ec2 import NodeReservationConfig, ReservationConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.flavors import load as load_stack
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import RUNNERS, load

ID, OTHER = "cr-0123456789abcdef0", "cr-0123456789abcdef1"
NOW = 1_800_000_000.0


@every(
    "reservation, message",
    [
        ({}, "slipway:runners.reservation: expected either ids or tags of reservations"),
        ({"ids": [ID], "tags": {"team": "ml"}}, "slipway:runners.reservation: expected either ids or tags"),
        ({"ids": [ID, ID]}, "slipway:runners.reservation: expected each of ids only once"),
        ({"ids": ["cr-1"]}, "slipway:runners.reservation.ids.0: 'cr-1': expected the id of a reservation"),
        ({"ids": [ID], "owner": "1"}, "slipway:runners.reservation.owner: '1'"),
        ({"ids": [ID], "drain": 1}, "slipway:runners.reservation.drain: '1'"),
        ({"id": ID}, "slipway:runners.reservation: unknown key 'id' (did you mean 'ids'?)"),
    ],
)
def test_reservation_invalid_is_refused_in_one_line(reservation: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        load(reservation=reservation)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@every("values", [{"spot": False}, {"spot": True}, {"spotPatience": 9}])
def test_spot_beside_reservations_alone_is_refused(values: Mapping[str, Any]) -> None:
    with pytest.raises(SlipwayError, match="has no effect, because reservation.fallback is false: leave it out"):
        load(reservation={"ids": [ID]}, **values)
    assert load(reservation={"ids": [ID], "fallback": True}, **values).kinds


@every("key", ["token", "assumeRoles", "accessKey"])
def test_login_of_the_provider_beside_reservations_is_refused(key: str) -> None:
    config = load_stack({"flavor": "runners", "runners": {**RUNNERS, "reservation": {"ids": [ID]}}}, "stack x")
    (line,) = provider_settings.refusals(config, {f"aws:{key}": "x"})
    assert line.startswith(f"aws:{key}: reservations are looked up by AWS's SDK")
    assert not [*provider_settings.refusals(config, {"aws:profile": "x"})]


def rules(**reserved: Reserved) -> Rules:
    """Return rules with reservations first, then spot and on-demand capacity."""
    by_id = {name.replace("_", "-"): each for name, each in reserved.items()}
    return Rules((*by_id, SPOT, ON_DEMAND), 0, 20, 300, 600, 1200, 86400, by_id)


def jobs(count: int, ago: float = 0.0) -> list[Job]:
    return [Job(number, "acme/images", NOW - ago) for number in range(count)]


@every(
    "reserved, count, desired",
    [
        ({"cr_1": Reserved(2)}, 1, {"cr-1": 1}),
        ({"cr_1": Reserved(2)}, 5, {"cr-1": 2, SPOT: 3}),
        ({"cr_1": Reserved(2, available=1)}, 5, {"cr-1": 1, SPOT: 4}),
        ({"cr_1": Reserved(2, available=0)}, 2, {SPOT: 2}),
        ({"cr_1": Reserved(2, until=NOW)}, 2, {SPOT: 2}),
        ({"cr_1": Reserved(2, until=NOW + 1)}, 2, {"cr-1": 2}),
        ({"cr_1": Reserved(1), "cr_2": Reserved(1)}, 3, {"cr-1": 1, "cr-2": 1, SPOT: 1}),
    ],
)
def test_decide_takes_reserved_machines_first(
    reserved: dict[str, Reserved], count: int, desired: dict[str, int]
) -> None:
    done = decide(NOW, rules(**reserved), jobs(count), [], [], {})
    assert {group: number for group, number in done.desired.items() if number} == desired


def test_decide_without_fallback_waits_for_the_reservation() -> None:
    alone = replace(rules(cr_1=Reserved(2)), groups=("cr-1",))
    there = [Machine("i-1", "cr-1", NOW - 60)]
    assert decide(NOW, alone, jobs(5), there, [], {}).desired == {"cr-1": 2}
    assert decide(NOW, alone, jobs(5, ago=900), there, [], {}).desired == {"cr-1": 2}
    assert (capacity(NOW, alone), capacity(NOW, rules(cr_1=Reserved(2)))) == (2, 20)


@every("available, ends", [(0, True), (1, False), (None, False)])
def test_machine_without_jobs_gives_its_place_where_none_is(available: int | None, ends: bool) -> None:
    """GitHub may give it no job at all, and where the reservation has no other place, no other machine gets one."""
    alone = replace(rules(cr_1=Reserved(1 if ends else 2, available)), groups=("cr-1",))
    there = [Machine("i-1", "cr-1", NOW - 7200)]
    runners = [Runner(1, "i-1", online=True, busy=False)]
    done = decide(NOW, alone, jobs(2, ago=3600), there, runners, {"i-1": NOW - 7000})
    assert (done.end, done.unassigned) == ({"i-1": "GitHub gave it no job"} if ends else {}, [0])


def test_decide_after_patience_takes_another_kind_of_capacity() -> None:
    given = rules(cr_1=Reserved(2))
    shortage, asked = None, []
    for turn in range(4):
        done = decide(NOW + 300 * turn, given, jobs(1), [], [], {}, shortage)
        shortage = done.shortage
        asked.append(max(done.desired, key=lambda group: done.desired[group]))
    assert asked == ["cr-1", SPOT, ON_DEMAND, "cr-1"]


def test_reserved_machine_that_becomes_free_comes_before_others() -> None:
    """Jobs wait for other machines in vain for most of an hour, whichever kind has its turn."""
    for minute in range(40, 55):
        shortage, asked = None, []
        for now in range(minute + 8):
            given = rules(cr_1=Reserved(2, available=int(now >= minute)))
            done = decide(NOW + 60 * now, given, jobs(1), [], [], {}, shortage)
            shortage = done.shortage
            asked.append(done.desired["cr-1"])
        assert asked[minute : minute + 5] == [1] * 5
        assert not any(asked[:minute])


def test_spot_that_takes_more_than_is_reserved_is_not_asked() -> None:
    given = replace(rules(cr_1=Reserved(1)), least=2)
    there = [Machine(f"i-{number}", SPOT, NOW - 900, gone=True) for number in range(2)]
    done = decide(NOW, given, [], there, [], dict.fromkeys(("i-0", "i-1"), NOW - 800))
    assert done.desired == {"cr-1": 1, SPOT: 0, ON_DEMAND: 1}


def test_decide_before_the_end_of_a_reservation_drains_it() -> None:
    """An idle machine ends, one with a job stays, and new jobs get other machines."""
    given = rules(cr_1=Reserved(4, until=NOW))
    there = [Machine(f"i-{number}", "cr-1", NOW - 120) for number in range(3)]
    runners = [Runner(0, "i-0", online=True, busy=True), Runner(1, "i-1", online=True, busy=False)]
    prepared = {"i-0": NOW - 60, "i-1": NOW - 60}
    done = decide(NOW, given, jobs(2), there, runners, prepared)
    assert done.end == {"i-1": "its reservation ends", "i-2": "its reservation ends"}
    assert {**done.desired} == {"cr-1": 1, SPOT: 2, ON_DEMAND: 0}
    # GitHub does not list its runners: one that may have a job stays.
    done = decide(NOW, given, jobs(2), there, None, prepared)
    assert done.end == {"i-2": "its reservation ends"}
    assert decide(NOW - 1, given, jobs(2), there, runners, prepared).end == {}


@every(
    "reservation, there, expected",
    [(Reserved(4), 1, 3), (Reserved(4, 1), 1, 1), (Reserved(4, 9), 3, 1), (Reserved(2), 3, 0)],
)
def test_room_is_what_others_and_own_machines_leave(reservation: Reserved, there: int, expected: int) -> None:
    machines = [Machine(f"i-{number}", "cr-1", NOW) for number in range(there)]
    gone = Machine("i-9", "cr-1", NOW, gone=True)
    assert room(NOW, rules(cr_1=reservation), [*machines, gone], "cr-1") == expected


def described(**values: Any) -> reservations.Reservation:
    end = datetime.fromtimestamp(NOW, UTC)
    given: dict[str, Any] = {"state": "active", "count": 2, "available": 2, "ends": end, "block": True, **values}
    return reservations.Reservation(ID, "123456789012", "p5.48xlarge", "eu-west-1a", **given)


@every("block, drain, minutes", [(True, 60, 90), (True, 120, 150), (False, 60, 0)])
def test_lead_of_a_block_is_before_ec2_takes_its_machines(block: bool, drain: int, minutes: int) -> None:
    assert described(block=block).lead(drain) == timedelta(minutes=minutes)


def test_reservations_by_tag_are_the_active_ones() -> None:
    there = [described(), described(state="expired"), described(state="scheduled")]
    by_tag, by_id = ReservationConfig(tags={"a": "b"}), ReservationConfig(ids=(ID,))
    assert reservations.chosen(by_tag, there) == there[:1]
    assert reservations.chosen(by_tag, there[1:]) == there[1:]
    assert reservations.chosen(by_id, there) == there


@every("hours, span", [(49, "2 days"), (47.5, "47 hours"), (0.5, "0 hours")])
def test_last_hours_of_a_reservation_are_told_as_hours(hours: float, span: str) -> None:
    now = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=hours)
    (line,) = reservations.warnings(ReservationConfig(ids=(ID,)), [described()], now)
    assert line.startswith(f"{ID} ends in {span}, at 2027-01-15 08:00 UTC; then jobs wait")


def test_reservation_that_has_ended_does_not_end_again() -> None:
    now = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=5)
    assert not [*reservations.warnings(ReservationConfig(ids=(ID,)), [described()], now)]


def test_placement_group_of_another_account_is_refused() -> None:
    """The account shares its reservation, and launch templates know groups of others by their ids alone."""
    machines = reservations.ReservedMachines("2", "1", ["p5.48xlarge"], ["eu-west-1a"], True, 2, "")
    own, other = (
        replace(described(ends=None, block=False), owner="1", placement_group="theirs", group_owner=owner)
        for owner in "21"
    )
    now = datetime.fromtimestamp(NOW, UTC)
    (line,) = reservations.mistakes(ReservationConfig(ids=(ID,), owner="1" * 12), [own, other], machines, now)
    assert line.startswith(f"{ID} is in the placement group theirs of account 1, which is not known by its name here")


def test_reservation_of_two_sets_over_its_count_is_told() -> None:
    both, one = described(count=4), replace(described(count=4), id=OTHER)
    # One of the machines has begun between the two questions to EC2.
    later = replace(both, available=1)
    for fallback in (False, True):
        (line,) = reservations.shared({"a": (4, [both, one], fallback), "b": (1, [later], False)})
        assert line.startswith(f"{ID} has 4 machines, and is of the sets a with 4 and b with 1: one waits for")
    assert not [*reservations.shared({"a": (3, [both, one], False), "b": (1, [both], False)})]
    assert not [*reservations.shared({"a": (4, [both], True), "b": (4, [both], True)})]


class Ec2:
    """EC2's client: what it lists, or why it refuses."""

    def __init__(self, answer: dict[str, Any] | str) -> None:
        self.answer = answer

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_capacity_reservations"
        return SimpleNamespace(paginate=self._pages)

    def _pages(self) -> Iterator[dict[str, Any]]:
        if isinstance(self.answer, str):
            raise ClientError({"Error": {"Code": self.answer, "Message": "no"}}, "DescribeCapacityReservations")
        yield {"CapacityReservations": []}
        yield {"CapacityReservations": [{"CapacityReservationId": ID, **self.answer}]}


END = datetime.fromtimestamp(NOW + 7200, UTC)
BLOCK: dict[str, Any] = {
    "State": "active", "TotalInstanceCount": 3, "AvailableInstanceCount": 1, "EndDate": END, "EndDateType": "limited",
}  # fmt: skip
KNOWN = Reserved(2, until=NOW - 600)


@every(
    "answer, expected, hours",
    [
        (BLOCK, Reserved(3, 1, NOW + 1800), 2),
        ({**BLOCK, "EndDateType": "unlimited"}, Reserved(3, 1, None), None),
        ({**BLOCK, "State": "expired"}, Reserved(0, None, 0.0), 0),
        ({**BLOCK, "CapacityReservationId": OTHER}, Reserved(0, None, 0.0), 0),
        ("UnauthorizedOperation", KNOWN, None),
        ({**BLOCK, "TotalInstanceCount": "<html>"}, KNOWN, None),
    ],
)
def test_keeper_has_reservations_as_ec2_has_them_now(
    answer: dict[str, Any] | str, expected: Reserved, hours: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[tuple[float, dict[str, str]]] = []
    monkeypatch.setattr(keeper, "client", lambda service: Ec2(answer) if service == "ec2" else None)
    monkeypatch.setattr(time, "time", lambda: NOW)
    environment = {
        **dict.fromkeys(("NAME", "LABELS", "MACHINES", "CONFIGS", "HOOK", "METRICS", "JOBS"), "x"),
        **dict.fromkeys(("GITHUB_API", "GITHUB_SCOPE", "GITHUB_SECRET"), "x"),
        "RUNNER_GROUP": "1",
        "GROUPS": json.dumps({ID: "g"}),
        "RULES": json.dumps({"least": 0, "most": 4, "patience": 1, "idle": 1, "boot": 1, "lifetime": 1}),
        "RESERVATIONS": json.dumps({ID: {"count": 2, "ends": NOW + 4800, "lead": 5400}}),
    }
    a_round = keeper.Keeper(environment)
    monkeypatch.setattr(
        a_round, "_measure", lambda values, **more: measured.append((values["ReservationHoursLeft"][0], more))
    )
    assert a_round._reservations() == {ID: expected}
    assert measured == ([] if hours is None else [(hours, {"Reservation": ID})])


@every(
    "reservation, reason",
    [
        (Reserved(2, available=0), f"the capacity reservation {ID} has no room: all 2 machines are in use"),
        (Reserved(2, until=NOW), f"the capacity reservation {ID} has ended, or ends soon"),
        (Reserved(2), ""),
    ],
)
def test_waiting_job_is_told_of_a_full_reservation(
    reservation: Reserved, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    alone = Rules((ID,), 0, 4, 300, 600, 1200, 86400, {ID: reservation})
    assert keeper._without_room(alone, []) == ([reason] if reason else [])
    assert keeper._without_room(replace(alone, groups=(ID, SPOT)), []) == []


NODES: dict[str, Any] = {"ids": [ID], "region": "eu-west-1", "account": "123456789012", "nodeClass": "gpus"}


def nodes(**values: Any) -> NodeReservationConfig:
    return NodeReservationConfig.model_validate({**NODES, **values})


@every(
    "values, labels",
    [
        ({}, {"karpenter.sh/capacity-type": "reserved", "karpenter.k8s.aws/capacity-reservation-id": ID}),
        ({"ids": [ID, OTHER]}, {"karpenter.sh/capacity-type": "reserved"}),
        ({"nodeClass": None, "nodeGroup": "p5"}, {"eks.amazonaws.com/nodegroup": "p5"}),
        ({"fallback": True}, {}),
    ],
)
def test_runners_are_on_the_reserved_nodes_alone(values: dict[str, Any], labels: dict[str, str]) -> None:
    assert nodes(**values).labels == labels
    config = cluster(reservation=nodes(**values).model_dump(by_alias=True))
    selected = pod.placement(config.profile, config)["nodeSelector"]
    assert selected == {"node.kubernetes.io/instance-type": "p5.48xlarge", "acme.example/pool": "gpus", **labels}


def cluster(**values: Any) -> KubernetesRunnersConfig:
    given = {"kind": "kubernetes", "github": {"url": "https://github.com/acme", "secret": "s"}, "profile": "eks-p5"}
    return KubernetesRunnersConfig.model_validate({**given, "nodeSelector": {"acme.example/pool": "gpus"}, **values})


@every("values", [{"nodeClass": None}, {"nodeGroup": "p5"}])
def test_reserved_nodes_without_one_maker_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected either nodeClass or nodeGroup"):
        nodes(**values)


def test_label_against_the_reserved_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nodeSelector.karpenter.sh/capacity-type: 'spot': nodes of the reservation"):
        cluster(reservation=NODES, nodeSelector={"karpenter.sh/capacity-type": "spot"})


@every(
    "answer, reason",
    [
        ([{"status": {"capacityReservations": [{"id": ID}]}}], ""),
        ([{"status": {"capacityReservations": [{"id": OTHER}]}}], f"EC2NodeClass gpus does not select {ID}, so that"),
        ([{}], f"EC2NodeClass gpus does not select {ID}, so that"),
        ([], "the cluster has no EC2NodeClass gpus, so that no reserved machine"),
        (None, "the cluster has no EC2NodeClass gpus, so that no reserved machine"),
    ],
)
def test_node_class_that_selects_no_reservation_is_told(
    answer: list[dict[str, Any]] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def items(kind: str, *words: str, **_: Any) -> list[dict[str, Any]]:
        if kind != "ec2nodeclasses.karpenter.k8s.aws":
            return []
        assert words == ("--field-selector=metadata.name=gpus",)
        if answer is None:
            raise UnknownKind('error: the server doesn\'t have a resource type "ec2nodeclasses"')
        return answer

    monkeypatch.setattr(kubectl, "items", items)
    lines = cluster_health.warnings(cluster(reservation=NODES))
    assert [line.startswith(reason) for line in lines] == ([True] if reason else [])
