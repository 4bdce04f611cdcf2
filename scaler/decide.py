"""Decides what to do from the present jobs, machines and runners. A pure function: no clock, no network, no memory.

It decides anew every minute, so the next decision makes up for a lost delivery, call or machine. A machine is ended
only after EC2 stopped it, or after GitHub removed its runner, which GitHub refuses while the runner has a job; its list
of runners alone decides nothing, for a page of it may lack one. The
desired number of machines is never below the existing ones.

What could not be read is None. Then machines are still started for the jobs, and none is ended that may be working.

GitHub may answer for hours and give no job to any runner. So an idle machine speaks against one job only, and that soon
gets another machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .jobs import Job, Shortage

ON_DEMAND = "on-demand"
SPOT = "spot"

FINISHED = "job finished"
"""Why a machine ends whose runner has left GitHub. One that ends for another reason stays where it has got a job."""

RETRY_SHARE = 0.1
"""An unassigned job gets another machine after this share of the time for which it had waited by then."""

SETTLED_SECONDS = 180.0
"""For so long after its registration, a runner is not idle: GitHub may be about to give it a job (as in boot/end)."""

SAME_SECONDS = 600.0
"""A shortage goes on that was last seen so long ago: meanwhile a round may have failed, or a list lacked a machine."""

LISTED_SECONDS = 30.0
"""For so long after its start, Auto Scaling's list may lack a machine, and what it was started for looks missing."""


@dataclass(frozen=True)
class Reserved:
    """Reserved machines: how many there are, and how many of them nobody uses, if that is known.

    From ``until`` on, in seconds since 1970, no machine of it takes a job.
    """

    count: int
    available: int | None = None
    until: float | None = None

    def is_over(self, now: float) -> bool:
        """Return whether no machine of it takes a job any more."""
        return self.until is not None and now >= self.until


@dataclass(frozen=True)
class Rules:
    """The configuration; times in seconds.

    ``groups`` are the kinds of capacity in the order in which they are tried: ids of ``reservations``, :data:`SPOT` and
    :data:`ON_DEMAND`.
    """

    groups: Sequence[str]
    least: int
    most: int
    patience: float
    idle: float
    boot: float
    lifetime: float
    reservations: Mapping[str, Reserved] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """An instance: its kind of capacity, when it started, and its state.

    It is ``leaving`` once Auto Scaling ends it. It ``waits`` while Auto Scaling's lifecycle hook waits for the keeper.
    It is ``gone`` once EC2 no longer runs it, and ``running`` once EC2 has started it.
    """

    id: str
    group: str
    started: float
    leaving: bool = False
    waits: bool = False
    gone: bool = False
    running: bool = True


@dataclass(frozen=True)
class Requested:
    """How many machines of a kind of capacity Auto Scaling is asked for ``now``, and how many more it was until lately.

    It may have begun to start those that are ``late``: it lists a machine a moment after its start.
    """

    now: int
    late: int = 0


@dataclass(frozen=True)
class Runner:
    """A runner at GitHub; ``machine`` is the instance in its name.

    One is ``unsure`` that the list lacks, or shows as offline for long, until GitHub has said so of it alone.
    """

    id: int
    machine: str
    online: bool
    busy: bool
    unsure: bool = False


@dataclass(frozen=True)
class Decision:
    """What to do: first all else, then the ``desired`` number of machines by kind of capacity.

    ``prepare`` are the machines to register. ``end`` maps the machines to end to the reason. Of the waiting machines,
    ``release`` may go and ``hold`` must wait on. ``lost`` are machines whose runner may not have finished its job.
    ``forget`` are runners at GitHub without a machine. ``unassigned`` are jobs that GitHub assigned to none of these
    runners. ``shortage`` is to be remembered: machines of the minimum are missing, or there may be no more of them.
    """

    desired: Mapping[str, int]
    prepare: Sequence[str] = ()
    end: Mapping[str, str] = field(default_factory=dict)
    release: Sequence[str] = ()
    hold: Sequence[str] = ()
    lost: Collection[str] = ()
    forget: Sequence[int] = ()
    unassigned: Sequence[int] = ()
    shortage: Shortage | None = None


@dataclass(frozen=True)
class _Fleet:
    """The machines by what they do, as far as GitHub and the registrations say.

    ``known`` are those with a runner at GitHub. ``maybe_busy`` may have a job, ``busy`` count as having one: the two
    differ only where the runners could not be read, or are unsure. ``settled`` are online, and were registered a while
    ago.
    """

    machines: Sequence[Machine]
    known: Collection[str]
    online: Collection[str]
    busy: Collection[str]
    maybe_busy: Collection[str]
    registered: Collection[str]
    settled: Collection[str]

    @property
    def staying(self) -> list[Machine]:
        """The machines that Auto Scaling does not end."""
        return [machine for machine in self.machines if not machine.leaving]

    def free(self, end: Collection[str]) -> list[Machine]:
        """Return the machines that can take a job, but those of ``end``: they start, or wait for one."""
        return [machine for machine in self.staying if machine.id not in self.busy and machine.id not in end]


def decide(
    now: float,
    rules: Rules,
    jobs: Sequence[Job] | None,
    machines: Sequence[Machine],
    runners: Sequence[Runner] | None,
    prepared: Collection[str] | None,
    shortage: Shortage | None = None,
    requested: Mapping[str, Requested] | None = None,
) -> Decision:
    """Return what to do.

    Args:
        now: seconds since 1970.
        rules: the configuration.
        jobs: those that wait, the longest waiting first; None if they could not be read.
        machines: all instances of the groups.
        runners: all runners at GitHub of these machines, or of former ones; None if they could not be read.
        prepared: when machines were registered, by machine, or these machines; None if they could not be read.
        shortage: the last one that was to be remembered.
        requested: what Auto Scaling is asked for by kind of capacity; else as many machines as there are.
    """
    fleet = _fleet(now, rules, machines, runners, prepared)
    end = _endings(now, rules, fleet, prepared)
    free = fleet.free(end)
    # A machine that is still starting may be for a job: only one that has been online is idle.
    idle_long = [each for each in free if each.id in fleet.settled and now - each.started > rules.idle]
    waiting, unassigned = _demand(now, rules, jobs, len(idle_long))
    rooms = (room(now, rules, machines, group) for group in rules.groups)
    if unassigned and not (len(fleet.staying) < rules.most and any(rooms)):
        # Where no other machine has room, it may be this one to which GitHub gives no job. One is tried at a time.
        end[min(idle_long, key=lambda each: each.started).id] = "GitHub gave it no job"
        free = fleet.free(end)
    working = sum(machine.id in fleet.busy for machine in fleet.staying)
    idle = max(len(free), rules.least) if jobs is None else len(waiting) + rules.least
    target = min(working + idle, rules.most)
    end |= _idle(free, idle_long, surplus=working + len(free) - target)
    free = fleet.free(end)
    hold, release = _held(fleet)
    complete = runners is not None and prepared is not None
    lost: Collection[str] = _lost(fleet, {*end, *release}) if complete else ()
    desired, shortage = _desired(now, rules, fleet, end, waiting, len(free), target, shortage, lost)
    return Decision(
        desired=_within(rules, fleet, end, desired, requested) if requested else desired,
        prepare=[machine.id for machine in free if machine.id not in fleet.registered],
        end=end,
        release=release,
        hold=hold,
        lost=lost,
        forget=_forgotten(fleet, runners or ()),
        unassigned=sorted(unassigned),
        shortage=shortage,
    )


def _fleet(
    now: float,
    rules: Rules,
    machines: Sequence[Machine],
    runners: Sequence[Runner] | None,
    prepared: Collection[str] | None,
) -> _Fleet:
    by_machine = {runner.machine: runner for runner in runners or ()}
    registered = {machine.id for machine in machines} if prepared is None else set(prepared)
    # GitHub lists the runner of a gone machine as it was, for minutes.
    running = {machine.id for machine in machines if not machine.gone}
    states = [runner for runner in by_machine.values() if runner.machine in running]
    online = {runner.machine for runner in states if runner.online}
    settled = _settled(now, online, prepared)
    if runners is None:
        maybe_busy = registered & running
        # A machine that has run for so long probably has a job. A younger one is counted as free for a waiting job.
        old = {machine.id for machine in machines if now - machine.started > rules.boot}
        return _Fleet(machines, {*by_machine}, online, maybe_busy & old, maybe_busy, registered, settled)
    busy = {runner.machine for runner in states if runner.busy}
    # GitHub's list may lack a runner, of which the table would have the number to ask for.
    unlisted = running - by_machine.keys() if prepared is None else set()
    unsure = {runner.machine for runner in states if runner.unsure}
    return _Fleet(machines, {*by_machine}, online, busy, busy | unlisted | unsure, registered, settled)


def _settled(now: float, online: Collection[str], prepared: Collection[str] | None) -> set[str]:
    """Return the machines that are online, and were registered a while ago."""
    since = prepared if isinstance(prepared, Mapping) else dict.fromkeys(prepared or (), 0.0)
    return {machine for machine in online if now - since.get(machine, now) > SETTLED_SECONDS}


def _endings(now: float, rules: Rules, fleet: _Fleet, prepared: Collection[str] | None) -> dict[str, str]:
    """Return the machines that can take no job any more, with the reason, as far as GitHub's list says so."""
    end: dict[str, str] = {}
    for machine in fleet.staying:
        age = now - machine.started
        if machine.id in fleet.maybe_busy:
            continue
        if machine.gone:
            end[machine.id] = "taken away"
        elif machine.id not in fleet.known and prepared is not None and machine.id in prepared:
            end[machine.id] = FINISHED
        elif machine.id not in fleet.online and age > rules.boot:
            end[machine.id] = "no runner came online"
        elif machine.id in fleet.online and age > rules.lifetime:
            end[machine.id] = "max lifetime reached"
        elif machine.group in rules.reservations and rules.reservations[machine.group].is_over(now):
            end[machine.id] = "its reservation ends"
    return end


def _demand(now: float, rules: Rules, jobs: Sequence[Job] | None, witnesses: int) -> tuple[list[Job], set[int]]:
    """Return the jobs that need a machine, and the unassigned ones' ids; ``witnesses`` machines wait for a job."""
    # A job that was unassigned before is tried on a machine of its own: GitHub may give the idle ones no job at all.
    waiting = [job for job in jobs or () if job.unassigned_since is None or due(job) <= now]
    # In this time a machine comes up for a job, or is given up.
    patient = [job for job in waiting if now - due(job) > rules.boot]
    unassigned = {job.id for job in sorted(patient, key=due)[:witnesses]}
    return [job for job in waiting if job.id not in unassigned], unassigned


def due(job: Job) -> float:
    """Return since when a job needs a machine. One that waits behind a full set is for none of its runners yet."""
    begun, last = max(job.since, job.assigned), job.unassigned_since
    return begun if last is None else last + RETRY_SHARE * (last - begun)


def _idle(free: Sequence[Machine], idle_long: Collection[Machine], *, surplus: int) -> dict[str, str]:
    """Return the oldest of the machines above the target that have been online without a job for long enough."""
    oldest = sorted(free, key=lambda machine: machine.started)[: max(surplus, 0)]
    return {machine.id: "idle" for machine in oldest if machine in idle_long}


def _desired(
    now: float,
    rules: Rules,
    fleet: _Fleet,
    end: Collection[str],
    waiting: Sequence[Job],
    free: int,
    target: int,
    last: Shortage | None,
    lost: Collection[str],
) -> tuple[dict[str, int], Shortage | None]:
    """Return the desired number of machines by kind of capacity, never below those that stay, and a changed shortage.

    Any kind of capacity may be unavailable: each is asked for in turn, by how long machines have been missing.
    """
    staying = [machine for machine in fleet.staying if machine.id not in end]
    counts = {group: sum(machine.group == group for machine in staying) for group in rules.groups}
    rooms = {group: room(now, rules, fleet.machines, group) for group in rules.groups}
    usable = [group for group in rules.groups if rooms[group] > 0]
    missing = max(target - len(staying), 0)
    if not missing:  # all are there, or on their way: what is missing later is another shortage
        over = last and last.seen and all(machine.running for machine in staying)
        return counts, replace(last, seen=0) if last and over else None
    shortage = _shortage(now, rules, last, fleet.machines, usable, lost, missing)
    # Free machines are for the jobs that have waited longest. The last of the missing ones are for no job yet.
    begin_after_spot = [job.lost for job in waiting[free:]] + [False] * missing
    for after_spot in begin_after_spot[:missing]:
        order = _order(now, rules, usable, shortage, after_spot=after_spot)
        if group := next((group for group in order if rooms[group] > 0), None):
            counts[group] += 1
            rooms[group] -= 1
    return counts, shortage


def _within(
    rules: Rules, fleet: _Fleet, end: Mapping[str, str], desired: Mapping[str, int], requested: Mapping[str, Requested]
) -> dict[str, int]:
    """Return the desired numbers, lower where there could be more machines than ``most``.

    What Auto Scaling was asked for, and does not list, may be on its way. So another kind of capacity is asked for it
    once Auto Scaling has not been asked for a while.
    """
    within, over = dict(desired), -rules.most
    asked, coming = {}, {}
    for group in rules.groups:
        there = [each for each in fleet.staying if each.group == group]
        of_group = requested.get(group, Requested(len(there)))
        asked[group] = sum(each.id not in end for each in there) + max(of_group.now - len(there), 0)
        # GitHub keeps the runner of one that is to end, if it has a job by then.
        kept = sum(end.get(each.id, FINISHED) != FINISHED and not each.gone for each in there)
        coming[group] = asked[group] + of_group.late
        over += max(desired[group], coming[group]) + kept
    # To ask again for what may come anyway adds none, and makes it sure.
    for least in (coming, asked):
        for group in reversed(rules.groups):
            less = min(max(within[group] - least[group], 0), max(over, 0))
            within[group], over = within[group] - less, over - less
    return within


def _order(now: float, rules: Rules, usable: Sequence[str], shortage: Shortage, *, after_spot: bool) -> list[str]:
    """Return the kinds of capacity in the order in which they are tried now; for what spot took, that one is the last.

    Reserved machines that were not free before come first: they are paid for, and have not been tried in vain.
    """
    spot_last = after_spot or shortage.taken >= shortage.since > 0
    first = sorted(usable, key=lambda group: spot_last and group == SPOT)
    turn = int(max(now - shortage.since, 0) // rules.patience) % max(len(first), 1)
    order = [*first[turn:], *first[:turn]]
    is_new = now - shortage.freed < rules.patience
    return sorted(order, key=lambda group: group not in rules.reservations) if is_new else order


def _shortage(
    now: float,
    rules: Rules,
    last: Shortage | None,
    machines: Sequence[Machine],
    usable: Sequence[str],
    lost: Collection[str],
    missing: int,
) -> Shortage:
    """Return the shortage of now: the last one that goes on, or another one.

    Since as many machines of the first kind came as are missing now, that kind has given all that was asked for. While
    EC2 does not describe a machine, it counts as started now, and says nothing.
    """
    going = last if last and now - last.seen <= SAME_SECONDS else Shortage(now, now)
    begun, taken = going.since, going.taken
    if any(machine.group == SPOT and machine.gone and machine.id in lost for machine in machines):
        begun = taken = now  # it comes back as another kind
    first = [each for each in machines if each.group in usable[:1] and each.running and not each.gone]
    # One that was there before the loss does not say that there is capacity again.
    came = sorted(each.started for each in first if each.started > taken)
    given = came[-missing] if missing <= len(came) else 0.0
    if given > going.seen - LISTED_SECONDS:
        begun = now
    freed = (going.freed or now) if any(group in rules.reservations for group in usable) else 0.0
    return Shortage(max(begun, given), now, taken, freed)


def room(now: float, rules: Rules, machines: Sequence[Machine], group: str) -> float:
    """Return how many more machines a kind of capacity has: those of a reservation, else any number."""
    reservation = rules.reservations.get(group)
    if reservation is None:
        return float("inf")
    if reservation.is_over(now):
        return 0
    own = sum(machine.group == group and not machine.gone for machine in machines)
    left = reservation.count - own
    return max(left if reservation.available is None else min(left, reservation.available), 0)


def _held(fleet: _Fleet) -> tuple[list[str], list[str]]:
    """Return the machines that the lifecycle hook must hold, and the ones to release."""
    waiting = [machine.id for machine in fleet.machines if machine.waits]
    held = [name for name in waiting if name in fleet.maybe_busy]
    return held, [name for name in waiting if name not in fleet.maybe_busy]


def _forgotten(fleet: _Fleet, runners: Sequence[Runner]) -> list[int]:
    """Return the runners at GitHub whose machine is no more, unless they may have a job."""
    present = {machine.id for machine in fleet.machines}
    return [each.id for each in runners if not (each.busy or each.unsure) and each.machine not in present]


def _lost(fleet: _Fleet, leaving: Collection[str]) -> set[str]:
    """Return the registered machines whose runner may not have finished its job."""
    here = {
        machine.id
        for machine in fleet.machines
        if not machine.gone
        # EC2 may have taken one that it does not describe, and GitHub's failed job with it.
        and (
            machine.id not in leaving
            or machine.id in fleet.online
            or (machine.running and machine.id not in fleet.known)
        )
    }
    return {*fleet.registered} - here
