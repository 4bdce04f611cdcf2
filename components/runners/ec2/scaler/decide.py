"""What to do, given what there is: no clock, no network, nothing kept between two calls.

Every minute the same question is asked anew, so that whatever was lost (a delivery, a call that failed, a machine) is
made good by the next answer. No machine is ended but after GitHub agreed to forget its runner, which it does not while
that has a job, or where EC2 ended it; the number of machines asked for is never below those that there are.

What could not be looked at is None. Then machines are started for the jobs all the same, and none is ended that may be
at work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .jobs import Job

ON_DEMAND = "on-demand"
SPOT = "spot"

LEFT = 2 * 3600
"""Seconds after which another machine is made for a job that GitHub gave to none: it too is out of order at times."""


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
    lifetime: float


@dataclass(frozen=True)
class Machine:
    """An instance: the kind of capacity it is of, when it started, and how it stands.

    It is ``leaving`` once Auto Scaling ends it, which ``waits`` for the keeper's word at one point of that and at no
    other. It is ``gone`` where EC2 does not run it any more.
    """

    id: str
    group: str
    started: float
    leaving: bool = False
    waits: bool = False
    gone: bool = False


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
    that wait to, ``hold`` are to wait on; ``lost`` are those whose runner may not have ended its job; ``forget`` are
    runners at GitHub that have no machine, ``left`` jobs that it gives to none of these runners.
    """

    desired: Mapping[str, int]
    prepare: Sequence[str] = ()
    end: Mapping[str, str] = field(default_factory=dict)
    release: Sequence[str] = ()
    hold: Sequence[str] = ()
    lost: Collection[str] = ()
    forget: Sequence[int] = ()
    left: Sequence[int] = ()


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
        jobs: those that wait, the longest waiting first; None where it is not known.
        machines: all instances of the groups.
        runners: all at GitHub that are these machines', or were; None where it is not known.
        prepared: machines that have been registered once; None where it is not known.
    """
    known = {runner.machine: runner for runner in runners or ()}
    registered = {machine.id for machine in machines} if prepared is None else set(prepared)
    staying = [machine for machine in machines if not machine.leaving]
    # What GitHub says of a runner whose machine is gone is what was, for minutes.
    there = [machine for machine in machines if not machine.gone]
    if runners is None:
        unsure = {machine.id for machine in there if machine.id in registered}
        # One that is up for so long has its job, as it seems. A younger one is counted on for those that wait.
        busy = {machine.id for machine in there if machine.id in unsure and now - machine.started > rules.boot}
    else:
        busy = unsure = {machine.id for machine in there if machine.id in known and known[machine.id].busy}
    online = {machine.id for machine in there if machine.id in known and known[machine.id].online}

    end: dict[str, str] = {}
    for machine in staying:
        age = now - machine.started
        if machine.id in unsure:
            continue
        if machine.gone:
            end[machine.id] = "it was taken away"
        elif machine.id not in known and prepared is not None and machine.id in prepared:
            end[machine.id] = "its job is over"
        elif machine.id not in online and age > rules.boot:
            end[machine.id] = "no runner came up on it"
        elif machine.id in online and age > rules.lifetime:
            end[machine.id] = "it is as old as it may be"
    # Whoever is neither busy nor at its end can take a job: it starts, or waits for one.
    free = [machine for machine in staying if machine.id not in busy and machine.id not in end]
    # One that was not ended after its time to come up has been online since: what waits all that time is not for it.
    idle = any(machine.id in online and now - machine.started > rules.boot + rules.idle for machine in free)
    waiting = [job for job in jobs or () if job.left is None or now - job.left > LEFT]
    left = {job.id for job in waiting if idle and now - job.since > rules.idle}
    waiting = [job for job in waiting if job.id not in left]
    working = sum(machine.id in busy for machine in staying)
    needed = working + (len(free) if jobs is None else len(waiting))
    target = min(max(needed, rules.least), rules.most)
    for machine in sorted(free, key=lambda one: one.started)[: max(working + len(free) - target, 0)]:
        if now - machine.started > rules.idle and machine.id in online:
            end[machine.id] = "no job came"
    free = [machine for machine in free if machine.id not in end]

    alive = dict.fromkeys(rules.groups, 0)
    for machine in staying:
        if machine.id not in end:
            alive[machine.group] += 1
    more = max(target - sum(alive.values()), 0)
    # Either kind of capacity may be away: each is asked for in its turn.
    late = sum(int(max(now - job.since, 0) // rules.patience) % 2 for job in waiting)
    firm = min(more, max(late - len(free), 0)) if SPOT in rules.groups else more
    release = [machine.id for machine in machines if machine.waits and machine.id not in unsure]
    going = {*end, *release}
    complete = runners is not None and prepared is not None
    return Decision(
        desired={group: count + (firm if group == ON_DEMAND else more - firm) for group, count in alive.items()},
        prepare=[machine.id for machine in free if machine.id not in registered],
        end=end,
        release=release,
        hold=[machine.id for machine in machines if machine.waits and machine.id in unsure],
        lost=registered - {m.id for m in there if m.id not in going or m.id not in known or m.id in online}
        if complete
        else (),
        forget=[
            runner.id
            for runner in runners or ()
            if not runner.busy and runner.machine not in {machine.id for machine in machines}
        ],
        left=sorted(left),
    )
