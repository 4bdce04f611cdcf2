"""Keeps as many machines as the jobs need: every minute it reads the state of all, and does what ``decide`` says."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from .aws import FAILURES, SHAPE, capacity_reservations, client, log, pages, reason, secret
from .decide import LISTED_SECONDS, Decision, Machine, Requested, Reserved, Rules, Runner, decide, room
from .fleet_status import status
from .github import Credentials, GitHub, Refused
from .jobs import Job, Jobs, Rows
from .schedule import least
from .waiting import Standing, as_json

RECHECK_SECONDS = 120
"""Seconds after which GitHub is asked whether a job is still queued, because a delivery may have been lost."""

POSTPONED_RECHECK_SECONDS = 600
"""The same for a job that waits for something else than a runner."""

_MOST_RECHECKED = 50
"""Most runners, and jobs of each kind, that GitHub is asked about in one round, if it takes so many calls.

The next ones ask more.
"""

_ASKING_SECONDS = 10.0
"""Seconds after which a round begins no more calls for one runner each: its machines wait for their runners."""

_GOLDEN = (5**0.5 - 1) / 2
"""By which part of the jobs each minute's first one is after the last minute's: the most even of all such steps."""

_GITHUB_SECONDS = 42.0
"""Seconds of a round for GitHub. Lambda ends a round at 55, and AWS's own calls take at most the rest."""

_REFUSED_SECONDS = 3 * 3600
"""Seconds after the failure of a job for which GitHub is asked to run it again, whatever it answers."""

_KEPT_SECONDS = 3600
"""Seconds after its ``boot`` for which a configuration stays that its machine has not fetched and deleted."""

_MOST_REPORTED = 500
"""Most jobs in the report of a round: a row of DynamoDB has at most 400 KB."""

_TAKEN_BACK_SECONDS = 300
"""Seconds for which it is known what Auto Scaling is no longer asked for: as old as what a round has read, at most."""

Groups = dict[str, dict[str, Any]]
"""AWS's description of each group, by kind of capacity."""


def handle(_event: object, _context: object) -> None:
    """Do one round."""
    Keeper(os.environ).round()


@dataclass(frozen=True)
class View:
    """What a round has read, after the request for its jobs; None for what could not be read.

    ``at`` is when it began to read the groups, in seconds since 1970.
    """

    at: float
    rules: Rules
    rows: Rows | None
    groups: Groups
    machines: Sequence[Machine]
    runners: Sequence[Runner] | None
    prepared: Collection[str] | None


class Keeper:
    """One round's view of AWS and GitHub. A failed call costs only what needs its answer.

    Args:
        environment: the function's variables, which ``components.runners.ec2.scaler_functions`` sets.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._name = environment["NAME"]
        self._groups: dict[str, str] = json.loads(environment["GROUPS"])
        self._rules = Rules(groups=tuple(self._groups), **json.loads(environment["RULES"]))
        self._schedule: dict[str, Any] = json.loads(environment.get("SCHEDULE", "{}"))
        # By id: its machines, its end, and the last seconds before the end, in which no job starts there.
        self._reserved: dict[str, dict[str, Any]] = json.loads(environment.get("RESERVATIONS", "{}"))
        self._labels = environment["LABELS"].split(",")
        self._runner_group = int(environment["RUNNER_GROUP"])
        self._configs = environment["CONFIGS"]
        self._arn = environment["MACHINES"]
        self._hook = environment["HOOK"]
        self._metrics = environment["METRICS"]
        self._view: View | None = None
        self._whole = True
        # The machines about whose runner GitHub was asked.
        self._asked: set[str] = set()
        # Another thread may request machines meanwhile, for jobs that this round does not know: by kind, how many there
        # are to be, and which machines end by then.
        self._resizing = threading.Lock()
        self._raised: dict[str, tuple[int, frozenset[str]]] = {}
        self._ended: set[str] = set()
        # What Auto Scaling is no longer asked for: when, of which group, and how many.
        self._taken_back: list[tuple[float, str, int]] = []
        self._scaling = client("autoscaling")
        self._ec2 = client("ec2")
        self._jobs = Jobs(client("dynamodb"), environment["JOBS"])
        self._refused: dict[str, list[str]] = defaultdict(list)
        login = partial(credentials, environment["GITHUB_SECRET"])
        until = time.time() + _GITHUB_SECONDS
        self._github = GitHub(environment["GITHUB_API"], environment["GITHUB_SCOPE"], login, until)

    def round(self) -> Decision | None:
        """Read, decide and act, then tell CloudWatch how long the oldest job has waited, and the table why.

        Returns:
            The decision; None if the groups could not be read.
        """
        rows = _result("read the jobs", self._jobs.rows)
        if rows and rows.unreadable:
            log("refused", to="read the jobs", why=f"{rows.unreadable} rows of the table are not a job's")
        waiting = self._waiting(rows)
        prepared = runners = machines = None
        minimum = least(time.time(), self._rules.least, self._schedule)
        rules = replace(self._rules, least=minimum, reservations=self._reservations())
        try:
            # The order matters: a machine gets its runner before it is noted, and a runner that signs off because AWS
            # takes its machine away must be listed before that machine.
            prepared = rows.registered if rows else None
            runners = _result(
                "list the runners", partial(self._runners, rows.runners if rows else {}), self._refused["runners"]
            )
            at = time.time()
            groups = _result("describe the groups", self._group_descriptions, self._refused["machines"])
            decision = None
            if groups is not None:
                machines = _result("list the machines", partial(self._machines, groups), self._refused["machines"])
            if groups is not None and machines is not None:
                runners = self._confirmed(machines, runners, at)
                view = View(at, rules, rows, groups, machines, runners, prepared)
                waiting = self._waiting(rows)  # a listener may know more by now
                decision = self._decide(view, waiting, at)
                self._refused["launches"] += _without_room(rules, machines)
                # A machine stays noted until it is known whether it was lost.
                configured = prepared or {} if runners is not None else {}
                desired = self._raise(decision, groups, machines)
                self._raised.clear()
                self._view = view
                self._act(decision, desired, groups, machines, runners or [], rows or Rows(), configured)
            if rows and decision and decision.shortage:
                with refusal("note the shortage"):
                    self._jobs.note_shortage(decision.shortage)
            self._catch_up(rows)
            with refusal("explain"):
                self._explain([job for job in waiting or () if job.unassigned_since is None])
            return decision
        finally:
            if waiting is not None:  # without a measurement, the alarm is raised
                waited = time.time() - waiting[0].since if waiting else 0
                with refusal("report"):
                    self._report(status(time.time(), rules, waiting, machines, runners, prepared, self._refused))
                with refusal("measure"):
                    self._measure({"LongestQueued": (waited, "Seconds"), "Queued": (len(waiting), "Count")})

    def _catch_up(self, rows: Rows | None) -> None:
        """Ask GitHub, in each minute, about jobs that wait for long or were lost, and for lost deliveries."""
        if not self._whole:
            return
        if rows:
            self._recheck(rows)
            self._rerun(rows)
        self._deliver_again()

    def _decide(self, view: View, waiting: Sequence[Job] | None, now: float) -> Decision:
        """Return what to do by what a round has read, for the jobs that wait."""
        since = view.at - LISTED_SECONDS  # a listener decides again by a view of before
        late: Counter[str] = Counter()
        for at, name, count in self._taken_back:
            late[name] += count if at > since else 0
        requested = {
            kind: Requested(group["DesiredCapacity"], late[group["AutoScalingGroupName"]])
            for kind, group in view.groups.items()
        }
        last = view.rows.shortage if view.rows else None
        return decide(now, view.rules, waiting, view.machines, view.runners, view.prepared, last, requested)

    def _raise(self, decision: Decision, groups: Groups, machines: Sequence[Machine]) -> dict[str, int]:
        """Request the machines that are missing; return the desired numbers, in which those to end count yet."""
        kinds = {machine.id: machine.group for machine in machines}
        desired = dict(decision.desired)
        for machine in decision.end:
            desired[kinds[machine]] += 1
        for kind, count in desired.items():
            with refusal("resize", group=self._groups[kind]), self._resizing:
                # What the round has ended since this was decided counts no more.
                ended = sum(kinds[machine] == kind for machine in self._ended & decision.end.keys())
                self._resize(groups[kind], max(count - ended, groups[kind]["DesiredCapacity"]))
                if decision.desired[kind] >= self._raised.get(kind, (0,))[0]:
                    self._raised[kind] = decision.desired[kind], frozenset(decision.end)
        return desired

    def _act(
        self,
        decision: Decision,
        desired: dict[str, int],
        groups: Groups,
        machines: Sequence[Machine],
        runners: Sequence[Runner],
        rows: Rows,
        prepared: Collection[str],
    ) -> None:
        """Do all else that was decided: first what needs only AWS, because GitHub may take all the time."""
        gone = {machine.id for machine in machines if machine.gone}  # GitHub need not agree to their end
        # A runner that the list lacks may have a job all the same.
        every = {**rows.runners, **{runner.machine: runner.id for runner in runners}}
        ids = {machine: number for machine, number in every.items() if machine not in gone}
        kinds = {machine.id: machine.group for machine in machines}
        for machine in decision.hold:
            with refusal("hold", machine=machine):
                self._hooked(self._scaling.record_lifecycle_action_heartbeat, self._groups[kinds[machine]], machine)
        self._prepare_all(decision.prepare, rows)
        for job in decision.unassigned:
            with refusal("leave", job=job):
                self._leave(job, rows)
                log("left", job=job, why="GitHub gave it to no runner here: may the runner group its repository?")
        for runner in decision.forget:
            with refusal("forget", runner=runner):
                self._forget(runner)
                log("forgotten", runner=runner)
        self._end_machines(decision, groups, desired, kinds, ids, prepared)
        for kind, count in desired.items():
            with refusal("resize", group=self._groups[kind]), self._resizing:
                raised, ends = self._raised.get(kind, (0, frozenset()))
                # They were to end, and have got a job. The other thread may know, and count them already.
                kept = sum(kinds[machine] == kind for machine in ends & decision.end.keys() - self._ended)
                self._resize(groups[kind], max(count, raised + kept))
        for machine in set(decision.lost) - {*decision.end, *decision.release}:
            with refusal("lose", machine=machine):
                self._forget_machine(machine, prepared, decision.lost)

    def _end_machines(
        self,
        decision: Decision,
        groups: Groups,
        desired: dict[str, int],
        kinds: Mapping[str, str],
        ids: Mapping[str, int],
        prepared: Collection[str],
    ) -> None:
        """End machines, and release waiting ones, once GitHub removed their runners; ``ids`` are the runners'."""
        for machine, why in decision.end.items():
            group = groups[kinds[machine]]
            with refusal("end", machine=machine):
                if machine in ids and not self._forget(ids[machine]):
                    continue  # meanwhile it got a job
                with self._resizing:
                    fewer = group["DesiredCapacity"] > 0  # AWS refuses a number below 0
                    self._scaling.terminate_instance_in_auto_scaling_group(
                        InstanceId=machine, ShouldDecrementDesiredCapacity=fewer
                    )
                    group["DesiredCapacity"] -= fewer
                    self._ended.add(machine)
                desired[kinds[machine]] -= 1
                self._forget_machine(machine, prepared, decision.lost)
                log("ended", machine=machine, why=why)
        for machine in decision.release:
            with refusal("release", machine=machine):
                if machine not in ids or self._forget(ids[machine]):
                    # First: from then on, the machine's end is not a loss.
                    self._forget_machine(machine, prepared, decision.lost)
                    go = self._scaling.complete_lifecycle_action
                    self._hooked(go, self._groups[kinds[machine]], machine, LifecycleActionResult="CONTINUE")
                    log("released", machine=machine)

    def _waiting(self, rows: Rows | None) -> list[Job] | None:
        """Return the jobs that wait, the longest waiting first; None if they could not be read."""
        return rows.waiting if rows else None

    def _leave(self, job: int, rows: Rows) -> None:
        """Note that GitHub gave a job to none of these runners."""
        for one in rows.waiting:
            if one.id == job:
                self._jobs.unassign(one)

    def _forget(self, runner: int) -> bool:
        """Remove a runner at GitHub; return false if it has a job now."""
        return self._github.forget(runner)

    @property
    def _prefix(self) -> str:
        return f"{self._name}-"

    @property
    def _listing(self) -> float:
        """How many calls a minute list the runners."""
        return self._github.pages

    @property
    def _singles(self) -> float:
        """How many calls a minute may each be for one job, or one runner.

        Of the calls that GitHub takes, those for the lists of runners come first, and half of the others are left for
        machines to come.
        """
        return max((self._github.spare - self._listing) / 2 - len(self._asked), 1.0)

    def _recheck(self, rows: Rows) -> None:
        """Ask GitHub about jobs after a long wait, and note those that no longer wait for a runner.

        Without an answer, as for a repository that the App may not read, the job waits on.
        """
        now, most = time.time(), self._singles
        waiting = _turn(now, [job for job in rows.waiting if now - job.since > RECHECK_SECONDS], most)
        most = max(most - len(waiting), 1.0)  # however many wait for a runner, the others have their turn
        postponed = _turn(now, [job for job in rows.postponed if now - job.since > POSTPONED_RECHECK_SECONDS], most)
        for job in waiting + postponed:
            with refusal("ask for", job=job.id):
                state = self._github.state(job.repository, job.id)
                if state == "queued":
                    if job in postponed:
                        self._jobs.queue(job)
                    continue
                if state in {"in_progress", "completed"}:
                    self._jobs.dequeue(job)
                else:
                    self._jobs.postpone(job)
                log("not queued", job=job.id, state=state[:40])

    def _runners(self, known: Mapping[str, int]) -> list[Runner]:
        """Return the runners at GitHub of this stack's machines. A runner of another stack may have the same prefix.

        GitHub's list may lack some, or all: those ``known``, by their machines, are then asked for one by one, and
        before the machines are listed, as the list is.
        """
        names = re.compile(rf"{re.escape(self._prefix)}(i-[0-9a-f]+)")
        runners = [_runner(one, match[1]) for one in self._github.runners() if (match := names.fullmatch(one["name"]))]
        missing = {machine: known[machine] for machine in sorted({*known} - {one.machine for one in runners})}
        return [*runners, *self._asked_for(missing)]

    def _confirmed(self, machines: Sequence[Machine], runners: list[Runner] | None, now: float) -> list[Runner] | None:
        """Return the runners, None if they were not listed; GitHub's list may show all as offline for a moment.

        Those that had the time to come online by ``now`` are asked for one by one: their machines would end. One that
        is gone stays as listed: AWS may have taken its machine and its job.
        """
        if runners is None:
            return None
        since = now - self._rules.boot
        old = {each.id for each in machines if each.started < since and not (each.gone or each.leaving)} - self._asked
        offline = [each for each in runners if each.machine in old and not (each.online or each.busy or each.unsure)]
        answers = {each.machine: each for each in self._asked_for({each.machine: each.id for each in offline})}
        return [answers.get(each.machine, each) for each in runners]

    def _asked_for(self, numbers: Mapping[str, int]) -> list[Runner]:
        """Return the runners of some machines as GitHub has each; unsure are those of which it does not say now.

        Once a minute, it is asked for as many as it takes calls, in turn.
        """
        runners = {one: Runner(number, one, online=False, busy=False, unsure=True) for one, number in numbers.items()}
        now, most = time.time(), self._singles if self._whole else 0
        for machine in _turn(now, [*numbers], most):
            if time.time() - now > _ASKING_SECONDS:
                break
            self._asked.add(machine)
            with refusal("ask for a runner", machine=machine):
                answer = self._github.runner(numbers[machine])
                if answer and answer["name"] == f"{self._prefix}{machine}":
                    runners[machine] = _runner(answer, machine)
                else:
                    del runners[machine]
        return [*runners.values()]

    def _group_descriptions(self) -> Groups:
        """Return AWS's description of each group. Raises Refused if a group does not exist, or not yet."""
        answer = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(self._groups.values()))
        groups = {group["AutoScalingGroupName"]: group for group in answer["AutoScalingGroups"]}
        if missing := set(self._groups.values()) - set(groups):
            raise Refused(0, f"AWS has no group {', '.join(sorted(missing))}")
        return {kind: groups[name] for kind, name in self._groups.items()}

    def _reservations(self) -> dict[str, Reserved]:
        """Return the reservations as EC2 has them now: one may end sooner or later than when the stack was deployed.

        Without an answer, they are as they were known then. One that EC2 no longer knows is over.
        """
        described = _result("describe the reservations", self._described) if self._reserved else {}
        reservations = {}
        for name, known in self._reserved.items():
            current = None
            if described is not None:
                current = _result("read a reservation", partial(_current, described.get(name, {}), known["lead"]))
            if current is None:
                reservations[name] = Reserved(known["count"], until=known["ends"] and known["ends"] - known["lead"])
                continue
            reservations[name], ends = current
            if ends is not None:
                with refusal("measure"):
                    left = max(ends - time.time(), 0.0) / 3600
                    self._measure({"ReservationHoursLeft": (left, "None")}, Reservation=name)
        return reservations

    def _described(self) -> dict[str, Mapping[str, Any]]:
        """Return EC2's description of every reservation: asked for by id, one that is gone would fail them all."""
        return {str(one["CapacityReservationId"]): one for one in capacity_reservations(self._ec2)}

    def _machines(self, groups: Mapping[str, Mapping[str, Any]]) -> list[Machine]:
        instances = _result("describe the machines", self._instances) or {}
        machines = []
        for kind, group in groups.items():
            for one in group["Instances"]:
                machine, state = one["InstanceId"], one["LifecycleState"]
                started, state_at_ec2 = instances.get(
                    machine, (time.time(), "pending")
                )  # EC2 lists a new one a moment later
                machines.append(
                    Machine(
                        machine,
                        kind,
                        started,
                        leaving=state.startswith("Terminat"),
                        waits=state == "Terminating:Wait",
                        gone=state_at_ec2 not in {"pending", "running"},
                        running=state_at_ec2 == "running",
                    )
                )
        return sorted(machines, key=lambda machine: machine.id)

    def _instances(self) -> dict[str, tuple[float, str]]:
        """Return the start and the state of each machine at EC2."""
        filters = [{"Name": "tag:aws:autoscaling:groupName", "Values": list(self._groups.values())}]
        return {
            one["InstanceId"]: (one["LaunchTime"].timestamp(), one["State"]["Name"])
            for page in pages(self._ec2, "describe_instances", Filters=filters)
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        }

    def _prepare_all(self, machines: Sequence[str], _rows: Rows) -> None:
        for machine in machines:
            with refusal("register", self._refused[machine], machine=machine):
                self._prepare(machine)

    def _register(self, machine: str) -> tuple[str, int | None, bool]:
        """Return a runner's configuration, its id, and whether it is of a scale set."""
        config, runner = self._github.register(f"{self._prefix}{machine}", self._labels, self._runner_group)
        return config, runner, False

    def _prepare(self, machine: str) -> None:
        """Register a runner for a machine, and put its configuration where the machine alone may read it.

        The key is what the machine's policy names, ``${ec2:SourceInstanceARN}``. This function may not read the table.
        """
        try:
            config, runner, in_set = self._register(machine)
        except Refused as refused:
            if refused.status != 409:
                raise
            # An earlier round made this runner and ended before its note. The next round starts again.
            listed = (self._view and self._view.runners) or ()
            same = [runner.id for runner in listed if runner.machine == machine]
            if not same:  # GitHub does not say whose it is
                raise
            for runner in same:
                self._github.forget(runner)
            return
        expires = int(time.time() + self._rules.boot) + _KEPT_SECONDS
        item = {"machine": {"S": f"{self._arn}{machine}"}, "config": {"S": config}, "expires": {"N": str(expires)}}
        self._jobs.note_runner(machine, runner, {"TableName": self._configs, "Item": item}, in_set=in_set)
        log("registered", machine=machine)

    def _forget_machine(self, machine: str, prepared: Collection[str], lost: Collection[str]) -> None:
        """Note that a machine ends. Until then, it may still count as lost."""
        if machine in lost:
            self._jobs.note_lost_runner(f"{self._prefix}{machine}")
            log("lost", machine=machine)
        if machine in prepared:
            self._jobs.forget_runner(machine)

    def _deliver_again(self) -> None:
        """Have GitHub repeat what the webhook did not get."""
        with refusal("deliver again"):
            for delivery in self._github.redeliver():
                log("delivered again", delivery=delivery)

    def _rerun(self, rows: Rows) -> None:
        """Run the jobs again that failed on a lost machine: taken back by AWS, or broken."""
        lost = [job for runner, job in rows.failed if runner in rows.lost_runners]
        for job in _turn(time.time(), lost, _MOST_RECHECKED):
            with refusal("run again", job=job.id):
                try:
                    if not self._github.rerun(job.repository, job.id):
                        continue
                    log("run again", job=job.id)
                except Refused as refused:
                    # In an outage, GitHub answers 404 and the like, too.
                    if refused.passes or time.time() - job.since < _REFUSED_SECONDS:
                        raise
                    log("not run again", job=job.id, why=str(refused))
                self._jobs.note_rerun(job)

    def _resize(self, group: dict[str, Any], count: int) -> None:
        name = group["AutoScalingGroupName"]
        count = min(count, group["MaxSize"])  # more exist after a lower maxRunners: they end with their jobs
        if group["DesiredCapacity"] != count:
            self._scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=count, HonorCooldown=False)
            if count < group["DesiredCapacity"]:
                self._taken_back.append((time.time(), name, group["DesiredCapacity"] - count))
                recent = time.time() - _TAKEN_BACK_SECONDS
                self._taken_back[:] = [each for each in self._taken_back if each[0] > recent]
            group["DesiredCapacity"] = count
            log("resized", group=name, machines=count)

    def _hooked(self, call: Any, group: str, machine: str, **more: str) -> None:
        try:
            call(AutoScalingGroupName=group, LifecycleHookName=self._hook, InstanceId=machine, **more)
        except ClientError as error:
            if "No active Lifecycle Action" not in str(error):  # it has continued meanwhile
                raise

    def _explain(self, jobs: list[Job]) -> None:
        """Note why a job has no machine, if it has waited longer than a start may take."""
        if not jobs or time.time() - jobs[0].since < self._rules.patience:
            return
        for group in self._groups.values():
            answer = self._scaling.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=5)
            for activity in answer["Activities"]:  # the newest first: one that came up since then outweighs a failure
                if activity["StatusCode"] == "Successful" and activity.get("Description", "").startswith("Launching"):
                    break
                if activity["StatusCode"] == "Failed":
                    why = activity.get("StatusMessage", "")[:300]
                    self._refused["launches"].append(why)
                    log("refused", group=group, why=why)

    def _report(self, standings: Sequence[Standing]) -> None:
        """Keep why each job waits, where ``slipway runners status`` reads it."""
        report = {"at": time.time(), "jobs": as_json(standings[:_MOST_REPORTED]), "count": len(standings)}
        self._jobs.note_status(json.dumps(report))

    def _measure(self, values: Mapping[str, tuple[float, str]], **more: str) -> None:
        dimensions = [{"Name": name, "Value": value} for name, value in {"Runners": self._name, **more}.items()]
        client("cloudwatch").put_metric_data(
            Namespace=self._metrics,
            MetricData=[
                {"MetricName": name, "Value": value, "Unit": unit, "Dimensions": dimensions}
                for name, (value, unit) in values.items()
            ],
        )


T = TypeVar("T")


def _runner(one: Mapping[str, Any], machine: str) -> Runner:
    """Return a machine's runner as GitHub has it."""
    return Runner(int(one["id"]), machine, one["status"] == "online", bool(one["busy"]))


def _current(described: Mapping[str, Any], lead: float) -> tuple[Reserved, float | None]:
    """Return a reservation, and its end in seconds since 1970; None without an end.

    No job starts there for the last ``lead`` seconds.
    """
    if described.get("State") != "active":
        return Reserved(0, until=0.0), 0.0
    ends = described["EndDate"].timestamp() if described.get("EndDateType") != "unlimited" else None
    until = ends if ends is None else ends - lead
    return Reserved(int(described["TotalInstanceCount"]), int(described["AvailableInstanceCount"]), until), ends


def _without_room(rules: Rules, machines: Sequence[Machine]) -> list[str]:
    """Return why no machine can be started, where there are reservations alone and none has room."""
    now = time.time()
    if not rules.reservations or any(room(now, rules, machines, group) for group in rules.groups):
        return []
    return [
        f"the capacity reservation {name} "
        + ("has ended, or ends soon" if each.is_over(now) else f"has no room: all {each.count} machines are in use")
        for name, each in rules.reservations.items()
    ]


def _turn(now: float, jobs: Sequence[T], most: float) -> list[T]:
    """Return the jobs, or runners, whose turn it is in the round of this time, at most ``most``.

    How many that is changes from round to round, and no round knows of another: of ``n`` jobs, each has its turn within
    ``2 * n / most`` rounds of any ``most``.
    """
    count = int(min(most, _MOST_RECHECKED))
    first = int(now // 60 * _GOLDEN % 1 * len(jobs))
    return [*jobs[first:], *jobs[:first]][:count]


def _result(what: str, call: Callable[[], T], reasons: list[str] | None = None) -> T | None:
    """Return the result of a call, or None if GitHub or AWS refuses it; ``reasons`` gets the reason."""
    with refusal(what, reasons):
        return call()
    return None


@contextmanager
def refusal(what: str, reasons: list[str] | None = None, **about: object) -> Iterator[None]:
    """Log a refusal of GitHub or AWS and continue with the rest: the next round tries it again.

    ``reasons`` gets the reason.
    """
    try:
        yield
    except (Refused, *FAILURES, *SHAPE) as error:
        log("refused", to=what, why=(why := reason(error)), **about)
        if reasons is not None:
            reasons.append(why)


def credentials(arn: str) -> Credentials:
    """Return the credentials for GitHub from Secrets Manager. Raises Refused if the secret is not JSON."""
    try:
        credentials = json.loads(secret(arn))
    except ValueError:
        credentials = None
    if not isinstance(credentials, dict):
        raise Refused(0, f"the secret {arn} is no JSON object with a token, or with app, installation and privateKey")
    return credentials
