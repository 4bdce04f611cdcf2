"""Keeps as many machines as the jobs take: every minute it looks at all there is, and does what ``decide`` says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from .aws import client
from .decide import Decision, Machine, Rules, Runner, decide
from .github import GitHub, Refused
from .jobs import Job, Jobs, Known

CERTAIN = 120
"""Seconds after which GitHub is asked whether a job is still queued: that it was taken may have got lost on its way."""

_ASKED = 50
"""Most jobs that GitHub is asked for at once, the longest waiting first."""


def handle(_event: object, _context: object) -> None:
    """Do one round."""
    Keeper(os.environ).round()


class Keeper:
    """One round's view of AWS and GitHub.

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
        secret = client("secretsmanager").get_secret_value(SecretId=environment["GITHUB_SECRET"])["SecretString"]
        self._github = GitHub(environment["GITHUB_API"], environment["GITHUB_SCOPE"], json.loads(secret))

    def round(self) -> Decision:
        """Look, decide and act, then tell CloudWatch how long the oldest job has waited; return the decision.

        That is told also where GitHub or AWS fail in between: then the alarm rings rather than nothing.
        """
        known = self._jobs.known()
        jobs = known.waiting
        try:
            return self._act(known)
        finally:
            waited = time.time() - jobs[0].since if jobs else 0
            self._measure({"LongestQueued": (waited, "Seconds"), "Queued": (len(jobs), "Count")})

    def _act(self, known: Known) -> Decision:
        jobs = self._still_queued(known.waiting)
        machines, prepared = self._machines(), self._prepared()
        runners = [
            Runner(one["id"], one["name"].removeprefix(self._prefix), one["status"] == "online", one["busy"])
            for one in self._github.runners()
            if one["name"].startswith(self._prefix)
        ]
        done = decide(time.time(), self._rules, jobs, machines, runners, prepared)
        ids = {runner.machine: runner.id for runner in runners}
        groups = {machine.id: self._groups[machine.group] for machine in machines}
        desired = dict(done.desired)
        kinds = {machine.id: machine.group for machine in machines}
        for runner in done.forget:
            self._github.forget(runner)
            _say("forgotten", runner=runner)
        for machine, why in done.end.items():
            if machine in ids and not self._github.forget(ids[machine]):
                desired[kinds[machine]] += 1  # it got a job since: it stays, and counts
                continue
            self._scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=machine, ShouldDecrementDesiredCapacity=True
            )
            if machine in prepared:
                self._drop(machine)
            _say("ended", machine=machine, why=why)
        for machine in done.release:
            if machine not in ids or self._github.forget(ids[machine]):
                go = self._scaling.complete_lifecycle_action
                self._hooked(go, groups[machine], machine, LifecycleActionResult="CONTINUE")
                if machine in prepared:
                    self._drop(machine)
                _say("released", machine=machine)
        for machine in done.hold:
            self._hooked(self._scaling.record_lifecycle_action_heartbeat, groups[machine], machine)
        for kind, count in desired.items():
            self._resize(self._groups[kind], count)
        for machine in done.prepare:
            self._prepare(machine)
        for machine in prepared - {machine.id for machine in machines}:
            self._jobs.lose(f"{self._prefix}{machine}")
            self._drop(machine)
            _say("lost", machine=machine)
        self._again(known)
        for delivery in self._github.deliver_again():
            _say("delivered again", delivery=delivery)
        self._explain(jobs)
        return done

    @property
    def _prefix(self) -> str:
        return f"{self._name}-"

    def _still_queued(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs without those of which GitHub says that they wait no more."""
        asked = [job for job in jobs if time.time() - job.since > CERTAIN][:_ASKED]
        over = {job.id for job in asked if not self._github.queued(job.repository, job.id)}
        for job in asked:
            if job.id in over:
                self._jobs.take(job)
                _say("no longer queued", job=job.id)
        return [job for job in jobs if job.id not in over]

    def _machines(self) -> list[Machine]:
        found: dict[str, tuple[str, str]] = {}
        names = {name: kind for kind, name in self._groups.items()}
        answer = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
        for group in answer["AutoScalingGroups"]:
            for one in group["Instances"]:
                found[one["InstanceId"]] = (names[group["AutoScalingGroupName"]], one["LifecycleState"])
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag:aws:autoscaling:groupName", "Values": list(names)}]
        )
        started = {
            one["InstanceId"]: one["LaunchTime"].timestamp()
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        }
        return [
            Machine(machine, kind, started.get(machine, time.time()), leaving=state.startswith("Terminating"))
            for machine, (kind, state) in sorted(found.items())
        ]

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

    def _drop(self, machine: str) -> None:
        """Take away a machine's configuration, by which it is known to be there still, or to have been lost."""
        self._ssm.delete_parameter(Name=f"{self._path}/{machine}")

    def _again(self, known: Known) -> None:
        """Run the jobs again that failed on a machine that was lost: taken back by AWS, or broken."""
        for runner, job in known.failed:
            if runner not in known.lost:
                continue
            try:
                done = self._github.again(job.repository, job.id)
            except Refused as refused:
                _say("not run again", job=job.id, why=str(refused))
                self._jobs.take(job)
                continue
            if done:
                self._jobs.take(job)
                _say("run again", job=job.id)

    def _resize(self, group: str, count: int) -> None:
        answer = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        found = answer["AutoScalingGroups"][0]
        count = min(count, found["MaxSize"])  # there are more where the most was lowered: they end with their jobs
        if found["DesiredCapacity"] != count:
            self._scaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=count, HonorCooldown=False)
            _say("resized", group=group, machines=count)

    def _hooked(self, call: Any, group: str, machine: str, **more: str) -> None:
        call(AutoScalingGroupName=group, LifecycleHookName=self._hook, InstanceId=machine, **more)

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


def _say(what: str, **about: object) -> None:
    print(json.dumps({"did": what, **about}))  # noqa: T201 - what a function prints is its log
