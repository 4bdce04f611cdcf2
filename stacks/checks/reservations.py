"""Capacity reservations and Capacity Blocks of EC2: the reasons why one is useless for its machines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from containers.errors import SlipwayError
from stacks.config.ec2 import NamedReservationsConfig, NodeReservationConfig
from stacks.config.kubernetes import KubernetesRunnersConfig

RECLAIMED = timedelta(minutes=30)
"""How long before the end of a Capacity Block EC2 begins to terminate its machines ("Capacity Blocks for ML")."""

ALARM_DAYS = (14, 3, 1)
"""Days before the end of a reservation at which somebody is told."""

_LATE = timedelta(days=1)
"""By how much the daily look at reservations may be late: GitHub delays scheduled runs, and drops some ("Events that
trigger workflows", schedule). So one that is in time says it twice."""

_OVER = {"cancelled", "cancelling", "expired", "failed", "payment-failed", "unavailable", "unsupported"}
"""States from which a reservation never becomes active."""

_PLACEMENT_GROUP = re.compile(r"arn:[^:]*:ec2:[^:]*:(?P<owner>[^:]*):placement-group/(?P<name>.+)")


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation, or a Capacity Block, as EC2 describes it (DescribeCapacityReservations).

    ``count`` are its machines, ``available`` those that nobody uses. ``placement_group`` is a name, and
    ``group_owner`` that group's account; both are empty without one. Without ``ends``, it lasts until somebody cancels
    it. Any machine of its kind takes a place in an ``open`` one.
    """

    id: str
    owner: str
    instance_type: str
    zone: str
    state: str
    count: int
    available: int
    starts: datetime | None = None
    ends: datetime | None = None
    block: bool = False
    platform: str = "Linux/UNIX"
    tenancy: str = "default"
    placement_group: str = ""
    group_owner: str = ""
    interruptible: bool = False
    outpost: bool = False
    open: bool = False

    @property
    def lasts(self) -> timedelta:
        """How long it lasts in all."""
        return self.ends - self.starts if self.ends and self.starts else timedelta.max

    def lead(self, drain: int) -> timedelta:
        """Return how long before its end its machines take no further job.

        ``drain`` are the minutes that a job gets. EC2 ends the machines of a Capacity Block alone: others stay, at the
        price of on-demand machines.
        """
        return RECLAIMED + timedelta(minutes=drain) if self.block else timedelta()

    def text(self, drain: int | None = None) -> str:
        """Return what a preview says of it; without ``drain``, others end its machines."""
        kind = "Capacity Block" if self.block else "capacity reservation"
        text = f"{kind}: {self.count} {self.instance_type} in {self.zone}"
        if self.ends is None:
            return f"{text}, without an end"
        text += f", until {moment(self.ends)}"
        if not self.block or drain is None:
            return text
        return f"{text}; no job starts there from {moment(self.ends - self.lead(drain))}"


@dataclass(frozen=True)
class ReservedMachines:
    """What a reservation is for: an account's machines of some types in some zones, in a placement group or in none.

    ``owner`` is the account that shares the reservation, else the same one.
    Without types or zones, and with ``grouped`` None, any is right. ``most`` is the highest number of machines at once,
    which ``limit`` says. ``drain`` are the minutes that a job gets before EC2 takes the machines.
    """

    account: str
    owner: str
    types: Collection[str]
    zones: Collection[str]
    grouped: bool | None
    most: int
    limit: str
    drain: int = 0


def moment(time: datetime) -> str:
    """Return a time as text, such as ``2026-12-24 11:30 UTC``."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def asked(requested: NamedReservationsConfig) -> dict[str, Any]:
    """Return what EC2 is asked for reservations with (DescribeCapacityReservations)."""
    if requested.ids:
        return {"CapacityReservationIds": [*requested.ids]}
    return {"Filters": [{"Name": f"tag:{key}", "Values": [value]} for key, value in requested.tags.items()]}


def answered(
    requested: NamedReservationsConfig, answers: Iterable[Mapping[str, Any]], region: str
) -> list[Reservation]:
    """Return the reservations that a configuration is about, the preferred one first, from EC2's answers.

    Raises SlipwayError: the region has none of them; the text says of which. LookupError, TypeError, ValueError: an
    answer has another shape than documented.
    """
    there = sorted(map(_reservation, answers), key=lambda each: _order(requested, each))
    missing = sorted({*requested.ids} - {each.id for each in there})
    if missing or not there:
        raise SlipwayError(f"{', '.join(missing) or named(requested)}: {region} has no such reservation")
    return chosen(requested, there)


def named(requested: NamedReservationsConfig) -> str:
    """Return the ids or tags of a configuration, for errors."""
    return ", ".join(requested.ids or (f"{key}={value}" for key, value in requested.tags.items()))


def _order(requested: NamedReservationsConfig, each: Reservation) -> tuple[float, str]:
    """Return the order of ids as they are given; of tags, the one that ends first comes first: it is paid for."""
    if requested.ids:
        return requested.ids.index(each.id), ""
    return each.ends.timestamp() if each.ends else float("inf"), each.id


def _reservation(answer: Mapping[str, Any]) -> Reservation:
    group = _PLACEMENT_GROUP.fullmatch(str(answer.get("PlacementGroupArn") or ""))
    return Reservation(
        id=str(answer["CapacityReservationId"]),
        owner=str(answer["OwnerId"]),
        instance_type=str(answer["InstanceType"]),
        zone=str(answer["AvailabilityZone"]),
        state=str(answer["State"]),
        count=int(answer["TotalInstanceCount"]),
        available=int(answer["AvailableInstanceCount"]),
        starts=_time(answer.get("StartDate")),
        ends=_time(answer.get("EndDate")) if answer.get("EndDateType") != "unlimited" else None,
        block=answer.get("ReservationType") == "capacity-block",
        platform=str(answer["InstancePlatform"]),
        tenancy=str(answer["Tenancy"]),
        placement_group=group["name"] if group else "",
        group_owner=group["owner"] if group else "",
        interruptible=bool(answer.get("Interruptible")),
        outpost=bool(answer.get("OutpostArn")),
        open=answer.get("InstanceMatchCriteria") == "open",
    )


def _time(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    raise TypeError(value)


def chosen(requested: NamedReservationsConfig, reservations: Sequence[Reservation]) -> list[Reservation]:
    """Return the reservations that a configuration is about.

    A tag stays on ended reservations, and is on the next one before its start. So of those with the tags, the
    active ones count, or all where none is.
    """
    active = [each for each in reservations if each.state == "active"]
    return active if requested.tags and active else [*reservations]


def for_nodes(config: KubernetesRunnersConfig, requested: NodeReservationConfig) -> ReservedMachines:
    """Return what the reservations of a cluster's nodes are for."""
    instance_type = config.label("node.kubernetes.io/instance-type")
    zone = config.label("topology.kubernetes.io/zone")
    return ReservedMachines(
        account=requested.account,
        owner=requested.owner or requested.account,
        types=[instance_type] if instance_type else (),
        zones=[zone] if zone else (),
        grouped=None,
        most=config.most_nodes,
        limit=f"maxRunners {config.max_runners} needs {config.most_nodes} nodes",
    )


def mistakes(
    requested: NamedReservationsConfig, reservations: Sequence[Reservation], machines: ReservedMachines, now: datetime
) -> Iterator[str]:
    """Yield a message for each reason why ``machines`` cannot be in the reservations that are requested."""
    for each in reservations:
        yield from (f"{each.id} {reason}" for reason in _reasons(each, machines, now))
    total = sum(each.count for each in reservations)
    if machines.most > total and not requested.fallback:
        ids = ", ".join(each.id for each in reservations)
        yield (
            f"{ids}: {total} machines in all, and {machines.limit}: give less in maxRunners, or "
            "reservation.fallback: true"
        )


def warnings(requested: NamedReservationsConfig, reservations: Sequence[Reservation], now: datetime) -> Iterator[str]:
    """Yield a warning for each reservation that ends in a few days, or is open to other machines."""
    yield from ending(requested, reservations, now)
    for each in reservations:
        if each.open:
            yield f"{each.id} is open: any {each.instance_type} of the account in {each.zone} takes a machine of it"


def ending(requested: NamedReservationsConfig, reservations: Sequence[Reservation], now: datetime) -> Iterator[str]:
    """Yield a warning for each reservation that ends in a few days."""
    for each in reservations:
        if each.ends and timedelta() < (left := each.ends - now) <= timedelta(days=ALARM_DAYS[0]):
            span = f"{left.days} days" if left.days > 1 else f"{left // timedelta(hours=1)} hours"
            yield f"{each.id} ends in {span}, at {moment(each.ends)}; then {then(requested)}"


def is_due(left: timedelta) -> bool:
    """Return whether a daily reader is to be told of the time left: at 14, 3 and 1 days, and for a day from then."""
    return any(days - timedelta(days=1) - _LATE < left <= days for days in map(timedelta, ALARM_DAYS))


def full(requested: NamedReservationsConfig, reservations: Sequence[Reservation]) -> Iterator[str]:
    """Yield a warning for each reservation that has no free machine now; those of a cluster's nodes never need one."""
    for each in reservations:
        if each.available == 0:
            yield f"{each.id}: all {each.count} machines are in use now, by jobs or by others; {then(requested)}"


def shared(of_sets: Mapping[str, tuple[int, Sequence[Reservation], bool]]) -> Iterator[str]:
    """Yield a warning for each reservation of several sets that together may have more machines than it has.

    ``of_sets`` has each set's highest number of machines, its reservations, and whether it takes other machines without
    one there, by name. Where all do, none waits.
    """
    by_id = {each.id: each for _, reservations, _ in of_sets.values() for each in reservations}
    for each in by_id.values():
        having = {name: own for name, own in of_sets.items() if each.id in {one.id for one in own[1]}}
        waits = len(having) > 1 and not all(fallback for _, _, fallback in having.values())
        if waits and sum(most for most, _, _ in having.values()) > each.count:
            sets = " and ".join(f"{name} with {most}" for name, (most, _, _) in sorted(having.items()))
            yield f"{each.id} has {each.count} machines, and is of the sets {sets}: one waits for the other's jobs"


def then(requested: NamedReservationsConfig, kinds: Sequence[str] = ()) -> str:
    """Return the fallback of a reservation without a machine; ``kinds`` are the other kinds of capacity, in order."""
    other = f"other machines are taken{': ' * bool(kinds)}{', then '.join(kinds)}"
    return other if requested.fallback else "jobs wait"


def _reasons(each: Reservation, machines: ReservedMachines, now: datetime) -> Iterator[str]:
    if each.owner != machines.owner:
        yield (
            f"is of account {each.owner}, not of {machines.owner}: "
            "if that account shares it, say so in reservation.owner"
        )
    if machines.types and each.instance_type not in machines.types:
        yield f"is for {each.instance_type}; the machines are {', '.join(sorted(machines.types))}"
    if machines.zones and each.zone not in machines.zones:
        yield f"is in {each.zone}; the machines are in {', '.join(sorted(machines.zones))}"
    if each.platform != "Linux/UNIX":
        yield f"is for {each.platform}; the machines are Linux/UNIX"
    if each.tenancy != "default":
        yield f"has tenancy {each.tenancy}; the machines have default"
    if each.outpost:
        yield "is on an Outpost; the machines are in the region's own zones"
    if each.interruptible:
        yield "is interruptible: its owner takes the machines back in the middle of a job"
    yield from _placement(each, machines)
    if each.count == 0:
        yield "has no machine"
    yield from _times(each, now, machines.drain)


def _placement(each: Reservation, machines: ReservedMachines) -> Iterator[str]:
    if each.placement_group and machines.grouped is False:
        yield (f"is in the placement group {each.placement_group}; machines without efa are in none")
    # "You must specify the Placement Group Group Id to launch an instance in a shared placement group"
    # (LaunchTemplatePlacementRequest), and a reservation says its name alone.
    if machines.grouped and each.placement_group and each.group_owner != machines.account:
        yield (
            f"is in the placement group {each.placement_group} of account {each.group_owner}, which is not known by "
            "its name here: make one in a group of your own"
        )
    # A Capacity Block's machines are close to each other without a placement group.
    if machines.grouped and not each.placement_group and not each.block:
        yield (
            "is in no placement group, and machines with efa are in one, which has no share of it: make it with a "
            "placement group"
        )


def _times(each: Reservation, now: datetime, drain: int) -> Iterator[str]:
    if each.state != "active":
        starts = f": it starts at {moment(each.starts)}" if each.starts and each.starts > now else ""
        ended = f": it ended at {moment(each.ends)}" if each.ends and each.ends <= now else ""
        advice = ": give another" if each.state in _OVER else ": wait for it, or give another"
        yield f"is {each.state}, not active{starts or ended or advice}"
    elif each.ends and each.ends <= now:
        yield f"ended at {moment(each.ends)}"
    elif each.ends and (last := each.ends - each.lead(drain)) <= now:
        yield (
            f"ends at {moment(each.ends)}, and no job starts there from {moment(last)}, {drain} minutes before EC2 "
            "takes its machines: give another"
        )
