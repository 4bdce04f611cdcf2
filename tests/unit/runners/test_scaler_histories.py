"""The scaler's decisions on a virtual clock, over random histories in which GitHub stalls, refuses and answers late.

Some have a Capacity Block, whose machines EC2 takes before its end, and some have no spot capacity for hours. EC2 also
takes spot machines that wait for jobs: on-demand ones come in their place. In each
minute of each history, every job that waits has a cause, and the cause is true.

Each history has a seed. ``SLIPWAY_SEED=17 python -m pytest tests/unit/runners/test_scaler_histories.py`` begins with that one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import jobs as table
from scaler.decide import ON_DEMAND, SPOT, Decision, Machine, Reserved, Rules, Runner, decide
from scaler.fleet_status import status
from scaler.jobs import Job, Jobs
from scaler.waiting import CAUSES, STEPS, Standing, WaitingJob, with_queue
from tests.helpers.histories import histories

FIRST = int(os.environ.get("SLIPWAY_SEED", "0"))
MINUTE = 60.0
IDLE, BOOT = 10 * MINUTE, 20 * MINUTE
BOOTS = (2 * MINUTE, 7 * MINUTE)
"""The time in which a machine comes up, at least and at most."""
END = 16 * 60 * MINUTE
START = 1_800_000_000.0
MOST_LATE = 4 * MINUTE
BLOCK = "cr-1"
RECLAIMED = 30 * MINUTE
"""How long before the end of a Capacity Block EC2 takes its machines."""
KINDS = ("stalled", "refuses", "late", "partial", "away", "dry")
"""What GitHub does meanwhile: gives out no job; fails each call; answers as minutes ago; leaves runners out; all fails.
With ``dry`` it is EC2 that has no machine to give."""
DRY = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested (eu-west-1a)."


@dataclass
class Work:
    """A job at GitHub: when it was queued and began, and how long it takes."""

    id: int
    queued: float
    seconds: float
    began: float | None = None
    ended: float | None = None


@dataclass
class Box:
    """A machine: what it does, and when that was over."""

    id: str
    group: str
    started: float
    up_at: float
    runner: int | None = None
    up: float | None = None
    work: Work | None = None
    over: float | None = None
    gone: float | None = None
    in_set: bool = False

    @property
    def used_until(self) -> float:
        if self.over is not None:
            return self.over
        return max(self.started + IDLE, self.up) if self.up is not None else self.started + BOOT


class Memory:
    """DynamoDB's client for the scaler's table, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.exceptions = SimpleNamespace(ConditionalCheckFailedException=KeyError)

    def put_item(self, *, Item: dict[str, Any], **more: Any) -> None:  # noqa: N803
        name, condition = Item["id"]["S"], more.get("ConditionExpression", "")
        allowed = [value["S"] for value in more.get("ExpressionAttributeValues", {}).values()]
        row = self.rows.get(name)
        if condition and not (row["state"]["S"] in allowed if row else "attribute_not_exists" in condition):
            raise KeyError(name)
        self.rows[name] = Item

    def get_paginator(self, _: str) -> Any:
        def pages(**_: Any) -> Iterator[Any]:
            yield {"Items": [row for row in self.rows.values() if row["state"]["S"] not in {"taken", "again"}]}

        return SimpleNamespace(paginate=pages)


@dataclass
class History:
    """A history by its seed, with the faults of GitHub as ``(from, to, kind)``; ``play`` lives through it."""

    seed: int
    now: float = START
    machines: list[Box] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    untrue: list[str] = field(default_factory=list)
    causes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        draw = self.random
        least = draw.choice((0, 0, 2))
        self.rules = Rules((SPOT, ON_DEMAND), least, draw.randint(3, 6), 300, IDLE, BOOT, 7 * 86400)
        longest = draw.choice((5, 20, 40)) * MINUTE
        first, spread = draw.choice(((0, 120), (draw.uniform(0, 120), 3)))  # over hours, or all at once
        self.works = {
            number: Work(
                number, START + (first + draw.uniform(0, spread)) * MINUTE // 1, draw.uniform(0.2, 1) * longest
            )
            for number in range(1, draw.randint(1, 2 * self.rules.most) + 1)
        }
        self.faults: list[tuple[float, float, str]] = []
        begun = START
        for _ in range(draw.randint(1, 3)):
            begun += draw.uniform(0, 60 * MINUTE)
            ended = begun + draw.choice((5, 30, 90, 150)) * draw.uniform(0.3, 1) * MINUTE
            self.faults.append((begun, ended, draw.choice(KINDS)))
            begun = ended
        self.quiet = max(self.faults[-1][1], *(work.queued for work in self.works.values()))
        self.block, self.reclaimed = self._block(longest)
        if self.block:
            self.rules = replace(self.rules, groups=(BLOCK, SPOT, ON_DEMAND), reservations={BLOCK: self.block})
        self.client = Memory()
        self.table = Jobs(self.client, "jobs")
        self.runners: dict[int, Box] = {}
        self.seen: list[tuple[float, list[Runner]]] = []
        self.post: list[tuple[float, Any, Work]] = []
        self.desired = dict.fromkeys(self.rules.groups, 0)
        self.numbers = 0
        self.announced: set[int] = set()
        self.prepared: dict[str, float] = {}
        draw = random.Random(f"spot of {self.seed}")
        self.spot_from = START + draw.uniform(0, 600) * MINUTE if draw.random() < 0.4 else START
        draw = random.Random(f"taken of {self.seed}")
        self.takes = {START + draw.uniform(0, self.quiet - START) // MINUTE * MINUTE for _ in range(10)}
        self.short = self.longest_short = 0
        """The minutes for which the minimum has not been there, now and at most, while GitHub and EC2 answer."""

    def _block(self, longest: float) -> tuple[Reserved | None, float]:
        """Return a Capacity Block of some histories, and when EC2 takes its machines.

        It drains for as long as the longest job, while GitHub answers. Otherwise a job may be lost, and is run again.
        """
        draw = random.Random(f"block of {self.seed}")
        if draw.random() < 0.6:
            return None, float("inf")
        count = draw.randint(1, 4)
        for _ in range(20):
            until = min(work.queued for work in self.works.values()) + draw.uniform(0, 180) * MINUTE
            reclaimed = until + longest + 5 * MINUTE
            if all(to <= until - 5 * MINUTE or reclaimed <= since for since, to, _ in self.faults):
                return Reserved(count, until=until), reclaimed
        return Reserved(count), float("inf")

    def fault(self) -> str:
        return next((kind for begun, ended, kind in self.faults if begun <= self.now < ended), "")

    def play(self) -> None:
        while self.now < START + END:
            self._work()
            self._deliver()
            self._reclaim()
            self._live()
            self._keeper()
            alive = any(box.gone is None for box in self.machines)
            over = self.now > self.quiet and all(work.ended for work in self.works.values())
            if over and (not alive or self.rules.least):
                return
            self.now += MINUTE

    def _tell(self, action: str, work: Work) -> None:
        """Send a delivery. It may come late, twice, and after the next one; what is lost is delivered again."""
        delay = self.random.choice((0.0, 0.0, 0.0, self.random.uniform(0, MOST_LATE)))
        if self.fault() in {"late", "away"}:
            ends = next(to for since, to, _ in self.faults if since <= self.now < to)
            delay = self.random.uniform(0, min(30 * MINUTE, ends - self.now + MOST_LATE))
        self.post.append((self.now + delay, action, work))
        if self.random.random() < 0.1:
            self.post.append((self.now + delay + self.random.uniform(0, 30 * MINUTE), action, work))

    def _work(self) -> None:
        for work in self.works.values():
            if work.id not in self.announced and work.queued <= self.now:
                self.announced.add(work.id)
                self._tell("queued", work)
        for box in self.machines:
            if box.work and box.over is None and box.gone is None:
                work = box.work
                if (work.began or 0) + work.seconds <= self.now:
                    work.ended = box.over = self.now
                    self.runners.pop(box.runner or 0, None)
                    self._tell("completed", work)
        if self.fault() in {"stalled", "away"}:
            return
        waiting = [work for work in self.works.values() if work.queued <= self.now and work.began is None]
        waiting.sort(key=lambda work: -work.queued)  # the oldest is given out first
        for box in self.runners.values():
            free = box.up is not None and box.work is None and box.gone is None and box.over is None
            given = next((work for work in reversed(waiting) if free and self._takes(box, work)), None)
            if given:
                waiting.remove(given)
                box.work, given.began = given, self.now
                self._tell("in_progress", given)

    def _takes(self, _box: Box, _work: Work) -> bool:
        return True

    def _deliver(self) -> None:
        due = [one for one in self.post if one[0] <= self.now]
        self.post = [one for one in self.post if one[0] > self.now]
        for _, action, work in due:
            job = Job(work.id, "acme/images", work.queued)
            self.table.queue(job) if action == "queued" else self.table.dequeue(job)

    def _reclaim(self) -> None:
        """Have EC2 take the machines of a block that ends."""
        for box in self.machines if self.now >= self.reclaimed else ():
            if box.group == BLOCK and box.gone is None:
                if box.work and box.over is None:
                    self.killed.append(box.work.id)
                box.over, box.gone = box.over or min(self.now, box.used_until), self.now

    def _take(self) -> bool:
        """Have EC2 take a spot machine that waits for jobs, if it does so now; return whether it has."""
        waits = any(work.queued <= self.now and not work.began for work in self.works.values())
        for box in self.machines if self.now in self.takes and not waits and not self.fault() else ():
            if (
                box.group == SPOT
                and box.up
                and not box.work
                and box.over is box.gone is None
                and box.id in self.prepared
            ):
                box.gone = self.now
                return True
        return False

    def _live(self) -> None:
        """As the scripts of a machine: it comes up once it has its configuration, and ends where nobody else ends it."""
        for box in self.machines:
            if box.gone is not None:
                continue
            age = self.now - box.started
            if box.over is not None:
                if self.now - box.over >= 5 * MINUTE:
                    box.gone = self.now
            elif box.up is None:
                if box.runner in self.runners and box.up_at <= age <= box.up_at + 15 * MINUTE:
                    box.up = self.now
                elif age >= BOOT + 3 * MINUTE:
                    box.gone = self.now
            elif box.work is None:
                tired = age >= IDLE + 3 * MINUTE and self.now - box.up >= 3 * MINUTE and not self.rules.least
                if tired or box.runner not in self.runners:
                    box.over = min(self.now, box.used_until)
                    self.runners.pop(box.runner or 0, None)
        for group, count in self.desired.items():
            there = sum(box.group == group and box.gone is None for box in self.machines)
            most = count if group != BLOCK else self.block.count if self.block and self.now < self.reclaimed else 0
            dry = group != BLOCK and (self.fault() == "dry" or (group == SPOT and self.now < self.spot_from))
            for _ in range(0 if dry else min(count, most) - there):
                self.numbers += 1
                up_at = self.random.uniform(*BOOTS) if self.random.random() > 0.03 else float("inf")
                self.machines.append(Box(f"i-{self.numbers}", group, self.now, up_at))

    def _listed(self) -> list[Runner] | None:
        fault = self.fault()
        runners = [
            Runner(number, box.id, online=box.up is not None and box.gone is None, busy=box.work is not None)
            for number, box in self.runners.items()
        ]
        self.seen.append((self.now, runners))
        if fault in {"refuses", "away"} or self.random.random() < 0.02:
            return None
        if fault == "late":
            return next(listed for at, listed in self.seen if at >= self.now - MOST_LATE)
        if fault == "partial":
            return [runner for runner in runners if self.random.random() < 0.5]
        return runners

    def _waiting(self) -> list[Job]:
        return self.table.rows().waiting

    def _keeper(self) -> None:
        taken = self._take()
        waiting = self._waiting()
        boxes = [box for box in self.machines if box.gone is None or box.id in self.prepared]
        machines = [Machine(box.id, box.group, box.started, gone=box.gone is not None) for box in boxes]
        listed = self._listed()
        self._explain(waiting, machines, listed)
        shortage = self.table.rows().shortage
        done = decide(self.now, self.rules, waiting, machines, listed, dict(self.prepared), shortage)
        if done.shortage:
            self.table.note_shortage(done.shortage)
        there = sum(box.group == SPOT and box.gone is None for box in boxes)
        if taken and listed is not None and not waiting and done.desired[SPOT] > there:
            self.untrue.append("what spot capacity lost is asked of it again")
        self._act(done, {box.id: box for box in boxes}, waiting)
        self._watch()
        self._recheck(waiting)

    def _watch(self) -> None:
        """Count the minutes without the minimum, up or on its way, while no job waits, which would take it."""
        there = [box for box in self.machines if box.gone is None]
        idle = sum(box.work is None and box.over is None for box in there)
        waits = any(work.queued <= self.now and not work.began for work in self.works.values())
        missing = idle < self.rules.least and len(there) < self.rules.most and not (waits or self.fault())
        self.short = self.short + 1 if missing else 0
        self.longest_short = max(self.longest_short, self.short)

    def _recheck(self, jobs: list[Job]) -> None:
        calls = self.fault() not in {"refuses", "away"}
        for job in jobs if calls else ():
            if self.now - job.since > 120 and self.works[job.id].began:
                self.table.dequeue(job)

    def _explain(self, jobs: list[Job], machines: list[Machine], listed: list[Runner] | None) -> None:
        """Hold what is said of each waiting job against what is so."""
        refusals = {"launches": [DRY]} if self.fault() == "dry" else {}
        report = status(self.now, self.rules, jobs, machines, listed, dict(self.prepared), refusals)
        waiting = {str(work.id): work for work in self.works.values() if work.queued <= self.now and not work.began}
        if self.fault() not in {"refuses", "away"}:  # else nobody can list the queue
            queue = [(WaitingJob(name, work.queued), ("gpu",)) for name, work in waiting.items()]
            report = with_queue(report, queue, [("self-hosted", "gpu")])
        said = {each.job: each for each in report}
        known = {str(job.id) for job in jobs} if self.fault() in {"refuses", "away"} else waiting.keys()
        for name in waiting.keys() & known:
            if name not in said or not said[name].cause:
                self.untrue.append(f"job {name} waits, and nothing says why")
            elif lie := self._lie(said[name], listed):
                self.untrue.append(f"job {name} at {(self.now - START) / MINUTE:.0f} min: {lie}: {said[name]}")
            else:
                self.causes.add(said[name].kind)

    def _lie(self, standing: Standing, listed: list[Runner] | None) -> str:
        """Return what is untrue of a standing; empty if nothing is."""
        there = {box.id: box for box in self.machines if box.gone is None}
        box = there.get(standing.place)
        deaf = self.fault() in {"stalled", "refuses", "late", "partial", "away"} or listed is None
        sees = listed is not None and self.fault() not in {"late", "partial"}
        untrue = {
            "limit": len(there) < self.rules.most,
            "capacity": self.fault() != "dry",
            "late": box is None or self.now - box.started <= BOOT,
            "starting": box is not None
            and (self.now - box.started > BOOT or (sees and box.up is not None and box.up < self.now)),
            # GitHub hands out a job at the end of a minute, and a delivery may be on its way.
            "github": not deaf and box is not None and (box.up is None or self.now - box.up > 2 * MINUTE),
            "label": not any(each.up is not None for each in self.machines),
        }
        if standing.kind not in CAUSES or standing.step not in STEPS:
            return "no such kind or step"
        if standing.place and box is None:
            return "its machine is gone"
        return "the cause is untrue" if untrue.get(standing.kind) else ""

    def _forget(self, number: int) -> bool:
        """Remove a runner at GitHub; false if it has a job, or if GitHub does not answer."""
        box = self.runners.get(number)
        if self.fault() in {"refuses", "away"} or (box and box.work):
            return False
        self.runners.pop(number, None)
        return True

    def _leave(self, job: Job) -> None:
        self.table.unassign(job)

    def _act(self, done: Decision, boxes: dict[str, Box], waiting: list[Job]) -> None:
        calls = self.fault() not in {"refuses", "away"}
        for job in waiting:
            if job.id in done.unassigned:
                self._leave(job)
        for machine in done.prepare if calls else ():
            self.numbers += 1
            boxes[machine].runner = self.numbers
            self.runners[self.numbers] = boxes[machine]
            self.prepared[machine] = self.now
        for number in done.forget:
            self._forget(number)
        ids = {box.id: box.runner for box in boxes.values() if box.runner is not None}
        self.desired = dict(done.desired)
        for machine in done.end:
            box = boxes[machine]
            if machine in ids and box.gone is None and not self._forget(ids[machine]):
                self.desired[box.group] += 1
                continue
            if box.work and box.over is None and box.gone is None:
                self.killed.append(box.work.id)
            self.runners.pop(box.runner or 0, None)
            box.over = min(self.now, box.used_until) if box.over is None else box.over
            box.gone = self.now if box.gone is None else box.gone
            self.prepared.pop(machine, None)

    @property
    def mistakes(self) -> list[str]:
        """What is wrong with the history: a lost job, one that began too late, a machine that nobody needed."""
        works = list(self.works.values())
        lost = [f"job {work.id} is lost" for work in works if work.ended is None or work.id in self.killed]
        if lost or self.untrue:
            return [*lost, *self.untrue[:3]]
        longest = max(work.seconds for work in works)
        # A job of a machine: it is asked for, comes up, works, and its end is seen.
        two = 2 * (longest + BOOTS[1] + 5 * MINUTE)
        two += self.rules.patience if self.spot_from > START else 0
        two += BOOT * sum(box.up_at == float("inf") for box in self.machines)  # given up, and replaced
        lines = [f"the minimum was not there for {self.longest_short} minutes"] if self.longest_short > 15 else []
        for work in works:
            begun = work.began or 0
            stall = sum(max(0.0, min(to, begun) - max(since, work.queued)) for since, to, _ in self.faults)
            if (late := begun - work.queued - stall - two) > 0:
                lines.append(f"job {work.id} began {late / MINUTE:.0f} minutes too late")
        for box in self.machines:
            idle = ((box.gone or self.now) - box.used_until) / MINUTE
            if idle > 10 and not (self.rules.least and box.work is None):
                lines.append(f"{box.id} was idle for {idle:.0f} minutes")
        return lines


class PlentifulHistory(History):
    """A history without faults, in which spot capacity is always there, for a full reservation, warm machines or a queue."""

    def __post_init__(self) -> None:
        super().__post_init__()
        draw = random.Random(f"plenty of {self.seed}")
        warm, queued = draw.choice(((True, False), (False, True), (True, True)))
        reserved = draw.choice((0, 0, 1, 2, 3))
        self.block = Reserved(reserved) if reserved else None
        groups = (BLOCK, SPOT, ON_DEMAND) if reserved else (SPOT, ON_DEMAND)
        least, most = draw.choice((1, 2, 3)) if warm else 0, draw.randint(2, 8) if queued else 20
        self.rules = replace(
            self.rules,
            groups=groups,
            least=min(least, most),
            most=most,
            reservations={BLOCK: self.block} if self.block else {},
        )
        self.desired = dict.fromkeys(groups, 0)
        self.reclaimed, self.spot_from, self.takes = float("inf"), START, set()
        every = draw.uniform(0.2, 2 if queued and not warm else 12) * MINUTE
        longest = draw.choice((3, 10, 30)) * MINUTE
        self.works, at = {}, START
        for number in range(1, draw.randint(10, 60)):
            self.works[number] = Work(number, at // 1, draw.uniform(0.2, 1) * longest)
            at += draw.expovariate(1 / every)
        self.quiet, self.faults = at, [(START, START, "")]


def play(first: int, count: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Play histories, and return the kinds of causes that they had."""
    causes = set()
    for seed in range(first, first + count):
        history = History(seed)
        monkeypatch.setattr(table, "time", SimpleNamespace(time=lambda history=history: history.now))
        history.play()
        assert not history.mistakes, f"history {seed}, {history.faults}: {history.mistakes}"
        causes |= history.causes
    return causes


def test_pauses_of_github_cost_pause_and_two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = play(FIRST, histories(300), monkeypatch)
    assert causes == {"starting", "limit", "capacity", "github", "label", "late"}


def test_spot_capacity_that_is_there_leaves_none_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(FIRST, FIRST + histories(60)):
        history = PlentifulHistory(seed)
        monkeypatch.setattr(table, "time", SimpleNamespace(time=lambda history=history: history.now))
        history.play()
        on_demand = [box.id for box in history.machines if box.group == ON_DEMAND]
        assert not on_demand, f"history {seed}: {on_demand} of {len(history.machines)}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_pauses_in_100000_histories_lose_no_job(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play(10_000 * part, 10_000, monkeypatch)
