"""The decisions of a listener on the virtual clock of the scaler's histories, over messages that GitHub sends as it likes.

They come late, twice, in another order, without a part, or never; listeners follow one another and know what is kept.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import jobs as table
from scaler.decide import Decision, Machine, Rules, Runner, decide
from scaler.fleet_status import status
from scaler.jobs import LISTENER, Job, Rows
from scaler.listening.assigned_jobs import AssignedJobs
from scaler.listening.listener import noted_alone, outside
from scaler.waiting import CAUSES
from tests.helpers.every import every
from tests.helpers.histories import histories
from tests.unit.runners.test_scaler_histories import FIRST, MINUTE, START, Box, History, Work

PARTS = {"queued": "JobAssigned", "in_progress": "JobStarted", "completed": "JobCompleted"}
LISTENS = 14 * MINUTE


class ListenedHistory(History):
    """A history in which GitHub tells of assigned jobs in the messages of a scale set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lies = random.Random(f"messages of {self.seed}")
        self.known = AssignedJobs()
        self.numbered = 0
        self.begun = 0.0

    def statistics(self) -> dict[str, int]:
        there = [work for work in self.works.values() if work.id in self.announced and work.ended is None]
        running = sum(work.began is not None for work in there)
        return {"totalAssignedJobs": len(there), "totalRunningJobs": running}

    def _tell(self, action: str, work: Work) -> None:
        first = len(self.post)
        super()._tell(action, work)
        self.numbered += 1
        runner = next((box.id for box in self.machines if box.work is work), "")
        part = {
            "messageType": PARTS[action], "runnerRequestId": work.id, "ownerName": "acme", "repositoryName": "images",
            "workflowRunId": work.id, "runnerName": runner, "result": "Succeeded", "queueTime": "0001-01-01T00:00:00Z",
        }  # fmt: skip
        body = "not JSON" if self.lies.random() < 0.05 else json.dumps([part, 7, {"messageType": "JobAssigned"}])
        message = {"messageId": self.numbered, "body": body, "statistics": self.statistics()}
        # What is never sent is told by the numbers of the next message, or of the next session.
        copies = [] if self.lies.random() < 0.03 else self.post[first:]
        self.post[first:] = [(due, message, work) for due, *_ in copies]

    def _deliver(self) -> None:
        deaf = self.fault() in {"refuses", "away"}
        if not deaf and self.now - self.begun >= LISTENS:
            self.begun = self.now
            self.known = AssignedJobs.of(self.known.text())
            self.known.begin(f"at {self.now}", self.statistics(), self.now)
            self.known.last = self.numbered
        due = [one for one in self.post if one[0] <= self.now and not deaf]
        self.post = [one for one in self.post if one not in due]
        for _, message, _ in due:
            self.known.take(message, self.now)
            self.known.acknowledge(message)

    def _waiting(self) -> list[Job]:
        return self.known.jobs() or []

    def _listed(self) -> list[Runner] | None:
        listed = super()._listed()
        return None if listed is None else self.known.seen(listed, "")

    def _recheck(self, jobs: list[Job]) -> None:
        """Ask nothing: the numbers of the next message say what the table cannot know."""

    def _leave(self, job: Job) -> None:
        self.known.leave(job.id, self.now)

    def _explain(self, jobs: list[Job], machines: list[Machine], listed: list[Runner] | None) -> None:
        report = status(self.now, self.rules, jobs, machines, listed, dict(self.prepared), {})
        waiting = [each for each in report if each.kind]
        if len(waiting) != len(jobs) or not all(each.cause and each.kind in CAUSES for each in waiting):
            self.untrue.append("a job waits, and nothing says why")


class MovedHistory(ListenedHistory):
    """A history of a stack that moves over: the webhook alone at first, then both for hours, then the listener alone.

    GitHub gives a job from before to a runner outside of the set alone, and one of later to a runner of the set alone.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.listens = START + self.lies.uniform(0, 120) * MINUTE
        self.alone = max(self.listens + self.lies.uniform(60, 180) * MINUTE, *(to for _, to, _ in self.faults))
        self.before: set[int] = set()

    def statistics(self) -> dict[str, int]:
        of_set = {number: work for number, work in self.works.items() if number not in self.before}
        there = [work for work in of_set.values() if work.id in self.announced and work.ended is None]
        return {"totalAssignedJobs": len(there), "totalRunningJobs": sum(work.began is not None for work in there)}

    def _tell(self, action: str, work: Work) -> None:
        if action == "queued" and self.now < self.listens:
            self.before.add(work.id)
        if self.now < self.alone + 60 * MINUTE:  # a delivery that is late is not lost with its webhook
            History._tell(self, action, work)
        if work.id not in self.before:
            super()._tell(action, work)

    def _deliver(self) -> None:
        noted = [one for one in self.post if isinstance(one[1], str)]
        messages = [one for one in self.post if one not in noted]
        self.post = noted
        History._deliver(self)
        noted = self.post if self.now < self.alone else []
        self.post = messages
        if self.now >= self.listens:
            super()._deliver()
        self.post += noted

    def _takes(self, box: Box, work: Work) -> bool:
        return box.in_set is (work.id not in self.before)

    def _noted(self) -> list[Job]:
        noted = History._waiting(self)
        return noted_alone(noted, self.known.jobs() or [], webhook=self.now < self.alone)

    def _waiting(self) -> list[Job]:
        return sorted([*self._noted(), *super()._waiting()], key=lambda job: job.since)

    def _recheck(self, jobs: list[Job]) -> None:
        History._recheck(self, [job for job in jobs if job.id > 0])

    def _leave(self, job: Job) -> None:
        if not self.known.leave(job.id, self.now):
            History._leave(self, job)

    def _act(self, done: Decision, boxes: dict[str, Box], waiting: list[Job]) -> None:
        count = len(done.prepare)
        if self.now >= self.listens:
            in_set = {box.id for box in boxes.values() if box.in_set}
            count = outside(count, self._noted(), self.known.jobs() or [], self.seen[-1][1], in_set)
        for number, machine in enumerate(done.prepare):
            boxes[machine].in_set = number >= count
        super()._act(done, boxes, waiting)


def play(first: int, count: int) -> None:
    for seed in range(first, first + count):
        history = ListenedHistory(seed)
        history.play()
        assert not history.mistakes, f"history {seed}, {history.faults}: {history.mistakes}"


def test_messages_that_lie_lose_no_job_and_keep_no_machine() -> None:
    play(FIRST, histories(300))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_messages_in_100000_histories_lose_no_job(part: int) -> None:
    play(10_000 * part, 10_000)


def test_stacks_that_move_over_lose_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first four GitHub refuses for an hour, in which jobs are noted that it later tells of as those of the set."""
    refused = (48114169, 48114700, 48115517, 48115868)
    for seed in (*refused, *range(FIRST, FIRST + histories(150))):
        history = MovedHistory(seed)
        monkeypatch.setattr(table, "time", SimpleNamespace(time=partial(getattr, history, "now")))
        history.play()
        works = [work.id for work in history.works.values() if work.ended is None or work.id in history.killed]
        assert not works, f"history {seed}, {history.faults}: {history.mistakes}"


def message(number: int, assigned: int, running: int, *parts: tuple[str, int, str]) -> dict[str, Any]:
    """Return a message with parts of a kind, a request and a runner."""
    body = [
        {"messageType": kind, "runnerRequestId": request, "runnerName": runner, "ownerName": "acme",
         "repositoryName": "images", "workflowRunId": 7, "result": "Failed", "queueTime": "2027-01-15T08:00:00.1234567Z"}
        for kind, request, runner in parts
    ]  # fmt: skip
    numbers = {"totalAssignedJobs": assigned, "totalRunningJobs": running}
    return {"messageId": number, "body": json.dumps(body), "statistics": numbers}


def test_message_twice_or_late_changes_no_number() -> None:
    known = AssignedJobs()
    assert known.jobs() is None
    known.begin("s", {"totalAssignedJobs": 0, "totalRunningJobs": 0}, START)
    first = message(1, 2, 0, ("JobAssigned", 11, ""), ("JobAssigned", 12, ""))
    second = message(2, 2, 1, ("JobStarted", 11, "i-1"))
    for one in (second, first, first, second, first):
        known.take(one, START)
        known.acknowledge(one)
        assert len(known.jobs() or []) == 1
    assert [job.id for job in known.jobs() or []] == [-12]
    third = message(3, 1, 0, ("JobCompleted", 11, "i-1"))
    for one in (third, first, second):
        known.take(one, START)
    assert ([job.id for job in known.jobs() or []], known.busy) == ([-12], {})
    assert known.failed_on({"i-1", "i-2"}) == [("i-1", "acme/images", 7)]


def test_message_again_in_the_next_session_changes_no_number() -> None:
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 0, "totalRunningJobs": 0}, START)
    old = message(7, 3, 0, ("JobAssigned", 11, ""))
    known.take(old, START)
    assert len(known.jobs() or []) == 3
    known = AssignedJobs.of(known.text())
    known.begin("t", {"totalAssignedJobs": 0, "totalRunningJobs": 0}, START + 900)
    known.take(old, START + 900)
    assert known.jobs() == []
    known.take({**old, "statistics": message(7, 1, 0)["statistics"]}, START + 900)  # GitHub says the numbers of now
    assert len(known.jobs() or []) == 1


def test_next_listener_knows_since_when_jobs_wait() -> None:
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 3, "totalRunningJobs": 0}, START)
    known.take(message(1, 3, 0, ("JobAssigned", 11, "")), START + 60)
    assert known.leave(-11, START + 70)
    successor = AssignedJobs.of(known.text())
    assert (successor.session, successor.last) == ("s", 0)
    successor.begin("t", {"totalAssignedJobs": 4, "totalRunningJobs": 0}, START + 900)
    jobs = successor.jobs() or []
    assert [job.since - START for job in jobs if job.id != -11] == [0, 0, 900]
    assert [job.unassigned_since for job in jobs if job.id == -11] == [START + 70]
    assert AssignedJobs.of("of another shape").jobs() is None


def test_jobs_without_a_name_wait_for_no_one_machine() -> None:
    """It is online, and GitHub gives it no job: each round blamed the first job, and counted it as free for the other."""
    known, now = AssignedJobs(), START + 5000
    known.begin("s", {"totalAssignedJobs": 2, "totalRunningJobs": 0}, START)
    rules = Rules(("spot", "on-demand"), 0, 6, 300, 600, 1200, 7 * 86400.0)
    there, runners = [Machine("i-0", "spot", START)], [Runner(0, "i-0", online=True, busy=False)]

    def decided(at: float) -> Decision:
        return decide(at, rules, known.jobs(), there, runners, {"i-0": START})

    for minute in (0, 60):
        done = decided(now + minute)
        assert sum(done.desired.values()) == 1
        assert [known.leave(job, now + minute) for job in done.unassigned] == [True]
    assert sum(decided(now + 120).desired.values()) == 2
    assert [job.since for job in known.jobs() or ()] == [START, START]  # which `LongestQueued` is measured from


@every(
    "row", [["a/b", "x", None, False, 0], ["a/b", 0, "x", False, 0], ["a/b", 0, None, False, {}], ["a/b"], 7, None, []]
)
def test_known_job_of_another_shape_costs_what_is_known_alone(row: object) -> None:
    known = json.loads(AssignedJobs().text())
    assert AssignedJobs.of(json.dumps({**known, "session": "s"})).session == "s"
    assert AssignedJobs.of(json.dumps({**known, "session": "s", "waiting": {"7": row}})) == AssignedJobs()
    assert AssignedJobs.of(json.dumps({**known, "session": "s", "nameless": [row]})) == AssignedJobs()


def test_row_of_a_former_listener_is_read_and_another_one_is_not() -> None:
    """What cannot be read costs no other row, nor any memory."""
    whole = zlib.compress(b"what is known")
    rows = Rows()
    rows.add({"id": {"S": LISTENER}, "state": {"S": LISTENER}, "known": {"B": whole}}, START)
    for wrong in (b"", b"{}", whole[:-1], zlib.compress(bytes(9 << 20)), zlib.compress(b"\xff")):
        with pytest.raises(ValueError, match="."):
            rows.add({"id": {"S": LISTENER}, "state": {"S": LISTENER}, "known": {"B": wrong}}, START)
    assert rows.listener == "what is known"


@every("wrong", [None, {}, {"totalAssignedJobs": "many"}, [1], {"totalAssignedJobs": None}])
def test_message_of_another_shape_leaves_the_numbers(wrong: object) -> None:
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 1, "totalRunningJobs": 0}, START)
    for body in (None, "", "[", "[1, null]", '{"a": 1}', '[{"messageType": "JobAssigned"}]', 7):
        assert known.take({"messageId": 4, "body": body, "statistics": wrong}, START) == []
    assert len(known.jobs() or []) == 1


def test_message_of_an_unknown_kind_changes_no_job() -> None:
    """The job would count as a new one: another kind of capacity is tried by how long it has waited."""
    known = AssignedJobs()
    known.take(message(1, 1, 0, ("JobAssigned", 11, "")), 1_900_000_000.0)
    before = known.jobs()
    known.take(message(2, 1, 0, ("JobReassigned", 11, "i-1")), 1_900_000_600.0)
    assert known.jobs() == before


def test_messages_with_equal_checksums_of_32_bits_differ() -> None:
    known = AssignedJobs()
    for number, assigned in ((84708, 1), (125000, 186)):  # crc32 is the same
        known.take({"messageId": number, "statistics": {"totalAssignedJobs": assigned, "totalRunningJobs": 0}}, START)
        assert len(known.jobs() or []) == assigned


def test_numbers_beyond_any_set_are_bounded() -> None:
    known = AssignedJobs()
    known.take(message(1, 100_000, 0), START)
    assert len(known.jobs() or []) == 3000


def test_job_that_is_over_never_waits_again() -> None:
    """Its assignment comes after its end, and GitHub counts another job."""
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 2, "totalRunningJobs": 0}, START)
    known.take(message(2, 2, 0, ("JobCompleted", 11, "i-1")), START)
    known.take(message(1, 2, 0, ("JobAssigned", 11, ""), ("JobAssigned", 12, "")), START)
    ids = [job.id for job in known.jobs() or []]
    assert (len(ids), -12 in ids, -11 in ids) == (2, True, False)


def test_runner_is_busy_from_its_job_until_it_is_not_listed() -> None:
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 2, "totalRunningJobs": 0}, START)
    runners = [Runner(number, f"i-{number}", online=True, busy=False) for number in (1, 2, 3)]
    known.take(message(1, 2, 2, ("JobStarted", 11, "x-i-1"), ("JobStarted", 12, "x-i-2")), START)
    assert [one.busy for one in known.seen(runners, "x-")] == [True, True, False]
    known.take(message(2, 1, 1, ("JobCompleted", 11, "x-i-1")), START)
    known.take(message(1, 2, 2, ("JobStarted", 11, "x-i-1"), ("JobStarted", 13, "x-i-1")), START)
    assert [one.busy for one in known.seen(runners, "x-")] == [True, True, False]
    assert "x-i-1" not in known.busy


def test_jobs_are_in_order_and_the_oldest_go_first() -> None:
    known = AssignedJobs()
    known.begin("s", {"totalAssignedJobs": 3, "totalRunningJobs": 0}, START)
    begun = START + 86400 * 365  # after the time of the messages
    assert known.take(message(1, 3, 0, *(("JobAssigned", number, "") for number in (13, 12, 11))), begun) == []
    assert [job.id for job in known.jobs() or []] == [-11, -12, -13]
    known.take(message(2, 2, 0), begun)
    assert [job.id for job in known.jobs() or []] == [-12, -13]
    ahead = AssignedJobs()
    ahead.take(message(1, 1, 0, ("JobAssigned", 11, "")), 1000.0)
    assert [job.since for job in ahead.jobs() or []] == [1000.0]


def test_message_tells_what_to_acquire_and_what_has_failed() -> None:
    known = AssignedJobs()
    assert known.take(message(7, 1, 0, ("JobAvailable", 11, ""), ("JobAvailable", 12, "")), START) == [11, 12]
    known.acknowledge(message(7, 1, 0))
    known.acknowledge(message(3, 1, 0))
    assert known.last == 7
    skipped = message(8, 1, 0, ("JobCompleted", 11, "i-1"))
    known.take({**skipped, "body": skipped["body"].replace("Failed", "Skipped")}, START)
    known.take(message(9, 1, 0, ("JobCompleted", 12, "i-2")), START)
    assert known.failed_on({"i-1", "i-2"}) == [("i-2", "acme/images", 7)]
    known.settle("i-2")
    assert known.failed_on({"i-1", "i-2"}) == []
    known.settle("i-2")
    known = AssignedJobs.of(known.text())
    known.begin("t", {"totalAssignedJobs": 1, "totalRunningJobs": 0}, START)
    known.take(message(4, 1, 0, ("JobAssigned", 21, "")), START)
    assert [job.lost for job in AssignedJobs.of(known.text()).jobs() or []] == [True]
    assert (known.leave(5, START), known.leave(-5, START)) == (False, True)
    known.begin("t", {"totalAssignedJobs": 0, "totalRunningJobs": 0}, START)
    assert (known.session, known.last) == ("t", 0)


def test_webhooks_jobs_get_runners_outside_of_the_set() -> None:
    noted = [Job(number, "acme/images", START + number) for number in (1, 2, 3)]
    assigned = [Job(-11, "acme/images", START + 2.5)]
    assert noted_alone(noted, assigned, webhook=True) == noted[:2]
    assert noted_alone(noted, 4 * assigned, webhook=True) == []
    assert noted_alone(noted, assigned, webhook=False) == noted
    given = [
        replace(job, unassigned_since=9.0) for job in noted[1:]
    ]  # GitHub gave them to no runner outside of the set
    assert noted_alone([*noted[:1], *given], assigned, webhook=False) == [*noted[:1], *given[: -len(assigned)]]
    assert [outside(count, noted[:2], assigned, [], set()) for count in (0, 1, 2, 3)] == [0, 1, 2, 2]
    idle, busy = (Runner(n, f"i-{n}", online=True, busy=n == 2) for n in (1, 2))
    assert outside(3, noted[:2], assigned, [idle], set()) == 1  # it serves one of the two
    assert outside(3, noted[:2], assigned, [busy], set()) == 2
    assert outside(3, noted[:2], assigned, [idle], {"i-1"}) == 2


def test_1500_jobs_that_end_at_once_leave_no_runner_free() -> None:
    """GitHub lists each runner for some seconds more. As a free one, it would stand for a machine that a job needs."""
    known, numbers = AssignedJobs(), range(1, 1501)
    known.take(message(1, 1500, 1500, *(("JobStarted", number, f"x-i-{number}") for number in numbers)), START)
    known.take(message(2, 1500, 0, *(("JobAssigned", 1500 + number, "") for number in numbers)), START)
    known.take(message(3, 1500, 0, *(("JobCompleted", number, f"x-i-{number}") for number in numbers)), START)
    known = AssignedJobs.of(known.text())
    runners = known.seen([Runner(n, f"i-{n}", online=True, busy=False) for n in numbers], "x-")
    machines = [Machine(f"i-{n}", "spot", START - 3600) for n in numbers]
    rules = Rules(("spot",), 0, 3000, patience=300, idle=300, boot=600, lifetime=86400)
    registered = {machine.id: machine.started for machine in machines}
    decision = decide(START + 700, rules, known.jobs(), machines, runners, registered)
    assert (decision.desired, decision.unassigned, decision.end) == ({"spot": 3000}, [], {})
    known.take(message(4, 1500, 0, ("JobAssigned", 1, "")), START)  # late, and once more
    assert -1 not in [job.id for job in known.jobs() or []]


def test_many_jobs_and_foreign_names_are_bounded() -> None:
    """The row in which they are kept has a limit."""
    known = AssignedJobs()
    started = range(1, 3006)
    known.take(message(0, 3005, 3005, *(("JobStarted", number, f"i-{number}") for number in started)), START)
    assert known.busy == {f"i-{number}": number for number in range(6, 3006)}
    known = AssignedJobs()
    numbers = range(101, 1121)
    known.take(message(1, 1020, 0, *(("JobAssigned", number, "") for number in numbers)), START)
    assert (len(known.waiting), len(known.jobs() or [])) == (1000, 1020)
    known.take(message(2, 4020, 4020, *(("JobCompleted", number, f"i-{number}") for number in range(101, 4121))), START)
    assert (len(known.ended), len(known.failed)) == (6000, 1000)
    foreign = message(3, 1021, 1020, ("JobAssigned", 40, ""))
    body = foreign["body"].replace('"images"', '"../x"').replace("queueTime", "scaleSetAssignTime")
    known.take({**foreign, "body": body}, 1_900_000_000.0)
    assert [(job.repository, job.since) for job in known.jobs() or []] == [("", 1_800_000_000.123456)]
    known.take(message(4, 1022, 1021, ("JobStarted", 41, "i-41")), START)
    known.take(message(5, 1022, 1021, ("JobAssigned", 41, "")), 1_900_000_000.0)
    assert -41 not in [job.id for job in known.jobs() or []]
    assert known.acknowledge({"messageId": "5"}) == 0
    timeless = message(6, 1023, 1021, ("JobAssigned", 50, ""))
    known.take({**timeless, "body": timeless["body"].replace("2027", "0001")}, START)
    assert START in [job.since for job in known.jobs() or [] if job.id == -50]
