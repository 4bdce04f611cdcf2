"""What to do, given what there is: no clock, no network, nothing kept between two calls.

Every minute the same question is asked anew, so that whatever was lost (a delivery, a call that failed, a machine) is
made good by the next answer. No machine is ended but after GitHub agreed to forget its runner, which it does not while
that has a job; the number of machines asked for is never below those that there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .jobs import Job

ON_DEMAND = "on-demand"
SPOT = "spot"


@dataclass(frozen=True)
class Rules:
    """What the configuration says; times in seconds.

    ``groups`` are the kinds of capacity there are, :data:`SPOT` and :data:`ON_DEMAND` or the latter alone.
    """

    groups: Sequence[str]
    least: int
    most: int
    patience: float
    idle: float
    boot: float


@dataclass(frozen=True)
class Machine:
    """An instance: the kind of capacity it is of, when it started, and whether Auto Scaling waits to end it."""

    id: str
    group: str
    started: float
    leaving: bool = False


@dataclass(frozen=True)
class Runner:
    """What GitHub says of a runner; ``machine`` is the instance that its name speaks of."""

    id: int
    machine: str
    online: bool
    busy: bool


@dataclass(frozen=True)
class Decision:
    """What to do: ``desired`` machines by kind of capacity, after all else.

    ``prepare`` are machines that are to be registered; ``end`` maps those to be ended to why; ``release`` may go now
    that wait to, ``hold`` are to wait on; ``forget`` are runners at GitHub that have no machine.
    """

    desired: Mapping[str, int]
    prepare: Sequence[str] = ()
    end: Mapping[str, str] = field(default_factory=dict)
    release: Sequence[str] = ()
    hold: Sequence[str] = ()
    forget: Sequence[int] = ()


def decide(
    now: float,
    rules: Rules,
    jobs: Sequence[Job],
    machines: Sequence[Machine],
    runners: Sequence[Runner],
    prepared: Collection[str],
) -> Decision:
    """Return what to do.

    Args:
        now: seconds since 1970.
        rules: the configuration.
        jobs: those that wait, the longest waiting first.
        machines: all instances of the groups.
        runners: all at GitHub that are these machines', or were.
        prepared: machines that have been registered once.
    """
    known = {runner.machine: runner for runner in runners}
    leaving = [machine for machine in machines if machine.leaving]
    staying = [machine for machine in machines if not machine.leaving]
    busy = {machine.id for machine in machines if machine.id in known and known[machine.id].busy}

    end: dict[str, str] = {}
    for machine in staying:
        runner = known.get(machine.id)
        if machine.id in busy:
            continue
        if runner is None and machine.id in prepared:
            end[machine.id] = "its job is over"
        elif (runner is None or not runner.online) and now - machine.started > rules.boot:
            end[machine.id] = "no runner came up on it"
    # Whoever is neither busy nor at its end can take a job: it starts, or waits for one.
    free = [machine for machine in staying if machine.id not in busy and machine.id not in end]
    working = sum(machine.id in busy for machine in staying)
    wanted = min(max(working + len(jobs), rules.least), rules.most)
    for machine in sorted(free, key=lambda one: one.started)[: max(working + len(free) - wanted, 0)]:
        if now - machine.started > rules.idle and machine.id in known and known[machine.id].online:
            end[machine.id] = "no job came"
    free = [machine for machine in free if machine.id not in end]

    alive = dict.fromkeys(rules.groups, 0)
    for machine in staying:
        if machine.id not in end:
            alive[machine.group] += 1
    more = max(wanted - sum(alive.values()), 0)
    late = sum(now - job.since >= rules.patience for job in jobs)
    firm = min(more, max(late - len(free), 0)) if SPOT in rules.groups else more
    return Decision(
        desired={group: count + (firm if group == ON_DEMAND else more - firm) for group, count in alive.items()},
        prepare=[machine.id for machine in free if machine.id not in prepared],
        end=end,
        release=[machine.id for machine in leaving if machine.id not in busy],
        hold=[machine.id for machine in leaving if machine.id in busy],
        forget=[runner.id for runner in runners if not runner.busy and runner.machine not in {m.id for m in machines}],
    )
