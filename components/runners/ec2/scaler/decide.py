"""Decides what to do from the jobs, machines and runners that exist. A pure function: no clock, no network, no memory.

It decides anew every minute, so the next decision makes up for a lost delivery, call or machine. A machine is ended
only after EC2 stopped it, or after GitHub removed its runner, which GitHub refuses while the runner has a job. The
desired number of machines is never below the existing ones.

What could not be read is None. Then machines are still started for the jobs, and none is ended that may be working.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .jobs import Job

ON_DEMAND = "on-demand"
SPOT = "spot"

UNASSIGNED_SECONDS = 2 * 3600
"""Seconds after which an unassigned job gets another machine: GitHub may have been out of order."""


@dataclass(frozen=True)
class Rules:
    """The configuration; times in seconds.

    ``groups`` are the kinds of capacity: :data:`SPOT` and :data:`ON_DEMAND`, or only the latter.
    """

    groups: Sequence[str]
    least: int
    most: int
    patience: float
    idle: float
    boot: float
    lifetime: float


@dataclass(frozen=True)
class Machine:
    """An instance: its kind of capacity, when it started, and its state.

    It is ``leaving`` once Auto Scaling ends it. It ``waits`` while Auto Scaling's lifecycle hook waits for the keeper.
    It is ``gone`` once EC2 no longer runs it.
    """

    id: str
    group: str
    started: float
    leaving: bool = False
    waits: bool = False
    gone: bool = False


@dataclass(frozen=True)
class Runner:
    """A runner at GitHub; ``machine`` is the instance in its name."""

    id: int
    machine: str
    online: bool
    busy: bool


@dataclass(frozen=True)
class Decision:
    """What to do: first all else, then the ``desired`` number of machines by kind of capacity.

    ``prepare`` are the machines to register. ``end`` maps the machines to end to the reason. Of the waiting machines,
    ``release`` may go and ``hold`` must wait on. ``lost`` are machines whose runner may not have finished its job.
    ``forget`` are runners at GitHub without a machine. ``unassigned`` are jobs that GitHub assigns to none of these
    runners.
    """

    desired: Mapping[str, int]
    prepare: Sequence[str] = ()
    end: Mapping[str, str] = field(default_factory=dict)
    release: Sequence[str] = ()
    hold: Sequence[str] = ()
    lost: Collection[str] = ()
    forget: Sequence[int] = ()
    unassigned: Sequence[int] = ()


def decide(
    now: float,
    rules: Rules,
    jobs: Sequence[Job] | None,
    machines: Sequence[Machine],
    runners: Sequence[Runner] | None,
    prepared: Collection[str] | None,
) -> Decision:
    """Return what to do.

    Args:
        now: seconds since 1970.
        rules: the configuration.
        jobs: those that wait, the longest waiting first; None if they could not be read.
        machines: all instances of the groups.
        runners: all runners at GitHub of these machines, or of former ones; None if they could not be read.
        prepared: machines that have a registration; None if these could not be read.
    """
    by_machine = {runner.machine: runner for runner in runners or ()}
    registered = {machine.id for machine in machines} if prepared is None else set(prepared)
    staying = [machine for machine in machines if not machine.leaving]
    # GitHub lists the runner of a gone machine as it was, for minutes.
    running = [machine for machine in machines if not machine.gone]
    if runners is None:
        maybe_busy = {machine.id for machine in running if machine.id in registered}
        # A machine that has run for so long probably has a job. A younger one is counted as free for a waiting job.
        busy = {machine.id for machine in running if machine.id in maybe_busy and now - machine.started > rules.boot}
    else:
        busy = maybe_busy = {
            machine.id for machine in running if machine.id in by_machine and by_machine[machine.id].busy
        }
    online = {machine.id for machine in running if machine.id in by_machine and by_machine[machine.id].online}

    end: dict[str, str] = {}
    for machine in staying:
        age = now - machine.started
        if machine.id in maybe_busy:
            continue
        if machine.gone:
            end[machine.id] = "it was taken away"
        elif machine.id not in by_machine and prepared is not None and machine.id in prepared:
            end[machine.id] = "its job is over"
        elif machine.id not in online and age > rules.boot:
            end[machine.id] = "no runner came up on it"
        elif machine.id in online and age > rules.lifetime:
            end[machine.id] = "it is as old as it may be"
    # A machine that is neither busy nor ended can take a job: it starts, or waits for one.
    free = [machine for machine in staying if machine.id not in busy and machine.id not in end]
    # Such a machine has been online for `idle` seconds: a job that waited all that time is not for it.
    idle = any(machine.id in online and now - machine.started > rules.boot + rules.idle for machine in free)
    waiting = [
        job for job in jobs or () if job.unassigned_since is None or now - job.unassigned_since > UNASSIGNED_SECONDS
    ]
    unassigned = {job.id for job in waiting if idle and now - job.since > rules.idle}
    waiting = [job for job in waiting if job.id not in unassigned]
    working = sum(machine.id in busy for machine in staying)
    needed = working + (len(free) if jobs is None else len(waiting))
    target = min(max(needed, rules.least), rules.most)
    for machine in sorted(free, key=lambda one: one.started)[: max(working + len(free) - target, 0)]:
        if now - machine.started > rules.idle and machine.id in online:
            end[machine.id] = "no job came"
    free = [machine for machine in free if machine.id not in end]

    counts = dict.fromkeys(rules.groups, 0)
    for machine in staying:
        if machine.id not in end:
            counts[machine.group] += 1
    new = max(target - sum(counts.values()), 0)
    # Either kind of capacity may be unavailable: a waiting job asks for each in turn.
    on_demand_turn = sum(int(max(now - job.since, 0) // rules.patience) % 2 for job in waiting)
    on_demand = min(new, max(on_demand_turn - len(free), 0)) if SPOT in rules.groups else new
    release = [machine.id for machine in machines if machine.waits and machine.id not in maybe_busy]
    leaving = {*end, *release}
    complete = runners is not None and prepared is not None
    return Decision(
        desired={
            group: count + (on_demand if group == ON_DEMAND else new - on_demand) for group, count in counts.items()
        },
        prepare=[machine.id for machine in free if machine.id not in registered],
        end=end,
        release=release,
        hold=[machine.id for machine in machines if machine.waits and machine.id in maybe_busy],
        lost=registered - {m.id for m in running if m.id not in leaving or m.id not in by_machine or m.id in online}
        if complete
        else (),
        forget=[
            runner.id
            for runner in runners or ()
            if not runner.busy and runner.machine not in {machine.id for machine in machines}
        ],
        unassigned=sorted(unassigned),
    )
