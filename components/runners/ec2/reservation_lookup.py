"""Looks up capacity reservations and Capacity Blocks. Pulumi's plugin has no such function, so plain boto3 asks."""

from __future__ import annotations

from datetime import UTC, datetime

import pulumi
from pulumi.runtime.config import CONFIG

from containers.errors import SlipwayError, one_line
from scaler.aws import FAILURES, SHAPE, capacity_reservations, reason, user_client
from stacks.checks import reservations
from stacks.checks.reservations import Reservation
from stacks.config.ec2 import NamedReservationsConfig
from stacks.config.kubernetes import KubernetesRunnersConfig


def look_up(requested: NamedReservationsConfig, region: str, key: str = "reservation") -> list[Reservation]:
    """Return the reservations in a region that a configuration names, by its ``key`` below ``slipway:runners``.

    The stack's ``aws:profile`` counts, as for Pulumi's provider, where the machine has it.

    Raises:
        SlipwayError: AWS has none of them, or does not answer; with AWS's reason.
    """
    try:
        client = user_client("ec2", region, CONFIG.get().get("aws:profile"))
        answers = capacity_reservations(client, **reservations.asked(requested))
        return reservations.answered(requested, answers, region)
    except SlipwayError as error:
        raise SlipwayError(f"slipway:runners.{key}: {error}") from None
    except (*FAILURES, *SHAPE) as error:
        raise SlipwayError(
            f"slipway:runners.{key}: {reservations.named(requested)}: {one_line(reason(error), 400)}"
        ) from None


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
