"""Looks up capacity reservations and Capacity Blocks. Pulumi's plugin has no such function, so plain boto3 asks."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pulumi
from botocore.config import Config
from pulumi.runtime.config import CONFIG

from containers.errors import SlipwayError, one_line
from scaler.aws import FAILURES, SHAPE, pages, reason
from stacks.checks import reservations
from stacks.checks.reservations import Reservation
from stacks.config.ec2 import NamedReservationsConfig
from stacks.config.kubernetes import KubernetesRunnersConfig

_CLIENT = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
"""Seconds for a connection and for the next bytes of an answer, and attempts."""


def look_up(requested: NamedReservationsConfig, region: str, key: str = "reservation") -> list[Reservation]:
    """Return the reservations in a region that a configuration names, by its ``key`` below ``slipway:runners``.

    The stack's ``aws:profile`` counts, as for Pulumi's provider.

    Raises:
        SlipwayError: AWS has none of them, or does not answer; with AWS's reason.
    """
    by = {"CapacityReservationIds": [*requested.ids]} if requested.ids else {"Filters": _filters(requested.tags)}
    named = ", ".join(requested.ids or (f"{key}={value}" for key, value in requested.tags.items()))
    try:
        session = boto3.Session(region_name=region, profile_name=CONFIG.get().get("aws:profile"))
        client = session.client("ec2", config=_CLIENT)
        answers = [
            one
            for page in pages(client, "describe_capacity_reservations", **by)
            for one in page["CapacityReservations"]
        ]
        there = sorted(map(_reservation, answers), key=lambda each: _order(requested, each))
    except (*FAILURES, *SHAPE) as error:
        raise SlipwayError(f"slipway:runners.{key}: {named}: {one_line(reason(error), 400)}") from None
    missing = sorted({*requested.ids} - {each.id for each in there})
    if missing or not there:
        raise SlipwayError(f"slipway:runners.{key}: {', '.join(missing) or named}: {region} has no such reservation")
    return reservations.chosen(requested, there)


def of_nodes(config: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the preview's lines on the reservations of a cluster's nodes, by id, and on the fallback, by key.

    Raises:
        SlipwayError: AWS does not answer, or a reservation is useless for a set's runners; one line for each reason.
    """
    texts: dict[str, str] = {}
    mistakes: list[str] = []
    now = datetime.now(UTC)
    for own in config.all_sets:
        requested, key = own.reservation, own.key("reservation")
        if requested is None:
            continue
        there = look_up(requested, requested.region, key)
        machines = reservations.for_nodes(own, requested)
        mistakes += (
            f"slipway:runners.{key}: {line}" for line in reservations.mistakes(requested, there, machines, now)
        )
        for line in reservations.warnings(requested, there, now):
            pulumi.log.warn(f"slipway:runners.{key}: {line}")
        texts |= {each.id: each.text() for each in there}
        texts[key] = f"without a machine there, {reservations.then(requested)}"
    if mistakes:
        raise SlipwayError("\n".join(mistakes))
    return texts


def _filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]


def _order(requested: NamedReservationsConfig, each: Reservation) -> tuple[float, str]:
    """Return the order of ids as they are given; of tags, the one that ends first comes first: it is paid for."""
    if requested.ids:
        return requested.ids.index(each.id), ""
    return each.ends.timestamp() if each.ends else float("inf"), each.id


def _reservation(answer: Mapping[str, Any]) -> Reservation:
    group = str(answer.get("PlacementGroupArn") or "")
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
        placement_group=posixpath.basename(group),
        group_owner=group.split(":")[4] if group else "",
        interruptible=bool(answer.get("Interruptible")),
        outpost=bool(answer.get("OutpostArn")),
        open=answer.get("InstanceMatchCriteria") == "open",
    )


def _time(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    raise TypeError(value)
