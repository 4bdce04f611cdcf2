"""AWS, GitHub and the machines of a stack of runners on one virtual clock, as far as the scaler sees them.

Each call may fail: refused, unanswered, answered with what nobody understands, or answered too late to be heard. Machines boot, fetch
their configuration, take a job and end themselves as the scripts in ``components/runners/ec2/boot`` have it.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import random
import re
import urllib.error
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from http.client import RemoteDisconnected
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

NAME = "slipway-t"
GROUPS = {"spot": f"{NAME}-spot", "on-demand": f"{NAME}-on-demand"}
MINUTE = 60.0
IDLE, BOOT = 10 * MINUTE, 20 * MINUTE
RULES = {"least": 0, "most": 6, "patience": 300, "idle": IDLE, "boot": BOOT, "lifetime": 7 * 86400.0}
WEBHOOK = "the webhook's secret"
ENVIRONMENT = {
    "JOBS": f"{NAME}-jobs", "GITHUB_SCOPE": "acme", "LABELS": "self-hosted,linux,x64,gpu", "OWN_LABELS": "gpu",
    "WEBHOOK_SECRET": "arn:webhook", "RETRIES": "1", "NAME": NAME, "GROUPS": json.dumps(GROUPS),
    "RULES": json.dumps(RULES), "RUNNER_GROUP": "1", "CONFIGS": f"{NAME}-configs",
    "MACHINES": "arn:aws:ec2:eu-west-1:123456789012:instance/",
    "HOOK": "leave", "METRICS": "Slipway/Runners", "GITHUB_API": "https://api.example", "GITHUB_SECRET": "arn:github",
}  # fmt: skip


class Killed(BaseException):
    """Lambda ends a round that takes more than its 55 seconds."""


class ConditionalCheckFailedException(ClientError):  # type: ignore[misc]
    """DynamoDB's answer where a condition does not hold, with the row that is there, if that was asked for."""

    def __init__(self, row: Mapping[str, Any] | None) -> None:
        error = {"Code": "ConditionalCheckFailedException", "Message": "The conditional request failed"}
        super().__init__({"Error": error, **({"Item": row} if row else {})}, "PutItem")


def holds(condition: str, row: Mapping[str, Any] | None, names: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    """Tell whether a row fits a part of a condition: it lacks an attribute, or that begins with, or is, a value."""
    for part in condition.split(" OR "):
        words = re.findall(r"[#:]?\w+", part)
        given = [values[word] for word in words if word.startswith(":")]
        name = words[0] if words[0] not in {"attribute_not_exists", "begins_with"} else words[1]
        known = (row or {}).get(names.get(name, name))
        if words[0] == "attribute_not_exists":
            fits = known is None
        elif words[0] == "begins_with":
            fits = known is not None and known["S"].startswith(given[0]["S"])
        else:
            fits = known in given
        if fits:
            return True
    return False


@dataclass
class Machine:
    """An instance: when it started, what became of it, and when its use was over."""

    id: str
    group: str
    started: float
    boots: float
    """Seconds until it asks for its configuration; for ever where it does not come up."""
    spot: bool
    runner: int | None = None
    up: float | None = None
    job: int | None = None
    worked: bool = False
    over: float | None = None
    ended: float | None = None
    state: str = "InService"

    @property
    def used_until(self) -> float:
        """When nobody had a use for it any more: its job was over, none came in time, or no runner came up in time."""
        if self.over is not None:
            return self.over
        if self.job is not None:
            return float("inf")
        if self.up is not None:
            return max(self.started + IDLE, self.up)
        return self.started + BOOT


@dataclass
class Job:
    """A job at GitHub: ``waiting`` until ``begins``, then queued, running until ``ends``, and done or failed."""

    id: int
    begins: float
    seconds: float
    state: str = "unborn"
    ends: float = 0.0
    attempt: int = 1
    runner: str | None = None
    again: bool = False


@dataclass
class Faults:
    """How often a call fails, while faults happen; the times at which no scaler runs; the time at which all is well."""

    rate: float
    dead: tuple[float, float]
    until: float


class World:
    """All that there is, at ``now``."""

    def __init__(self, seed: int, faults: Faults, jobs: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_800_000_000.0
        self.start = self.now
        self.faults = faults
        self.killed_at = float("inf")
        self.machines: dict[str, Machine] = {}
        self.desired = dict.fromkeys(GROUPS.values(), 0)
        self.table: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, str] = {}
        self.runners: dict[int, dict[str, Any]] = {}
        self._numbered: dict[str, int] = {}
        self.deliveries: list[dict[str, Any]] = []
        self.capacity = dict.fromkeys(GROUPS.values(), True)
        spread = faults.until * 0.9
        self.jobs = {
            number: Job(number, self.now + self.random.uniform(0, spread), self.random.choice((20.0, 300.0, 2400.0)))
            for number in range(1, jobs + 1)
        }
        self._next = 0

    def most(self, _group: str) -> int:
        """Return the most machines that a group may have."""
        return int(RULES["most"])

    # What the functions have in place of `time`, of boto3's clients and of `urlopen`.

    def time(self) -> float:
        return self.now

    def client(self, service: str) -> Client:
        return Client(self, service)

    def secret(self, arn: str, *, fresh: float = 0) -> str:  # noqa: ARG002 - as the function's own
        self.fail_aws("GetSecretValue")
        return WEBHOOK if arn == "arn:webhook" else json.dumps({"token": "t"})

    def urlopen(self, request: Any, timeout: float) -> Any:
        """Answer a call of GitHub's API, or fail it."""
        self.spend(self.random.uniform(0.05, 0.5))
        path = request.full_url.removeprefix(ENVIRONMENT["GITHUB_API"])
        happens = self._fault()
        if happens and happens < 0.8:
            self._break_github(path, happens, timeout)
        status, answer, *headers = self._github(request.get_method(), path, request.data)
        if happens:  # carried out, and the answer gets lost
            self.spend(timeout)
            raise TimeoutError("The read operation timed out")
        if status >= 400:
            self._refuse(path, status, json.dumps(answer))
        return _Response(json.dumps(answer).encode(), headers[0] if headers else {})

    def _refuse(self, path: str, status: int, text: str) -> None:
        raise urllib.error.HTTPError(path, status, "", Message(), io.BytesIO(text.encode()))

    def _break_github(self, path: str, happens: float, timeout: float) -> None:
        if happens < 0.15:
            raise urllib.error.URLError(OSError("Name or service not known"))
        if happens < 0.3:
            self.spend(timeout)
            raise TimeoutError("timed out")
        if happens < 0.4:
            raise RemoteDisconnected("Remote end closed connection without response")
        if happens < 0.6:
            self._refuse(path, 403, '{"message": "API rate limit exceeded for installation ID 678."}')
        if happens < 0.7:
            self._refuse(path, self.random.choice((401, 500, 502)), "<html>Unicorn!</html>")
        raise ValueError("Expecting value: line 1 column 1 (char 0)")  # as json.loads of what a proxy answers

    def _fault(self) -> float:
        """Return a number in (0, 1] where a call is to fail, and else 0."""
        broken = self.now < self.start + self.faults.until and self.random.random() < self.faults.rate
        return self.random.random() or 1.0 if broken else 0.0

    def fail_aws(self, call: str) -> float:
        """Fail a call of AWS's API before it is carried out; return whether its answer is to get lost."""
        self.spend(self.random.uniform(0.01, 0.1))
        happens = self._fault()
        if not happens or happens > 0.8:
            return happens
        if happens < 0.3:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, call)
        if happens < 0.5:
            raise EndpointConnectionError(endpoint_url="https://aws.example")
        self.spend(8)
        raise ConnectTimeoutError(endpoint_url="https://aws.example")

    def lose_answer(self) -> None:
        """Have a call carried out whose answer is not heard."""
        self.spend(10)
        raise ReadTimeoutError(endpoint_url="https://aws.example")

    def rows(self, _table: str) -> dict[str, dict[str, Any]]:
        """Return the rows of a table by their ids."""
        return self.table

    def config_of(self, machine: Machine) -> str | None:
        """Return the configuration that a machine finds in its place."""
        return self.configs.get(f"{ENVIRONMENT['MACHINES']}{machine.id}")

    def gives(self, _runner: Mapping[str, Any], _job: Job) -> bool:
        """Return whether GitHub gives a job to a runner."""
        return True

    def spend(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.killed_at:
            raise Killed

    # GitHub

    def _github(self, method: str, path: str, data: bytes | None) -> tuple[Any, ...]:
        if match := re.fullmatch(r"/orgs/acme/actions/runners\?per_page=100&page=(\d+)", path):
            first = 100 * (int(match[1]) - 1)
            return 200, {"runners": [dict(runner) for runner in [*self.runners.values()][first : first + 100]]}
        if path.endswith("/generate-jitconfig"):
            name = json.loads(data or b"")["name"]
            if self.has_runner(name):
                return 409, {"message": "Already exists"}
            number = self._register(name)
            return 201, {"encoded_jit_config": str(number)}
        if match := re.fullmatch(r"/orgs/acme/actions/runners/(\d+)", path):
            number = int(match[1])
            if method == "GET":
                return (200, dict(self.runners[number])) if number in self.runners else (404, {})
            if number in self.runners and self.runners[number]["busy"]:
                return 422, {"message": "Runner is currently running a job and cannot be deleted"}
            return (204, None) if self.runners.pop(number, None) else (404, {})
        if match := re.fullmatch(r"/repos/acme/images/actions/jobs/(\d+)(/rerun)?", path):
            job = self.jobs[int(match[1])]
            if not match[2]:
                return 200, {"status": {"running": "in_progress", "failed": "completed"}.get(job.state, job.state)}
            self._rerun(job)
            return 201, {}
        raise AssertionError(f"{method} {path}")

    def has_runner(self, name: str) -> bool:
        """Return whether a runner of a name is registered."""
        return self._numbered.get(name) in self.runners

    def _register(self, name: str) -> int:
        self._next += 1
        self._numbered[name] = self._next
        self.runners[self._next] = {"id": self._next, "name": name, "status": "offline", "busy": False}
        return self._next

    def _rerun(self, job: Job) -> None:
        """Run a job again; the same number stands for it, as a row of the table is there for each attempt."""
        assert job.state == "failed"
        new = max(self.jobs) + 1
        self.jobs[new] = Job(new, self.now, job.seconds, attempt=job.attempt + 1)
        job.again = True

    def deliveries_of(self, job: Job, action: str, **more: Any) -> dict[str, Any]:
        """Return the event of Lambda for a delivery about a job, signed."""
        created = datetime.fromtimestamp(job.begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {
            "id": job.id, "labels": ["self-hosted", "gpu"], "created_at": created, "run_attempt": job.attempt,
            "runner_name": job.runner, "conclusion": None, **more,
        }  # fmt: skip
        body = json.dumps({"action": action, "workflow_job": about, "repository": {"full_name": "acme/images"}})
        signature = hmac.new(WEBHOOK.encode(), body.encode(), hashlib.sha256).hexdigest()
        headers = {"x-hub-signature-256": f"sha256={signature}", "x-github-event": "workflow_job"}
        return {"headers": {**headers, "content-type": "application/json"}, "body": body}

    # Machines

    def tick(self, webhook: Any) -> None:
        """Let the world go on by what is due at ``now``."""
        for job in list(self.jobs.values()):
            if job.state == "unborn" and job.begins <= self.now:
                job.state = "queued"
                self._deliver(job, "queued")
            elif job.state == "running" and job.ends <= self.now:
                self._finish(job, "completed", "success")
        for machine in self.machines.values():
            if machine.ended is None:
                self._live(machine)
        for machine in list(self.machines.values()):
            self._work(machine)
        for group, count in self.desired.items():
            alive = [one for one in self.machines.values() if one.group == group and one.state == "InService"]
            if self.capacity[group] and len(alive) < count:
                self._launch(group)
        self._redeliver(webhook)

    def _launch(self, group: str) -> None:
        self._next += 1
        boots = float("inf") if self.random.random() < 0.05 else self.random.uniform(90, 300)
        machine = Machine(f"i-{self._next:017x}", group, self.now, boots, group == GROUPS["spot"])
        self.machines[machine.id] = machine

    def _live(self, machine: Machine) -> None:
        """Boot, fetch the configuration, and end where nobody else ends the machine (boot/setup, boot/end)."""
        age = self.now - machine.started
        if machine.state == "Terminating:Proceed" or (machine.state == "Terminating:Wait" and machine.over):
            self._end(machine)
        elif machine.over is not None:
            if self.now - machine.over >= 5 * MINUTE:  # ExecStopPost
                self._end(machine)
        elif machine.up is None:
            config = self.config_of(machine)
            if machine.boots <= age <= machine.boots + 15 * MINUTE and config and int(config) in self.runners:
                machine.runner, machine.up = int(config), self.now
                self.configs.pop(f"{ENVIRONMENT['MACHINES']}{machine.id}")
                self.runners[int(config)]["status"] = "online"
            elif age >= BOOT + 3 * MINUTE:
                self._end(machine)
        elif not machine.worked and machine.job is None:
            if machine.runner not in self.runners:  # GitHub forgot it: the runner ends
                machine.over = machine.over or min(self.now, machine.used_until)
            elif age >= IDLE + 3 * MINUTE and self.now - machine.up >= 3 * MINUTE:
                machine.over = machine.used_until
                self.runners.pop(machine.runner or 0, None)

    def _work(self, machine: Machine) -> None:
        """Take a job where one waits, and lose it with the machine where AWS takes that away."""
        if machine.ended is not None or machine.up is None or machine.over is not None:
            return
        runner = self.runners.get(machine.runner or 0)
        if machine.job is None and runner and not machine.worked:
            queued = [job for job in self.jobs.values() if job.state == "queued" and self.gives(runner, job)]
            if queued:
                job = self.random.choice(queued)
                job.state, job.ends, job.runner = "running", self.now + job.seconds, runner["name"]
                machine.job, machine.worked, runner["busy"] = job.id, True, True
                self._deliver(job, "in_progress")
        elif machine.job is not None and machine.spot and self._fault() and self.random.random() < 0.02:
            job = self.jobs[machine.job]
            if job.attempt == 1:  # each is run again once
                self._end(machine)
                self._finish(job, "failed", "failure")

    def _finish(self, job: Job, state: str, conclusion: str) -> None:
        job.state = state
        for machine in self.machines.values():
            if machine.job == job.id and machine.over is None:
                machine.over = self.now
                self.runners.pop(machine.runner or 0, None)
        self._deliver(job, "completed", conclusion=conclusion)

    def _end(self, machine: Machine) -> None:
        machine.ended = self.now
        if machine.over is None:
            machine.over = min(self.now, machine.used_until)

    def _deliver(self, job: Job, action: str, **more: Any) -> None:
        event = self.deliveries_of(job, action, **more)
        self.deliveries.append({"event": event, "done": False, "next": self.now, "tries": 0})

    def _redeliver(self, webhook: Any) -> None:
        """Deliver; what does not arrive is delivered again some minutes later, as the keeper has GitHub do."""
        for delivery in [one for one in self.deliveries if not one["done"] and one["next"] <= self.now]:
            try:
                delivery["done"] = webhook.handle(delivery["event"], None)["statusCode"] < 300
            except Exception:
                delivery["done"] = False
            delivery["next"] = self.now + self.random.choice((60, 120, 600))
        self.deliveries = [one for one in self.deliveries if not one["done"]]


class _Response(io.BytesIO):
    def __init__(self, content: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(content)
        self.headers = headers


class Client:
    """boto3's client of a service, with the calls that the scaler makes."""

    exceptions = type("Exceptions", (), {"ConditionalCheckFailedException": ConditionalCheckFailedException})

    def __init__(self, world: World, service: str) -> None:
        self._world = world
        self._service = service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self, f"do_{name}")

        def call(**given: Any) -> Any:
            lost = self._world.fail_aws(name)
            answer = method(**given)
            if lost:
                self._world.lose_answer()
            return answer

        return call

    def get_paginator(self, name: str) -> Any:
        """Return a paginator whose one page is read when it is asked for."""

        def pages(**given: Any) -> Iterator[Any]:
            yield getattr(self, name)(**given)

        return type("Paginator", (), {"paginate": staticmethod(pages)})

    def do_describe_auto_scaling_groups(self, **_: Any) -> Any:
        world = self._world
        return {
            "AutoScalingGroups": [
                {
                    "AutoScalingGroupName": group, "DesiredCapacity": count, "MaxSize": world.most(group), "MinSize": 0,
                    "Instances": [
                        {"InstanceId": one.id, "LifecycleState": one.state}
                        for one in world.machines.values()
                        if one.group == group and one.state != "Gone"
                    ],
                }
                for group, count in world.desired.items()
            ]
        }  # fmt: skip

    def do_describe_instances(self, **_: Any) -> Any:
        machines = [one for one in self._world.machines.values() if one.state != "Gone"]
        return {
            "Reservations": [
                {
                    "Instances": [
                        {
                            "InstanceId": one.id,
                            "LaunchTime": datetime.fromtimestamp(one.started, UTC),
                            "State": {"Name": "running" if one.ended is None else "terminated"},
                        }
                        for one in machines
                    ]
                }
            ]
        }

    def do_set_desired_capacity(self, *, AutoScalingGroupName: str, DesiredCapacity: int, **_: Any) -> None:  # noqa: N803
        assert 0 <= DesiredCapacity <= self._world.most(AutoScalingGroupName)
        self._world.desired[AutoScalingGroupName] = DesiredCapacity

    def do_terminate_instance_in_auto_scaling_group(
        self,
        *,
        InstanceId: str,  # noqa: N803
        ShouldDecrementDesiredCapacity: bool,  # noqa: N803
    ) -> None:
        world, machine = self._world, self._world.machines[InstanceId]
        if machine.state != "InService":
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "not in service"}}, "Terminate")
        world.desired[machine.group] -= ShouldDecrementDesiredCapacity
        machine.state = "Terminating:Wait"

    def do_complete_lifecycle_action(self, *, InstanceId: str, **_: Any) -> None:  # noqa: N803
        machine = self._world.machines[InstanceId]
        if machine.state != "Terminating:Wait":
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "No active Lifecycle Action"}}, "x")
        machine.state = "Terminating:Proceed" if machine.ended is None else "Gone"

    def do_record_lifecycle_action_heartbeat(self, **_: Any) -> None:
        """Keep a machine that leaves."""

    def do_describe_scaling_activities(self, **_: Any) -> Any:
        return {"Activities": []}

    def do_transact_write_items(self, *, TransactItems: list[dict[str, Any]]) -> None:  # noqa: N803
        row, config = (one["Put"] for one in TransactItems)
        assert config["TableName"] == ENVIRONMENT["CONFIGS"]
        self.do_put_item(**row)
        self._world.configs[config["Item"]["machine"]["S"]] = config["Item"]["config"]["S"]

    def do_put_metric_data(self, **_: Any) -> None:
        """Take a measurement."""

    def do_put_item(
        self,
        *,
        TableName: str,  # noqa: N803
        Item: dict[str, Any],  # noqa: N803
        ConditionExpression: str = "",  # noqa: N803
        ExpressionAttributeNames: Mapping[str, str] | None = None,  # noqa: N803
        ExpressionAttributeValues: Mapping[str, Any] | None = None,  # noqa: N803
        ReturnValuesOnConditionCheckFailure: str = "NONE",  # noqa: N803
    ) -> None:
        table = self._world.rows(TableName)
        row = table.get(Item["id"]["S"])
        names, values = ExpressionAttributeNames or {}, ExpressionAttributeValues or {}
        if ConditionExpression and not holds(ConditionExpression, row, names, values):
            raise ConditionalCheckFailedException(row if ReturnValuesOnConditionCheckFailure == "ALL_OLD" else None)
        table[Item["id"]["S"]] = Item

    def do_scan(
        self,
        *,
        TableName: str,  # noqa: N803
        FilterExpression: str,  # noqa: N803
        ExpressionAttributeNames: Mapping[str, str],  # noqa: N803
        ExpressionAttributeValues: Mapping[str, Any],  # noqa: N803
        ConsistentRead: bool,  # noqa: N803
    ) -> Any:
        assert ConsistentRead
        match = re.fullmatch(r"NOT (#\w+) IN \(([^()]*)\)", FilterExpression)
        assert match, FilterExpression
        name, without = ExpressionAttributeNames[match[1]], [ExpressionAttributeValues[n] for n in match[2].split(", ")]
        return {"Items": [row for row in self._world.rows(TableName).values() if row[name] not in without]}
