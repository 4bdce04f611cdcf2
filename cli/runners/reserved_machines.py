"""When the reserved machines of runners end, and what is wrong with them: asked of EC2, for both kinds of runners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from containers.errors import SlipwayError, one_line
from stacks import graph
from stacks.checks import reservations
from stacks.checks.reservations import Reservation, ReservedMachines
from stacks.config.ec2 import Ec2RunnersConfig, NamedReservationsConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_config import Runners
from stacks.config.stack_file import other_settings, read_stack, stack_names


@dataclass(frozen=True)
class ReservationEnd:
    """A reservation of a stack's runners, and its end, if it has one; ``lines`` say what it is.

    ``is_due`` where a daily reader is to act: it ends in 14, 3 or 1 days, or one day less, or is of no use.
    """

    id: str
    ends: datetime | None
    lines: tuple[str, ...]
    troubles: tuple[str, ...]
    is_due: bool


def of_stacks(stacks: Sequence[str] | None, root: Path) -> list[ReservationEnd]:
    """Return the reservations of the stacks named, else of all; each of their lines has the stack.

    Of all, one whose file is wrong costs no other: its entry says what is wrong.

    Raises SlipwayError: a stack that was named does not exist, or its file is wrong.
    """
    ends: list[ReservationEnd] = []
    for stack in stack_names(root) if stacks is None else stacks:
        try:
            ends += _of_stack(stack, root)
        except SlipwayError as error:
            if stacks is not None:
                raise
            line = str(error)
            ends.append(ReservationEnd(stack, None, (line,), (line,), is_due=True))
    return ends


def _of_stack(stack: str, root: Path) -> Iterator[ReservationEnd]:
    runners = graph.unlocked(read_stack(stack, root), f"stack {stack}", root).config.runners
    profile = other_settings(stack, {"aws"}, root).get("aws:profile")
    for each in reservation_ends(runners, profile) if runners else ():
        yield replace(each, lines=tuple(f"stack {stack}: {line}" for line in each.lines))


def reservation_ends(runners: Runners, profile: str | None = None) -> list[ReservationEnd]:
    """Return the reservations of a stack's runners. Where AWS does not say, an entry without an end says why.

    ``profile`` is the stack's ``aws:profile``; the machine's login by default.
    """
    return [each for own in runners.all_sets for each in _of_set(own, profile)]


def _of_set(own: Runners, profile: str | None) -> Iterator[ReservationEnd]:
    requested, now = own.reservation, datetime.now(UTC)
    if requested is None:
        return
    key = f"slipway:runners.{own.key('reservation')}"
    try:
        there = _look_up(requested, _region(own), profile)
    except SlipwayError as error:
        line = f"{key}: {error}"
        yield ReservationEnd(reservations.named(requested), None, (line,), (line,), is_due=True)
        return
    machines = _machines(own)
    for each in there:
        useless = [*reservations.mistakes(requested, [each], machines, now)]
        troubles = tuple(f"{key}: {line}" for line in (*useless, *reservations.ending(requested, [each], now)))
        due = bool(useless) or (each.ends is not None and reservations.is_due(each.ends - now))
        yield ReservationEnd(each.id, each.ends, (f"{key}: {each.id}: {each.text()}", *troubles), troubles, due)


def _region(own: Runners) -> str:
    if isinstance(own, Ec2RunnersConfig):
        return own.region
    return own.reservation.region if own.reservation else ""


def _machines(own: Runners) -> ReservedMachines:
    """Return what a set's reservations are for, as far as its keys say; how many there are is an update's affair."""
    if isinstance(own, KubernetesRunnersConfig) and own.reservation:
        return replace(reservations.for_nodes(own, own.reservation), most=0)
    account = own.account if isinstance(own, Ec2RunnersConfig) else ""
    owner = (own.reservation.owner if own.reservation else None) or account
    drain = own.reservation.drain if isinstance(own, Ec2RunnersConfig) and own.reservation else 0
    return ReservedMachines(account, owner, (), (), None, 0, "", drain)


def _look_up(requested: NamedReservationsConfig, region: str, profile: str | None) -> list[Reservation]:
    # Runners without reservations need no boto3.
    from scaler.aws import FAILURES, SHAPE, capacity_reservations, reason, user_client  # noqa: PLC0415

    try:
        answers = capacity_reservations(user_client("ec2", region, profile), **reservations.asked(requested))
        return reservations.answered(requested, answers, region)
    except (*FAILURES, *SHAPE) as error:
        raise SlipwayError(f"{reservations.named(requested)}: {one_line(reason(error), 400)}") from None
