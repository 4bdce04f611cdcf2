"""Keeps as many machines as the jobs take: every minute it looks at all there is, and does what ``decide`` says."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from .aws import FAILURES, client, secret
from .decide import Decision, Machine, Rules, Runner, decide
from .github import Credentials, GitHub, Refused
from .jobs import Job, Jobs, Known

CERTAIN = 120
"""Seconds after which GitHub is asked whether a job is still queued: that it was taken may have got lost on its way."""

LATER = 600
"""Seconds after which GitHub is asked anew for a job that waits for something else than a runner: likewise."""

_ASKED = 50
"""Most jobs that GitHub is asked for at once, the longest waiting first."""


_ROUND = 42.0
"""Seconds of a round in which GitHub is asked. Lambda ends it at 55, and AWS's own calls take the rest at most."""

_SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What is raised where an answer is not of the shape that GitHub or AWS documents."""

_LEFT = "GitHub gives it to no runner here: may the runner group its repository?"

Groups = dict[str, dict[str, Any]]
"""What AWS says of each group, by kind of capacity."""


def handle(_event: object, _context: object) -> None:
    """Do one round."""
    Keeper(os.environ).round()


class Keeper:
    """One round's view of AWS and GitHub.

    Whatever fails of either, or of the network, costs the call that it fails, and what stands on its answer.

    Args:
        environment: of the function, as ``components.runners.ec2.component`` writes it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._name = environment["NAME"]
        self._groups: dict[str, str] = json.loads(environment["GROUPS"])
        self._rules = Rules(groups=tuple(self._groups), **json.loads(environment["RULES"]))
        self._labels = environment["LABELS"].split(",")
        self._runner_group = int(environment["RUNNER_GROUP"])
        self._role = environment["RUNNER_ROLE"]
        self._path = environment["CONFIGS"]
        self._hook = environment["HOOK"]
        self._metrics = environment["METRICS"]
        self._scaling = client("autoscaling")
        self._ec2 = client("ec2")
        self._ssm = client("ssm")
        self._jobs = Jobs(client("dynamodb"), environment["JOBS"])
        credentials = partial(_credentials, environment["GITHUB_SECRET"])
        until = time.time() + _ROUND
        self._github = GitHub(environment["GITHUB_API"], environment["GITHUB_SCOPE"], credentials, until)

    def round(self) -> Decision | None:
        """Look, decide and act, then tell CloudWatch how long the oldest job has waited.

        Returns:
            The decision; None where AWS does not tell of the groups.
        """
        known = _answer("read the jobs", self._jobs.known)
        jobs = known.waiting if known else []
        try:
            # In this order: a machine that has a configuration had its runner before, and one whose runner signs off
            # since AWS takes it away is seen to be gone.
            prepared = _answer("read the configurations", self._prepared)
            runners = _answer("list the runners", self._runners)
            groups = _answer("describe the groups", self._described)
            done = None
            machines = None if groups is None else _answer("list the machines", partial(self._machines, groups))
            if groups is not None and machines is not None:
                done = decide(time.time(), self._rules, known.waiting if known else None, machines, runners, prepared)
                # A configuration stays for as long as it is not known whether its machine was lost.
                configured = prepared or set() if runners is not None else set()
                self._act(done, groups, machines, runners or [], jobs, configured)
            if known:
                self._still_queued(known)
                self._again(known)
            with _refusal("deliver again"):
                for delivery in self._github.deliver_again():
                    _say("delivered again", delivery=delivery)
            with _refusal("explain"):
                self._explain([job for job in jobs if job.left is None])
            return done
        finally:
            if known:  # else the alarm rings for want of a word
                waited = time.time() - jobs[0].since if jobs else 0
                with _refusal("measure"):
                    self._measure({"LongestQueued": (waited, "Seconds"), "Queued": (len(jobs), "Count")})

    def _act(
        self,
        done: Decision,
        groups: Groups,
        machines: Sequence[Machine],
        runners: Sequence[Runner],
        jobs: Sequence[Job],
        prepared: Collection[str],
    ) -> None:
        """Do what was decided: first what takes AWS alone, since GitHub may take all the time that there is."""
        gone = {machine.id for machine in machines if machine.gone}  # GitHub has nothing to agree to
        ids = {runner.machine: runner.id for runner in runners if runner.machine not in gone}
        kinds = {machine.id: machine.group for machine in machines}
        desired = dict(done.desired)
        for machine in done.end:
            desired[kinds[machine]] += 1  # until it is ended, it counts
        for kind, count in desired.items():
            with _refusal("resize", group=self._groups[kind]):
                self._resize(groups[kind], max(count, groups[kind]["DesiredCapacity"]))
        for machine in done.hold:
            with _refusal("hold", machine=machine):
                self._hooked(self._scaling.record_lifecycle_action_heartbeat, self._groups[kinds[machine]], machine)
        for machine in done.prepare:
            with _refusal("register", machine=machine):
                self._prepare(machine)
        for job in jobs:
            if job.id in done.left:
                with _refusal("leave", job=job.id):
                    self._jobs.leave(job)
                    _say(
                        "left",
                        job=job.id,
                        why="GitHub gives it to no runner here: may the runner group its repository?",
                    )
        for runner in done.forget:
            with _refusal("forget", runner=runner):
                self._github.forget(runner)
                _say("forgotten", runner=runner)
        self._let_go(done, groups, desired, kinds, ids, prepared)
        for kind, count in desired.items():
            with _refusal("resize", group=self._groups[kind]):
                self._resize(groups[kind], count)
        for machine in set(done.lost) - {*done.end, *done.release}:
            with _refusal("lose", machine=machine):
                self._over(machine, prepared, done.lost)

    def _let_go(
        self,
        done: Decision,
        groups: Groups,
        desired: dict[str, int],
        kinds: Mapping[str, str],
        ids: Mapping[str, int],
        prepared: Collection[str],
    ) -> None:
        """End machines and let those go that wait to, where GitHub forgets their runners; ``ids`` are the runners'."""
        for machine, why in done.end.items():
            group = groups[kinds[machine]]
            with _refusal("end", machine=machine):
                if machine in ids and not self._github.forget(ids[machine]):
                    continue  # it got a job since
                fewer = group["DesiredCapacity"] > 0  # AWS refuses to have fewer than none
                self._scaling.terminate_instance_in_auto_scaling_group(
                    InstanceId=machine, ShouldDecrementDesiredCapacity=fewer
                )
                group["DesiredCapacity"] -= fewer
                desired[kinds[machine]] -= 1
                self._over(machine, prepared, done.lost)
                _say("ended", machine=machine, why=why)
        for machine in done.release:
            with _refusal("release", machine=machine):
                if machine not in ids or self._github.forget(ids[machine]):
                    self._over(machine, prepared, done.lost)  # first: after it, that the machine is gone is no loss
                    go = self._scaling.complete_lifecycle_action
                    self._hooked(go, self._groups[kinds[machine]], machine, LifecycleActionResult="CONTINUE")
                    _say("released", machine=machine)

    @property
    def _prefix(self) -> str:
        return f"{self._name}-"

    def _still_queued(self, known: Known) -> None:
        """Note of the jobs that wait which of them do not, or not for a runner, as GitHub says: the next round sees it.

        Where it does not say (the repository is none that the App may read), a job waits on.
        """
        now = time.time()
        waiting = [job for job in known.waiting if now - job.since > CERTAIN][:_ASKED]
        later = [job for job in known.later if now - job.since > LATER][:_ASKED]
        for job in waiting + later:
            with _refusal("ask for", job=job.id):
                state = self._github.state(job.repository, job.id)
                if state == "queued":
                    if job in later:
                        self._jobs.queue(job)
                    continue
                if state in {"in_progress", "completed"}:
                    self._jobs.take(job)
                else:
                    self._jobs.postpone(job)
                _say("not queued", job=job.id, state=state)

    def _runners(self) -> list[Runner]:
        """Return the runners at GitHub that are of this stack's machines; another's name may begin alike."""
        name = re.compile(rf"{re.escape(self._prefix)}(i-[0-9a-f]+)")
        return [
            Runner(int(one["id"]), match[1], one["status"] == "online", bool(one["busy"]))
            for one in self._github.runners()
            if (match := name.fullmatch(one["name"]))
        ]

    def _described(self) -> Groups:
        """Return what AWS says of each group. Raises Refused where it has none of that name, or not yet."""
        answer = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(self._groups.values()))
        groups = {group["AutoScalingGroupName"]: group for group in answer["AutoScalingGroups"]}
        if missing := set(self._groups.values()) - set(groups):
            raise Refused(0, f"AWS has no group {', '.join(sorted(missing))}")
        return {kind: groups[name] for kind, name in self._groups.items()}

    def _machines(self, groups: Mapping[str, Mapping[str, Any]]) -> list[Machine]:
        known = _answer("describe the machines", self._instances) or {}
        machines = []
        for kind, group in groups.items():
            for one in group["Instances"]:
                machine, state = one["InstanceId"], one["LifecycleState"]
                started, runs = known.get(machine, (time.time(), "pending"))  # EC2 tells of a new one a moment later
                machines.append(
                    Machine(
                        machine,
                        kind,
                        started,
                        leaving=state.startswith("Terminat"),
                        waits=state == "Terminating:Wait",
                        gone=runs not in {"pending", "running"},
                    )
                )
        return sorted(machines, key=lambda machine: machine.id)

    def _instances(self) -> dict[str, tuple[float, str]]:
        """Return when each machine started and how it stands, by EC2's word."""
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag:aws:autoscaling:groupName", "Values": list(self._groups.values())}]
        )
        return {
            one["InstanceId"]: (one["LaunchTime"].timestamp(), one["State"]["Name"])
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        }

    def _prepared(self) -> set[str]:
        pages = self._ssm.get_paginator("get_parameters_by_path").paginate(Path=self._path, WithDecryption=False)
        return {one["Name"].rpartition("/")[2] for page in pages for one in page["Parameters"]}

    def _prepare(self, machine: str) -> None:
        """Register a runner for a machine and put its configuration where that machine alone may read it."""
        try:
            config = self._github.register(f"{self._prefix}{machine}", self._labels, self._runner_group)
        except Refused as refused:
            if refused.status == 409:  # made by a round that ended before it could say so: the next one makes it anew
                for one in self._github.runners():
                    if one["name"] == f"{self._prefix}{machine}":
                        self._github.forget(one["id"])
                return
            raise
        self._ssm.put_parameter(
            Name=f"{self._path}/{machine}",
            Value=config,
            Type="SecureString",
            Tier="Intelligent-Tiering",  # more than 4 KiB take the advanced tier
            Tags=[{"Key": "runner", "Value": f"{self._role}:{machine}"}],
        )
        _say("registered", machine=machine)

    def _over(self, machine: str, prepared: Collection[str], lost: Collection[str]) -> None:
        """Take away the configuration of a machine that goes; while it is there, the machine may yet be lost."""
        if machine in lost:
            self._jobs.lose(f"{self._prefix}{machine}")
            _say("lost", machine=machine)
        if machine in prepared:
            self._ssm.delete_parameter(Name=f"{self._path}/{machine}")

    def _again(self, known: Known) -> None:
        """Run the jobs again that failed on a machine that was lost: taken back by AWS, or broken."""
        for runner, job in known.failed:
            if runner not in known.lost:
                continue
            with _refusal("run again", job=job.id):
                try:
                    if not self._github.again(job.repository, job.id):
                        continue
                    _say("run again", job=job.id)
                except Refused as refused:
                    if refused.passes:
                        raise
                    _say("not run again", job=job.id, why=str(refused))
                self._jobs.again(job)

    def _resize(self, group: dict[str, Any], count: int) -> None:
        name = group["AutoScalingGroupName"]
        count = min(count, group["MaxSize"])  # there are more where the most was lowered: they end with their jobs
        if group["DesiredCapacity"] != count:
            self._scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=count, HonorCooldown=False)
            group["DesiredCapacity"] = count
            _say("resized", group=name, machines=count)

    def _hooked(self, call: Any, group: str, machine: str, **more: str) -> None:
        try:
            call(AutoScalingGroupName=group, LifecycleHookName=self._hook, InstanceId=machine, **more)
        except ClientError as error:
            if "No active Lifecycle Action" not in str(error):  # it has gone on since it was looked at
                raise

    def _explain(self, jobs: list[Job]) -> None:
        """Say why there is no machine for a job that has waited longer than capacity may take."""
        if not jobs or time.time() - jobs[0].since < self._rules.patience:
            return
        for group in self._groups.values():
            answer = self._scaling.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=5)
            for activity in answer["Activities"]:
                if activity["StatusCode"] == "Failed":
                    _say("refused", group=group, why=activity.get("StatusMessage", ""))

    def _measure(self, values: Mapping[str, tuple[float, str]]) -> None:
        dimensions = [{"Name": "Runners", "Value": self._name}]
        client("cloudwatch").put_metric_data(
            Namespace=self._metrics,
            MetricData=[
                {"MetricName": name, "Value": value, "Unit": unit, "Dimensions": dimensions}
                for name, (value, unit) in values.items()
            ],
        )


Seen = TypeVar("Seen")


def _answer(what: str, look: Callable[[], Seen]) -> Seen | None:
    """Return what there is to see, or None where GitHub or AWS does not show it."""
    with _refusal(what):
        return look()
    return None


@contextmanager
def _refusal(what: str, **about: object) -> Iterator[None]:
    """Go on with the rest where GitHub or AWS refuses one thing, and say so: the next round tries it again."""
    try:
        yield
    except (Refused, *FAILURES) as refused:
        _say("refused", to=what, why=str(refused), **about)
    except _SHAPE as error:
        _say("refused", to=what, why=f"the answer has another shape than documented: {error!r}"[:300], **about)


def _credentials(arn: str) -> Credentials:
    """Return who asks GitHub, from Secrets Manager. Raises Refused where the secret is not JSON."""
    try:
        credentials = json.loads(secret(arn))
    except ValueError:
        credentials = None
    if not isinstance(credentials, dict):
        raise Refused(0, f"the secret {arn} is no JSON object with a token, or with app, installation and privateKey")
    return credentials


def _say(what: str, **about: object) -> None:
    print(json.dumps({"did": what, **about}))  # noqa: T201 - what a function prints is its log
