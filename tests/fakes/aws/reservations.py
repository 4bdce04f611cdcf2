"""Capacity reservations and Capacity Blocks for moto, which has neither: those that a test planted are listed.

moto writes the answer by botocore's own model of EC2, so that its shape is AWS's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response

OWNER: Final = "123456789012"
_PLANTED: dict[str, dict[str, Any]] = {}


def reservation(number: int = 0, **values: Any) -> dict[str, Any]:
    """Return an active reservation of four g5.2xlarge without an end; ``values`` are what differs, in EC2's names."""
    return {
        "CapacityReservationId": f"cr-0123456789abcde{number:02x}",
        "OwnerId": OWNER,
        "InstanceType": "g5.2xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "eu-west-1a",
        "Tenancy": "default",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 4,
        "EbsOptimized": True,
        "EphemeralStorage": False,
        "State": "active",
        "StartDate": datetime.now(UTC) - timedelta(days=30),
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "default",
        "Tags": [],
        **values,
    }


def block(number: int = 0, *, days: float = 20, **values: Any) -> dict[str, Any]:
    """Return an active Capacity Block that ends in some days."""
    end = datetime.now(UTC) + timedelta(days=days)
    more = {"ReservationType": "capacity-block", "EndDateType": "limited", "EndDate": end}
    return reservation(number, **{**more, **values})


def plant(*reservations: dict[str, Any]) -> None:
    """Have EC2 list these, and no others."""
    _PLANTED.clear()
    _PLANTED.update({each["CapacityReservationId"]: each for each in reservations})


def _describe_capacity_reservations(self: Any) -> ActionResult:
    ids = self._get_param("CapacityReservationIds", [])
    for name in ids:
        if name not in _PLANTED:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{name}' does not exist."
            )
    tags = {name.removeprefix("tag:"): values for name, values in (self._filters_from_querystring() or {}).items()}
    return ActionResult(
        {
            "CapacityReservations": [
                each
                for name, each in _PLANTED.items()
                if (not ids or name in ids)
                and all({t["Key"]: t["Value"] for t in each["Tags"]}.get(key) in values for key, values in tags.items())
            ]
        }
    )


@contextmanager
def served() -> Iterator[None]:
    """Have moto answer ``DescribeCapacityReservations``."""
    plant()
    EC2Response.describe_capacity_reservations = _describe_capacity_reservations
    try:
        yield
    finally:
        del EC2Response.describe_capacity_reservations
