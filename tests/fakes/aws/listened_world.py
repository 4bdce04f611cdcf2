"""GitHub's service of runner scale sets beside :mod:`tests.fakes.aws.runner_world`, for several sets on the one virtual clock.

Its paths and bodies are those of actions/scaleset at 6ce0259, as in ``tests.fakes.github.scale_set_service``. What it tells may come
twice, late, in another order or never; it may end a session, and refuse an App that is no longer installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.aws.runner_world import ENVIRONMENT, NAME, Faults, Job, World

SERVICE = "https://service.example/tenant/"
PARTS = {"queued": "JobAssigned", "in_progress": "JobStarted", "completed": "JobCompleted"}


EXPIRES = 600.0
"""Seconds after which a session is over that nobody asks for messages. GitHub documents none; its own client tries again."""


def environment(name: str, most: int, least: int = 0) -> dict[str, str]:
    """Return the variables of a set, as ``components.runners.ec2.scaler_functions`` writes them."""
    own = f"{NAME}.{name}"
    groups = {kind: f"{own}-{kind}" for kind in ("spot", "on-demand")}
    rules = {**json.loads(ENVIRONMENT["RULES"]), "most": most, "least": least}
    return {
        **ENVIRONMENT, "NAME": own, "SCALE_SET": name, "JOBS": f"{own}-jobs", "GROUPS": json.dumps(groups), "RULES": json.dumps(rules),
        "OWN_LABELS": name, "GITHUB_URL": "https://github.com/acme",
    }  # fmt: skip


@dataclass
class Told:
    """What GitHub tells of one set: its session, and its messages, each with the times at which it is to be given."""

    id: int
    session: str = ""
    asked: float = 0.0
    """When somebody last asked for messages of the session: one that nobody asks for is over after a while."""
    messages: list[tuple[float, dict[str, Any]]] = field(default_factory=list)


@dataclass
class Mess:
    """What is wrong with GitHub: shares of messages, the hours in which the App is revoked, seconds that its clock is ahead."""

    twice: float = 0.0
    late: float = 0.0
    never: float = 0.0
    ended: float = 0.0
    """Share of calls at which a session is found to be over."""
    revoked: tuple[float, float] = (0.0, 0.0)
    ahead: float = 0.0


class ListenedWorld(World):
    """A world whose jobs are each of one scale set; ``sets`` has the variables of each."""

    def __init__(self, seed: int, faults: Faults, jobs: int, sets: Mapping[str, Mapping[str, str]], mess: Mess) -> None:
        super().__init__(seed, faults, jobs)
        self.mess = mess
        self.sets = sets
        self.set_of_group = {group: name for name, own in sets.items() for group in json.loads(own["GROUPS"]).values()}
        self.desired = dict.fromkeys(self.set_of_group, 0)
        self.capacity = dict.fromkeys(self.set_of_group, True)
        self.tables: dict[str, dict[str, Any]] = {}
        self.told: dict[str, Told] = {}
        self.most_at_once = dict.fromkeys(sets, 0)
        self.wrong: list[str] = []
        names = [*sets]
        self.set_of_job = {number: names[number % len(names)] for number in self.jobs}
        self._numbers = 1000

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        return self.tables.setdefault(table, {})

    def most(self, group: str) -> int:
        return int(json.loads(self.sets[self.set_of_group[group]]["RULES"])["most"])

    def gives(self, runner: Mapping[str, Any], job: Job) -> bool:
        return runner.get("set") == self._set(job)

    def _set(self, job: Job) -> str:
        """Return the set of a job; one that runs again is of the former one's."""
        return self.set_of_job.setdefault(job.id, self.set_of_job.get(job.id - 1, next(iter(self.sets))))

    def _rerun(self, job: Job) -> None:
        super()._rerun(job)
        self.set_of_job[max(self.jobs)] = self._set(job)

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def tick(self, webhook: Any) -> None:
        super().tick(webhook)
        for name in self.sets:
            own = [one for one in self.machines.values() if self.set_of_group[one.group] == name]
            # One that leaves after its job is no longer of use, and another may start.
            there = [one for one in own if one.over is None and one.ended is None and one.state == "InService"]
            self.most_at_once[name] = max(self.most_at_once[name], len(there))
            if there and all(job.begins > self.now for job in self.jobs.values() if self._set(job) == name):
                self.wrong.append(f"{name} has {there[0].id} before any job of it")
        for machine in self.machines.values():
            if machine.job is not None and self._set(self.jobs[machine.job]) != self.set_of_group[machine.group]:
                self.wrong.append(f"{machine.id} has the job {machine.job} of another set")

    # What it tells.

    def statistics(self, name: str) -> dict[str, int]:
        there = [job for job in self.jobs.values() if self._set(job) == name and job.state in {"queued", "running"}]
        return {"totalAssignedJobs": len(there), "totalRunningJobs": sum(job.state == "running" for job in there)}

    def _deliver(self, job: Job, action: str, **more: Any) -> None:
        name = self._set(job)
        told = self.told.get(name)
        if told is None:  # the set is not made yet: its first session tells the numbers
            return
        queued = datetime.fromtimestamp(job.begins + self.mess.ahead, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        result = {"success": "Succeeded", "failure": "Failed"}.get(more.get("conclusion", ""), "")
        part = {
            "messageType": PARTS[action], "runnerRequestId": job.id, "ownerName": "acme", "repositoryName": "images",
            "workflowRunId": job.id, "runnerName": job.runner or "", "result": result, "queueTime": queued,
        }  # fmt: skip
        message = {"messageId": self.number(), "body": json.dumps([part]), "statistics": self.statistics(name)}
        draw = self.random.random
        if draw() < self.mess.never:
            return
        due = self.now + (self.random.uniform(0, 240) if draw() < self.mess.late else 0)
        told.messages.append((due, message))
        if draw() < self.mess.twice:
            told.messages.append((due + self.random.uniform(0, 600), message))

    def _redeliver(self, webhook: Any) -> None:
        """Deliver nothing: there is no webhook."""

    # What it answers.

    def revoked(self) -> bool:
        return self.mess.revoked[0] <= self.now - self.start < self.mess.revoked[1]

    def _github(self, method: str, path: str, data: bytes | None) -> tuple[Any, ...]:
        split = urlsplit(path)
        if self.revoked():
            for told in self.told.values():
                told.session = ""
            return 401, {"message": "Bad credentials"}
        if split.path.endswith("/registration-token"):
            return 201, {"token": "registration"}
        if split.path == "/actions/runner-registration":
            return 201, {"url": SERVICE, "token": "admin"}
        if match := re.fullmatch(r"/repos/acme/images/actions/runs/(\d+)/jobs", split.path):
            job = self.jobs[int(match[1])]
            return 200, {"jobs": [{"id": job.id, "runner_name": job.runner, "run_attempt": job.attempt}]}
        if not path.startswith("https://service.example/"):
            return super()._github(method, path, data)
        return self._service(method, split.path, json.loads(data or b"null"), parse_qs(split.query))

    def _service(self, method: str, path: str, body: Any, query: Mapping[str, list[str]]) -> tuple[Any, ...]:
        if path.endswith("/runnerscalesets"):
            name = query["name"][0] if method == "GET" else body["name"]
            if method == "GET" and name not in self.told:
                return 200, {"value": []}
            told = self.told.setdefault(name, Told(self.number()))
            one = {"id": told.id, "name": name, "labels": [{"name": name}]}
            return 200, {"value": [one]} if method == "GET" else one
        if match := re.search(r"/agents/(\d+)", path):
            runner = self.runners.get(int(match[1]))
            if runner and runner["busy"]:
                return 400, {"typeName": "JobStillRunningException", "message": "runs"}
            return (204, None) if self.runners.pop(int(match[1]), None) else (404, {})
        if match := re.match(r"/queue/([^/]+)", path):
            return self._queue(method, match[1], path)
        of_set = [each for each in self.told.items() if f"/runnerscalesets/{each[1].id}/" in path]
        if not of_set:  # somebody deleted it, or it is not made yet
            return 404, {"message": "no such set"}
        name, told = of_set[0]
        if path.endswith("/generatejitconfig"):
            if self.has_runner(body["name"]):
                return 409, {"message": "exists"}
            number = self._register(body["name"])
            self.runners[number]["set"] = name
            return 200, {"runner": {"id": number}, "encodedJITConfig": str(number)}
        return self._sessions(method, name, told, path)

    def _sessions(self, method: str, name: str, told: Told, path: str) -> tuple[Any, ...]:
        if method == "DELETE":
            there = told.session == path.rpartition("/")[2]
            told.session = "" if there else told.session
            return (204, None) if there else (404, {"message": "over"})
        if told.session and method == "POST" and self.now - told.asked < EXPIRES:
            return 409, {"message": "already has an active session"}
        if method == "PATCH" and told.session != path.rpartition("/")[2]:
            return 404, {"message": "over"}
        if method == "POST":
            told.session, told.asked = f"session-{self.number()}", self.now
        answer = {
            "sessionId": told.session,
            "messageQueueUrl": f"https://service.example/queue/{told.session}",
            "messageQueueAccessToken": "queue",
            "statistics": self.statistics(name),
        }
        return 200, answer

    def _queue(self, method: str, session: str, path: str) -> tuple[Any, ...]:
        told = next((each for each in self.told.values() if each.session == session), None)
        if told and self.now < self.start + self.faults.until and self.random.random() < self.mess.ended:
            told.session = ""
            told = None
        if told is None:
            return 401, {"message": "expired"}
        if method == "DELETE":
            number = int(path.rpartition("/")[2])
            first = next(
                (each for each in told.messages if each[1]["messageId"] == number and each[0] <= self.now), None
            )
            if first:
                told.messages.remove(first)
            return 204, None
        told.asked = self.now
        due = [message for at, message in told.messages if at <= self.now]
        if not due:
            return 202, None
        # GitHub need not keep to the order, or to what was asked for.
        return 200, self.random.choice(due) if self.mess.late else due[0]

    def foreign(self, name: str) -> None:
        """Have another listener open the session of a set."""
        if told := self.told.get(name):
            told.session, told.asked = f"foreign-{self.number()}", self.now


class MovingWorld(ListenedWorld):
    """A world whose one stack moves over: until ``alone`` seconds there is a webhook, which hears of all jobs.

    GitHub gives the set the jobs that begin once the set is made, and earlier ones to the runners outside of it.
    """

    def __init__(self, seed: int, faults: Faults, jobs: int, mess: Mess, alone: float) -> None:
        own = {key: value for key, value in environment(NAME, 6).items() if key != "SCALE_SET"}
        groups = ENVIRONMENT["GROUPS"]
        own |= {"NAME": NAME, "JOBS": ENVIRONMENT["JOBS"], "GROUPS": groups, "LABELS": f"self-hosted,{NAME}"}
        super().__init__(seed, faults, jobs, {NAME: own}, mess)
        self.alone = self.start + alone
        self.made = float("inf")

    def is_of_set(self, job: Job) -> bool:
        return job.begins >= self.made

    def gives(self, runner: Mapping[str, Any], job: Job) -> bool:
        return self.is_of_set(job) is ("set" in runner)

    def statistics(self, name: str) -> dict[str, int]:
        others = {number: job for number, job in self.jobs.items() if not self.is_of_set(job)}
        self.jobs = {number: job for number, job in self.jobs.items() if number not in others}
        numbers = super().statistics(name)
        self.jobs |= others
        return numbers

    def deliveries_of(self, job: Job, action: str, **more: Any) -> dict[str, Any]:
        return super().deliveries_of(job, action, **more, labels=[NAME])

    def tick(self, webhook: Any) -> None:
        World.tick(self, webhook)  # the set may have machines before its first job

    def _deliver(self, job: Job, action: str, **more: Any) -> None:
        World._deliver(self, job, action, **more)
        if self.is_of_set(job):
            super()._deliver(job, action, **more)

    def _redeliver(self, webhook: Any) -> None:
        if self.now < self.alone:
            World._redeliver(self, webhook)

    def _service(self, method: str, path: str, body: Any, query: Mapping[str, list[str]]) -> tuple[Any, ...]:
        if method == "POST" and path.endswith("/runnerscalesets"):
            self.made = min(self.made, self.now)
        return super()._service(method, path, body, query)
