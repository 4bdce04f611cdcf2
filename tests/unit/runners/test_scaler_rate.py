"""How many machines a minute a listener asks for and registers, on the virtual clock, with what AWS documents as limits.

- DynamoDB: 4,000 write units a second for a new table on demand ("On-demand capacity mode", initial throughput). A write of a
  transaction costs two units for each KiB.
- EC2: a bucket of 1,000 machines, into which two a second return ("Request throttling for the Amazon EC2 API", resource tokens of
  ``RunInstances``). AWS raises it by account. It bounds what starts, and not what is asked for: Auto Scaling goes on trying.
"""

from __future__ import annotations

import io
import json
import threading
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import github, jobs, keeper
from scaler.listening import listener, scale_set
from tests.fakes.aws.listened_world import ListenedWorld, Mess, environment
from tests.fakes.aws.runner_world import BOOT, ENVIRONMENT, GROUPS, MINUTE, NAME, RULES, Faults, Job, Machine
from tests.fakes.aws.runner_world import World as WebhookWorld
from tests.helpers.every import every

JOBS, MESSAGES = 3000, 30
WRITES, CONFIG_UNITS = 4000.0, 12.0
"""Write units a second; those of a registration: 5 KiB of configuration and 1 KiB of row, each twice."""

SETS = {"big": environment("big", JOBS)}
GROUP = next(iter(json.loads(SETS["big"]["GROUPS"]).values()))


class Lanes:
    """A pool of threads on the virtual clock: each call begins when a thread is free, and the pool ends with the last one."""

    world: World

    def __init__(self, count: int) -> None:
        self._free = [self.world.now] * count

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.now = max(self._free)

    def map(self, call: Callable[[Any], Any], given: Iterable[Any]) -> Iterator[Any]:
        for one in given:
            first = self._free.index(min(self._free))
            self.world.now = self._free[first]
            yield call(one)
            self._free[first] = self.world.now


class World(ListenedWorld):
    """3,000 jobs within a minute, on an account whose bucket of machines is as given."""

    def __init__(self, bucket: float, refill: float) -> None:
        super().__init__(1, Faults(rate=0.0, dead=(0.0, 0.0), until=0.0), 0, SETS, Mess())
        self._bucket, self._full, self._refill, self._filled = bucket, bucket, refill, self.now
        self.asked: list[float] = []
        self.registered: list[float] = []

    def assign(self, first: int, last: int) -> None:
        """Have GitHub assign jobs, all in one message."""
        for number in range(first, last):
            self.jobs[number] = Job(number, self.now, 300.0, state="queued")
            self.set_of_job[number] = "big"
        parts = [
            {"messageType": "JobAssigned", "runnerRequestId": number, "ownerName": "acme", "repositoryName": "images", "workflowRunId": number}
            for number in range(first, last)
        ]  # fmt: skip
        message = {"messageId": self.number(), "body": json.dumps(parts), "statistics": self.statistics("big")}
        self.told["big"].messages.append((self.now, message))

    def launch(self) -> None:
        """Start what is asked for, as far as the bucket has it."""
        self._bucket = min(self._full, self._bucket + self._refill * (self.now - self._filled))
        self._filled = self.now
        for _ in range(min(self.desired[GROUP] - len(self.machines), int(self._bucket))):
            self._bucket -= 1
            machine = Machine(f"i-{len(self.machines):017x}", GROUP, self.now, 120.0, spot=True)
            self.machines[machine.id] = machine

    def fail_aws(self, call: str) -> float:
        self.spend(self.random.uniform(0.01, 0.1))
        if call == "set_desired_capacity":
            self.asked.append(self.now)
        if call == "transact_write_items":
            self.registered.append(self.now)
        return 0.0


def played(
    monkeypatch: pytest.MonkeyPatch, bucket: float, refill: float
) -> tuple[World, list[float], listener.Listener]:
    """Return the world after three minutes, the seconds from each message to its request, and the listener."""
    world = World(bucket, refill)
    clock = SimpleNamespace(time=world.time, sleep=world.spend, monotonic=world.time)
    for module in (keeper, jobs, github, listener, scale_set):
        monkeypatch.setattr(module, "time", clock)
    for module in (keeper, listener):
        monkeypatch.setattr(module, "client", world.client)
    monkeypatch.setattr(keeper, "secret", world.secret)
    monkeypatch.setattr(github._OPENER, "open", world.urlopen)
    monkeypatch.setattr(listener, "ThreadPoolExecutor", type("WorldLanes", (Lanes,), {"world": world}))
    monkeypatch.setattr("tests.fakes.aws.runner_world.RULES", {"most": JOBS})
    one = listener.Listener(SETS["big"])
    one._end = world.now + 10 * MINUTE
    assert one._attend()
    one._round()
    start, waits, next_round = world.now, [], world.now
    for step in range(90):
        at = start + 2 * step
        while next_round <= at:  # the other thread's rounds
            world.now = next_round
            one._round()
            next_round = max(next_round + one.spacing, world.now)
        world.now = at
        if step < MESSAGES:
            first = 1 + step * (JOBS // MESSAGES)
            world.assign(first, first + JOBS // MESSAGES)
            assert one._attend()
            waits.append(world.asked[-1] - at)
            assert world.desired[GROUP] == first + JOBS // MESSAGES - 1
        world.launch()
    return world, waits, one


def most_in_a_second(times: list[float]) -> int:
    ordered = sorted(times)
    return max(sum(at <= other < at + 1 for other in ordered) for at in ordered[:: max(len(ordered) // 200, 1)])


def test_3000_machines_a_minute_are_asked_for_and_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an account whose rate of starts AWS has raised."""
    world, waits, one = played(monkeypatch, float(JOBS), 100.0)
    assert sorted(waits)[len(waits) * 95 // 100] < 2
    assert len(world.registered) == len(world.configs) == JOBS
    busiest = max(sum(at <= one < at + MINUTE for one in world.registered) for at in world.registered[::50])
    assert busiest >= 2500, busiest
    assert most_in_a_second(world.registered) * CONFIG_UNITS < WRITES
    _round_leaves_calls_of_github(world, one, monkeypatch)
    _rounds_leave_calls_beside_a_webhook(world, one, monkeypatch)


def test_rate_of_the_account_bounds_what_starts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, waits, _ = played(monkeypatch, 1000.0, 2.0)
    assert sorted(waits)[len(waits) * 95 // 100] < 2
    assert world.desired[GROUP] == JOBS
    assert 1000 <= len(world.machines) <= 1000 + 2 * 180
    assert len(world.registered) >= len(world.machines) - 2 * 30


def _round_leaves_calls_of_github(world: World, one: listener.Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub takes 5,000 calls an hour ("Rate limits for the REST API"); a round that is refused ends no machine."""
    calls: list[str] = []
    served = github._OPENER.open

    def counted(request: Any, *given: Any, **named: Any) -> Any:
        calls.append(request.full_url)
        return served(request, *given, **named)

    monkeypatch.setattr(github._OPENER, "open", counted)
    begun = world.now
    one._round()
    seconds = max(one.spacing, world.now - begun)
    assert len([url for url in calls if "/actions/runners?" in url]) >= 30
    assert len(calls) * 3600 / seconds < 4500, (len(calls), seconds)
    assert seconds < 60


def test_rounds_are_apart_however_often_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks GitHub for all runners. One whose jobs change at any time is woken at any time."""
    now, begun = 0.0, []

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += seconds

    def a_round() -> None:
        begun.append(now)
        pass_by(1)

    monkeypatch.setattr(listener, "time", SimpleNamespace(time=lambda: now, sleep=pass_by))
    monkeypatch.setattr(listener, "client", lambda *_: None)
    one = listener.Listener(SETS["big"])

    def listen() -> None:
        while now < one._end:
            threading.Event().wait(0.001)

    for name, stand_in in {"_listen": listen, "_round": a_round, "_close": lambda: None}.items():
        monkeypatch.setattr(one, name, stand_in)
    monkeypatch.setattr(one, "_wake", SimpleNamespace(wait=lambda _: True, clear=lambda: None))
    one.run(3 * one.spacing)
    assert begun == [0, one.spacing, 2 * one.spacing]


def test_message_that_github_never_deletes_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes in each next session. Others are deleted all the same."""

    def refuse(message: int) -> None:
        if message == 1:
            raise github.Refused(403, "not yours")

    monkeypatch.setattr(listener, "client", lambda *_: None)
    one = listener.Listener(SETS["big"])
    monkeypatch.setattr(one._set, "acknowledge", refuse)
    one._done = [1, 2]
    one._delete()
    assert one._done == []
    assert '"to": "delete message 1"' in capsys.readouterr().out


@every("status", [503, 403])
def test_message_that_comes_again_undeleted_makes_a_pause(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub sends at once what is not deleted (session_client.go:92 of actions/scaleset at 6ce0259)."""

    def refuse(_: int) -> None:
        raise github.Refused(status, "not now")

    monkeypatch.setattr(listener, "client", lambda *_: None)
    one = listener.Listener(SETS["big"])
    one._listens, one._end = True, float("inf")
    monkeypatch.setattr(one._set, "message", lambda *_: {"messageId": 1})
    monkeypatch.setattr(one._set, "acknowledge", refuse)
    monkeypatch.setattr(one._jobs, "note_listener", lambda *_, **__: None)
    assert [one._attend() for _ in range(3)] == [True, False, False]
    assert len(one._done) <= 1
    monkeypatch.setattr(one._set, "acknowledge", lambda _: None)
    assert one._attend()


HOURLY = 5000
"""Calls that GitHub's API takes in an hour ("Rate limits for the REST API")."""
WINDOW, CALLS = 20 * MINUTE, HOURLY // 3
"""A third of the hour and of its calls, as often a minute: a round of 3,000 machines takes 60 ms."""


class Limited(WebhookWorld):
    """A full fleet and a long queue at a GitHub that says with each answer how many calls are left, and until when."""

    def __init__(self, queued: int, postponed: int, machines: int = JOBS) -> None:
        super().__init__(1, Faults(rate=0.0, dead=(0.0, 0.0), until=0.0), 0)
        self.calls: Counter[int] = Counter()
        self.asked: set[str] = set()
        table = jobs.Jobs(self.client("dynamodb"), ENVIRONMENT["JOBS"])
        for number in range(machines):
            box = Machine(f"i-{number:017x}", GROUPS["on-demand"], self.now, 0.0, spot=False)
            self.machines[box.id] = box
            runner = self._register(f"{NAME}-{box.id}")
            self.runners[runner] |= {"status": "online", "busy": True}
            item = {"machine": {"S": box.id}, "config": {"S": ""}}
            table.note_runner(box.id, runner, {"TableName": ENVIRONMENT["CONFIGS"], "Item": item})
        for number in range(1, queued + postponed + 1):
            self.jobs[number] = Job(number, self.now, 300.0, state="queued" if number <= queued else "waiting")
            note = table.queue if number <= queued else table.postpone
            note(jobs.Job(number, "acme/images", self.now))
        self.desired[GROUPS["on-demand"]] = machines

    def urlopen(self, request: Any, timeout: float) -> Any:
        window = self.window()
        self.calls[window] += 1
        self.asked |= {request.full_url} if "/actions/jobs/" in request.full_url else set()
        told = self.told()
        if self.calls[window] > CALLS:
            spent = io.BytesIO(b'{"message": "API rate limit exceeded for installation ID 678."}')
            raise urllib.error.HTTPError(request.full_url, 403, "", told, spent)  # type: ignore[arg-type]
        answer = super().urlopen(request, timeout)
        answer.headers = told
        return answer

    def window(self) -> int:
        return int((self.now - self.start) // WINDOW)

    def told(self) -> dict[str, str]:
        """Return what GitHub says of its limit."""
        window = self.window()
        return limits(CALLS - self.calls[window], self.start + WINDOW * (window + 1))

    def rounds(self, monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
        """Have the webhook's keeper look at this world once a minute."""
        most = {"most": JOBS}
        monkeypatch.setattr("tests.fakes.aws.runner_world.RULES", most)
        for module in (keeper, jobs, github):
            monkeypatch.setattr(module, "time", SimpleNamespace(time=self.time))
        monkeypatch.setattr(keeper, "client", self.client)
        monkeypatch.setattr(keeper, "secret", self.secret)
        monkeypatch.setattr(github._OPENER, "open", self.urlopen)
        while self.now < self.start + minutes * MINUTE:
            begun = self.now
            keeper.Keeper({**ENVIRONMENT, "RULES": json.dumps({**RULES, **most})}).round()
            assert self.now < begun + MINUTE
            self.now = begun + MINUTE


class Alternating(Limited):
    """A GitHub of which somebody else takes ten calls in each second minute: 20 are left for jobs that wait, or 25."""

    def told(self) -> dict[str, str]:
        lists = len(self.runners) // 100 + 1
        return limits(lists + (40 if int(self.now // MINUTE) % 2 else 50), self.now + MINUTE)


def limits(left: int, reset: float) -> dict[str, str]:
    return {"X-RateLimit-Remaining": str(max(left, 0)), "X-RateLimit-Reset": str(int(reset))}


def test_webhooks_rounds_leave_calls_of_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 runners are 31 calls a minute. With 100 for jobs that wait, none was left for machines after 38 of 60 minutes."""
    world = Limited(500, 300)
    world.rounds(monkeypatch, 22)
    assert max(world.calls.values()) < 0.95 * CALLS
    assert len(world.asked) > 500  # and each job gets its turn


def test_every_waiting_job_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each round began by its own number of jobs, 20 and 25 in turn never came to some. However many of them there are, one
    that waits for an approval is asked about in each round."""
    queued, postponed = 200, 10
    world = Alternating(queued, postponed, machines=100)
    world.rounds(monkeypatch, 4)  # those wait too short a time at first, and these had all calls
    world.asked.clear()
    world.rounds(monkeypatch, 14 + 2 * postponed)
    asked = {int(url.rpartition("/")[2]) for url in world.asked}
    assert sorted({*range(1, queued + postponed + 1)} - asked) == []


def test_spent_calls_of_github_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stack of the App has spent them. GitHub may ban who goes on ("Rate limits for the REST API")."""
    world = Limited(1000, 600)
    world.calls[0] = CALLS
    world.rounds(monkeypatch, 10)
    assert world.calls[0] - CALLS < 10 * 5


class Offline(Limited):
    """A list that shows each idle runner as offline, beside a GitHub that has all online; one runner alone is refused."""

    def __init__(self, machines: int, left: int) -> None:
        super().__init__(0, 0, machines)
        self.left = left
        self.singles: list[tuple[int, int]] = []
        for runner in self.runners.values():
            runner["busy"] = False
        for box in self.machines.values():
            box.started = self.start - BOOT - 1
            self.refused = box.id

    def told(self) -> dict[str, str]:
        return limits(len(self.runners) // 100 + 1 + self.left, self.now + MINUTE)

    def _github(self, method: str, path: str, data: bytes | None) -> tuple[Any, ...]:
        status, answer, *more = super()._github(method, path, data)
        if "?" in path:
            answer = {"runners": [{**one, "status": "offline"} for one in answer["runners"]]}
        elif method == "GET":
            self.singles.append((int((self.now - self.start) // MINUTE), answer["id"]))
            if answer["name"].endswith(self.refused):
                return 403, {"message": "Resource not accessible by integration"}
        return status, answer, *more


@every("left, most", [(CALLS, 50), (40, 20)])
def test_offline_runners_are_asked_for_in_turn(left: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """450 of 500 were called busy once, and 450 machines more requested for the minimum."""
    machines = 200
    world = Offline(machines, left)
    monkeypatch.setitem(RULES, "least", machines)
    world.rounds(monkeypatch, minutes := 2 * machines // most + 1)
    assert (world.desired, len(world.runners)) == ({GROUPS["spot"]: 0, GROUPS["on-demand"]: machines}, machines)
    assert max(Counter(minute for minute, _ in world.singles).values()) <= most
    assert len({runner for _, runner in world.singles}) == machines, minutes


def _rounds_leave_calls_beside_a_webhook(world: World, one: listener.Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a stack moves over, a listener lists the runners twice a minute, and asks about the webhook's jobs, too."""
    one._source.webhook = True
    begun, calls = world.now, 0
    table = jobs.Jobs(world.client("dynamodb"), SETS["big"]["JOBS"])
    for number in range(JOBS + 1, JOBS + 501):
        world.jobs[number] = Job(number, begun, 300.0, state="queued")
        table.queue(jobs.Job(number, "acme/images", begun - 3600))
    served = github._OPENER.open

    def limited(request: Any, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += request.full_url.startswith("https://api.example/")  # the service of scale sets is another one
        answer = served(request, *given, **named)
        answer.headers = limits(HOURLY - calls, begun + 3600)
        return answer

    monkeypatch.setattr(github._OPENER, "open", limited)
    while world.now < begun + 9 * MINUTE:
        at = world.now
        one._round()
        world.now = max(at + one.spacing, world.now)
    assert calls < HOURLY * 9 / 60, calls
