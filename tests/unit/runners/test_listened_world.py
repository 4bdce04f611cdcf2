"""The listener itself on the virtual clock, for two sets: all that GitHub and AWS may do to it, in random histories.

``SLIPWAY_HISTORIES=1000 python -m pytest tests/unit/runners/test_listened_world.py`` plays more of them.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import github, jobs, keeper, webhook
from scaler.decide import LISTED_SECONDS, Decision, Machine, Runner
from scaler.github import Refused
from scaler.listening import listener, scale_set
from scaler.listening.assigned_jobs import AssignedJobs
from tests.fakes.aws.listened_world import ListenedWorld, Mess, MovingWorld, environment
from tests.fakes.aws.runner_world import BOOT, MINUTE, NAME, Faults, Killed
from tests.helpers.every import every
from tests.helpers.histories import histories

HISTORIES = histories(3)
FAULTY, ALL = 90 * MINUTE, 240 * MINUTE
LIFE = 14 * MINUTE
SETS = {"small": environment("small", 4), "h100": environment("h100", 2)}


class OneSet:
    """The listeners of a set, one after another; each does in a minute what its two threads do."""

    def __init__(self, world: ListenedWorld, name: str) -> None:
        self.world, self.name = world, name
        self.one: listener.Listener | None = None
        self.ends = 0.0

    def minute(self, *, dead: bool, killed: bool) -> None:
        """Let it listen and do a round; it is ``dead`` while Lambda runs none, and ``killed`` without its last words."""
        world = self.world
        if dead or killed:
            self.one = None
        if dead:
            return
        world.killed_at = world.now + 120
        with contextlib.suppress(Killed):
            if self.one and world.now >= self.ends:
                self.one._close()
                self.one = None
            if self.one is None:
                self.ends = world.now + LIFE
                self.one = listener.Listener(world.sets[self.name])
                self.one._end = self.ends + MINUTE
            if self.one._leads():
                for _ in range(20):
                    last = self.one._source.assigned.last
                    if not self.one._attend() or self.one._source.assigned.last == last:
                        break
                self.one._round()
        world.killed_at = float("inf")


def played(
    seed: int, monkeypatch: pytest.MonkeyPatch, mess: Mess | None = None, jobs_: int = 8, skew: float = 0.0, **more: Any
) -> ListenedWorld:
    """Return a world after four hours, of which an hour and a half is faulty.

    Args:
        seed: of its random history.
        monkeypatch: replaces the clock and the network.
        mess: what is wrong with GitHub's messages.
        jobs_: how many jobs there are.
        skew: seconds that the listener's clock is ahead of AWS's.
        more: ``rate`` and ``dead`` of the faults, ``killed`` minutes, the minutes of ``two`` listeners, and those of a ``foreign`` one.
    """
    faults = Faults(rate=more.get("rate", 0.0), dead=more.get("dead", (0.0, 0.0)), until=FAULTY)
    world = ListenedWorld(seed, faults, jobs_, SETS, mess or Mess())
    with on_clock_of(world, monkeypatch, skew):
        first = {name: OneSet(world, name) for name in SETS}
        second = {name: OneSet(world, name) for name in SETS}
        while world.now < world.start + ALL:
            begun = world.now
            minute = int((begun - world.start) // MINUTE)
            world.tick(None)
            dead = faults.dead[0] <= begun - world.start < faults.dead[1]
            if minute in more.get("foreign", ()):
                for name in SETS:
                    world.foreign(name)
            for name in SETS:
                first[name].minute(dead=dead, killed=minute in more.get("killed", ()))
                if minute in more.get("two", ()):
                    second[name].minute(dead=dead, killed=False)
            world.now = max(begun + MINUTE, world.now)
    return world


@contextlib.contextmanager
def on_clock_of(world: ListenedWorld, monkeypatch: pytest.MonkeyPatch, skew: float = 0.0) -> Iterator[None]:
    """Have the functions call a world in place of AWS and GitHub, with a clock that is ``skew`` seconds ahead of it."""
    clock = SimpleNamespace(time=lambda: world.now + skew, sleep=world.spend, monotonic=world.time)
    with monkeypatch.context() as patch:
        for module in (keeper, jobs, github, listener, scale_set):
            patch.setattr(module, "time", clock)
        for module in (keeper, listener, webhook):
            patch.setattr(module, "client", world.client)
        for module in (keeper, webhook):
            patch.setattr(module, "secret", world.secret)
        patch.setattr(listener, "ThreadPoolExecutor", InTurn)
        patch.setattr(github._OPENER, "open", world.urlopen)
        yield


class InTurn:
    """In place of a pool of threads: one clock goes for one call at a time."""

    def __init__(self, _workers: int) -> None: ...

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None: ...

    map = staticmethod(map)


def check(world: ListenedWorld, about: object) -> None:
    """Check that no job is lost, no machine is kept, no set has another one's job, and none has more than its ceiling."""
    unfinished = {job.id: job.state for job in world.jobs.values() if job.state != "completed" and not job.again}
    assert not unfinished, f"{about}: jobs {unfinished}"
    late = {one.id: ((one.ended or world.now) - one.used_until) / MINUTE for one in world.machines.values()}
    assert max(late.values()) <= 10, f"{about}: {late}"
    assert world.wrong == [], about
    assert all(world.most_at_once.get(name, 0) <= most for name, most in {"small": 4, "h100": 2}.items()), about


CASES: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "twice": {"mess": Mess(twice=0.6)},
    "out of order": {"mess": Mess(twice=0.3, late=0.7)},
    "lost": {"mess": Mess(never=0.4)},
    "sessions end": {"mess": Mess(ended=0.3)},
    "revoked": {"mess": Mess(revoked=(20 * MINUTE, 70 * MINUTE))},
    "two listeners": {"two": range(10, 80)},
    "a foreign listener": {"foreign": range(15, 60)},
    "killed": {"killed": range(5, 90, 4)},
    "dead": {"dead": (15 * MINUTE, 50 * MINUTE)},
    "GitHub is ahead": {"mess": Mess(ahead=1800.0)},
    "GitHub is behind": {"mess": Mess(ahead=-7200.0)},
    "AWS is ahead": {"skew": -300.0},  # AWS takes no signature that is older or newer (Version 4)
    "AWS is behind": {"skew": 300.0},
    "calls fail": {"rate": 0.2},
    "all": {
        "mess": Mess(twice=0.3, late=0.3, never=0.1, ended=0.1, revoked=(40 * MINUTE, 55 * MINUTE), ahead=600.0),
        "rate": 0.1, "killed": range(7, 90, 9), "two": range(20, 30), "foreign": range(60, 70), "skew": 30.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_no_job_of_two_sets_is_lost_and_no_machine_shared(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(HISTORIES):
        check(played(seed, monkeypatch, **CASES[case]), f"{case}, history {seed}")


@every("minute, call", [(minute, call) for minute in (2, 14) for call in range(1, 12)])
def test_listeners_in_one_round_start_no_machine_twice(minute: int, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is made anew while the former's last round waits for a call: a machine registers, or a job's ends."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 2, {"small": SETS["small"]}, Mess())
    for number, job in world.jobs.items():
        job.begins, job.seconds = world.start + MINUTE + 10 * MINUTE * (number - 1), 5 * MINUTE
    old, new = OneSet(world, "small"), OneSet(world, "small")
    calls: list[str] = []

    def pass_minute(one: OneSet) -> None:
        begun = world.now
        world.tick(None)
        one.minute(dead=False, killed=False)
        world.now = max(begun + MINUTE, world.now)

    def before(call_of_old: str) -> None:
        calls.append(call_of_old)
        if len(calls) == call:
            new.minute(dead=False, killed=False)

    with on_clock_of(world, monkeypatch):
        for _ in range(minute):
            pass_minute(old)
        opened, failed = world.urlopen, world.fail_aws
        world.tick(None)
        with monkeypatch.context() as patch:
            patch.setattr(github._OPENER, "open", lambda *given, **more: (before("GitHub"), opened(*given, **more))[1])
            patch.setattr(world, "fail_aws", lambda name: (before(name), failed(name))[1])
            old.minute(dead=False, killed=False)
        assert len(calls) >= call
        for _ in range(60):
            pass_minute(new)
    machines = [each for each in world.machines.values() if each.boots < BOOT]
    assert ([each.state for each in world.jobs.values()], len(machines)) == (["completed"] * 2, 2)


def test_next_listener_knows_what_the_last_one_took_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Auto Scaling may have begun to start it, and lists it later: another kind of capacity would be one too many."""
    small = environment("small", 1)
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 1, {"small": small}, Mess())
    world.jobs[1].begins = world.start
    spot, on_demand = json.loads(small["GROUPS"]).values()
    with on_clock_of(world, monkeypatch):
        old, new = (listener.Listener(small) for _ in range(2))
        old._end = new._end = world.now + LIFE
        assert old._leads()
        assert old._attend()
        world.desired[spot] = 1
        old._round()  # no job is assigned yet
        assert world.desired[spot] == 0
        old._close()
        world.tick(None)
        new._jobs.note_shortage(jobs.Shortage(world.now - 450, world.now))
        assert new._leads()
        assert new._attend()
        new._round()
        assert (world.desired[spot], world.desired[on_demand]) == (0, 0)
        world.now += LISTED_SECONDS
        new._round()
        assert (world.desired[spot], world.desired[on_demand]) == (0, 1)


def test_listener_waits_for_another_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        former, next_one = (listener.Listener(SETS["small"]) for _ in range(2))
        for _ in range(4):
            assert (former._leads(), next_one._leads()) == (True, False)
            world.now += MINUTE
        for _ in range(2):  # it is killed
            assert not next_one._leads()
            world.now += 50
        assert (next_one._leads(), former._leads()) == (True, False)


def test_listener_whose_lease_was_lost_and_left_does_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread that listens has ended: nobody would hear of the jobs that GitHub assigns."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        rounds: list[float] = []
        monkeypatch.setattr(one, "_listen", lambda: None)
        monkeypatch.setattr(one, "_round", lambda: rounds.append(world.now))
        monkeypatch.setattr(one._wake, "wait", lambda _: threading.Event().wait(0.2))
        one.run(600)
    assert rounds == []


def test_lease_is_left_though_what_is_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        first, second = (listener.Listener(SETS["small"]) for _ in range(2))
        assert first._leads()
        first._keeps = True

        def refused() -> None:
            raise Refused(400, "Item size has exceeded the maximum")

        monkeypatch.setattr(first, "_keep", refused)
        first._close()
        assert second._leads()


def test_round_before_a_session_is_known_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that began before the table was read takes a machine back: the session begins with that."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        one._round()
        one._keepers[-1]._taken_back.append((begun := world.now, "group", 1))
        one._end = world.now + 600
        one._begin()
        assert one._source.assigned.taken_back == [(begun, "group", 1)]
        assert one._keepers[-1]._taken_back is one._source.assigned.taken_back


def test_listener_notes_that_it_works_during_a_long_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        first, second = (listener.Listener(SETS["small"]) for _ in range(2))
        works: list[bool] = []

        def attend() -> bool:
            works.append(second._leads())
            world.now += 100
            return True

        monkeypatch.setattr(first, "_attend", attend)
        first._end = world.now + 600
        first._listen()
        assert works == [False] * 6


def test_old_view_lacks_what_was_on_its_way_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Auto Scaling had been asked for a machine, and may have started it before it was asked for none."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        one._round()
        (group, other) = json.loads(SETS["small"]["GROUPS"]).values()
        one._source.assigned.taken_back.append((world.now, other, 1))
        world.now += 40
        one._source.assigned.begin("s", {"totalAssignedJobs": 4, "totalRunningJobs": 0}, world.now)
        one._hurry()
        assert world.desired[group] == 3  # of 4
        one._round()
        assert world.desired[group] == 4


def test_message_beside_an_end_asks_for_no_machine_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message's thread has decided when the round ends a machine, and asks Auto Scaling after that."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        world.desired[next(iter(world.desired))] = 1
        world.tick(None)
        one._round()
        (machine,), (last,), view = world.machines.values(), one._keepers, one._keepers[-1]._view
        assert view
        last._view = replace(view, prepared=[machine.id], runners=[])  # its job is over
        monkeypatch.setattr(last, "_waiting", lambda _: [])
        ask = last._raise

        def ask_late(decision: Decision, groups: keeper.Groups, machines: list[Machine]) -> dict[str, int]:
            kinds = {each.id: each.group for each in machines}
            last._end_machines(decision, groups, dict.fromkeys(groups, 1), kinds, {}, [machine.id])
            return ask(decision, groups, machines)

        monkeypatch.setattr(last, "_raise", ask_late)
        last.hurry()
    assert (machine.state, {*world.desired.values()}) == ("Terminating:Wait", {0})


def test_runner_that_just_came_online_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may have taken longer to boot than machines without a job are kept."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        for earlier in (False, True):  # whether it was online before this listener
            one = listener.Listener(SETS["small"])
            one._round()
            (last,), now = one._keepers, world.now
            assert last._view
            machine = Machine("i-1", next(iter(last._view.groups)), now - 1000)
            online = Runner(1, machine.id, online=True, busy=False)
            one._source.online = None
            view = replace(last._view, machines=[machine], runners=[online] * earlier, prepared={machine.id: now - 900})
            last._decide(view, [], now)
            ends = [last._decide(replace(view, runners=[online]), [], now + later).end for later in (10, 170, 195)]
            assert ends == [{machine.id: "idle"} if earlier or n == 2 else {} for n in range(3)]


@contextlib.contextmanager
def after_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[ListenedWorld, listener.ListeningKeeper, keeper.Groups]]:
    """Yield a world, and the keeper of a listener's first round in it with the groups that it saw."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        one._round()
        (last,) = one._keepers
        assert last._view
        yield world, last, last._view.groups


@pytest.mark.parametrize(("more", "kept", "expected"), [(0, 0, 2), (0, 1, 3), (1, 0, 3)])
def test_message_beside_a_round_asks_for_no_machine_twice(
    more: int, kept: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round has ended machines, and asks for what is missing then: the message's thread has asked for it already."""
    with after_a_round(monkeypatch) as (world, last, groups):
        first, other = groups

        def end(*_: object) -> None:
            groups[first]["DesiredCapacity"] = 1
            last._raise(Decision(desired={first: 2 + more, other: 0}), groups, [])

        monkeypatch.setattr(last, "_end_machines", end)
        decision = Decision(desired={first: 2, other: 0})
        last._act(decision, {first: 2 + kept, other: 0}, groups, [], [], jobs.Rows(), {})
        assert world.desired[groups[first]["AutoScalingGroupName"]] == expected


@pytest.mark.parametrize(("wanted", "also_ends", "expected"), [(3, False, 3), (2, True, 3), (3, True, 4)])
def test_machine_that_got_a_job_beside_a_round_counts_once(
    wanted: int, expected: int, monkeypatch: pytest.MonkeyPatch, *, also_ends: bool
) -> None:
    """GitHub keeps its runner, which the round was to end. The message's thread may know, and count it, or not."""
    with after_a_round(monkeypatch) as (world, last, groups):
        first, other = groups
        machines = [Machine("i-1", first, world.now)]

        def keep(*_: object) -> None:
            ends = {"i-1": "idle"} if also_ends else {}
            last._raise(Decision(desired={first: wanted, other: 0}, end=ends), groups, machines)

        monkeypatch.setattr(last, "_end_machines", keep)
        decision = Decision(desired={first: 2, other: 0}, end={"i-1": "idle"})
        last._act(decision, {first: 3, other: 0}, groups, machines, [], jobs.Rows(), {})
        assert world.desired[groups[first]["AutoScalingGroupName"]] == expected


def test_job_of_a_lost_machine_leaves_its_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub counts the job for minutes after its machine, and gives the set no more than it can have."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        one._round()
        most = one._capacity
        one._source.assigned.busy = {"slipway-t-i-1": 1, "slipway-t-i-2": 2}
        one._jobs.note_lost_runner("slipway-t-i-2")
        one._jobs.note_lost_runner("slipway-t-i-3")  # its job is over, or it had none
        one._round()
        assert one._capacity == most + 1
        one._source.assigned.busy.pop("slipway-t-i-2")
        assert one._capacity == most


def test_offline_runners_are_asked_for_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener may do six rounds meanwhile. In those between, a machine stays of which GitHub was not asked."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        one = listener.Listener(SETS["small"])
        one._end = world.now + LIFE
        assert one._attend()
        world.desired[next(iter(world.desired))] = 1
        world.tick(None)
        one._round()
        (machine,) = world.machines.values()
        machine.started = world.now - BOOT - 1
        over = []
        for _ in range(6):
            over.append(machine.state)
            world.now = world.start + 10 * len(over) if len(over) < 6 else world.start + 65
            one._round()
    assert (over, machine.state) == (["InService"] * 6, "Terminating:Wait")


def test_listener_that_read_no_table_leaves_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        former, idle, next_one = (listener.Listener(SETS["small"]) for _ in range(3))
        former._end = world.now + LIFE
        assert former._leads()
        assert former._attend()
        former._jobs.leave(former._own)  # it is killed
        assert idle._leads()
        idle._close()
        assert next_one._leads()
        assert AssignedJobs.of(next_one._jobs.rows().listener).session == world.told["small"].session != ""


@every("waits", ["ensure", "message"])
def test_thread_that_outlives_its_listener_does_nothing(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda froze it during a call, and lets it go on beside the next listener."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 1, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        old, new = (listener.Listener(SETS["small"]) for _ in range(2))
        old._end, new._end = world.now + LIFE, world.now + 2 * LIFE
        call = getattr(old._set, waits)

        def freeze(*given: Any) -> Any:
            answer = call(*given)
            world.now += LIFE
            old._close()
            assert new._leads()
            assert waits == "ensure" or new._attend()
            return answer

        assert old._leads()
        if waits == "message":
            old._begin()
            world.told["small"].messages.append((0.0, {"messageId": 1, "body": "[]", "statistics": {}}))
        monkeypatch.setattr(old._set, waits, freeze)
        assert not old._attend()
        assert old._source.assigned.last == 0
        row = AssignedJobs.of(new._jobs.rows().listener)
        assert row.session == new._source.assigned.session == world.told["small"].session
        old._close()
        assert not old._leads()


def test_former_listener_keeps_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the answer to its wait for messages once the next one has begun, and ends."""
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 1, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        old, new = (listener.Listener(SETS["small"]) for _ in range(2))
        old._end = new._end = world.now + LIFE
        assert (old._leads(), new._leads()) == (True, False)
        old._begin()
        world.now += 3 * MINUTE
        assert new._leads()
        monkeypatch.setattr(old._set, "message", lambda *_: [new._begin(), {"messageId": 1, "body": "[]"}][1])
        assert not old._attend()
        assert not old._listens
        session = world.told["small"].session
        assert AssignedJobs.of(new._jobs.rows().listener).session == new._source.assigned.session == session != ""
        old._close()
        assert (new._leads(), AssignedJobs.of(new._jobs.rows().listener).session) == (True, session)
        new._jobs.note_listener("keeper 3", "", first=True)  # AWS did not answer it who works
        monkeypatch.setattr(new._set, "message", lambda *_: {"messageId": 1, "body": "[]"})
        assert [new._attend() for _ in range(2)] == [False, True]
        assert AssignedJobs.of(new._jobs.rows().listener).session == new._source.assigned.session


def test_failed_round_lets_the_next_listener_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess())
    with on_clock_of(world, monkeypatch):
        failed, over = listener.Listener(SETS["small"]), threading.Event()

        def listen() -> None:
            failed._attend()
            over.wait(60)

        def fail() -> None:
            over.set()
            raise IndexError

        monkeypatch.setattr(failed, "_listen", listen)
        monkeypatch.setattr(failed, "_round", fail)
        with pytest.raises(IndexError):
            failed.run(LIFE)
        assert failed._source.assigned.session == world.told["small"].session == ""
        assert listener.Listener(SETS["small"])._leads()


def test_second_listener_works_once_the_first_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ListenedWorld(0, Faults(0.0, (0.0, 0.0), 0.0), 0, SETS, Mess(revoked=(3 * MINUTE, 6 * MINUTE)))

    def minute(*sets: OneSet) -> list[listener.Listener]:
        world.now += MINUTE
        for each in sets:
            each.minute(dead=False, killed=False)
        return [each.one for each in sets if each.one]

    with on_clock_of(world, monkeypatch):
        sets = [OneSet(world, "small") for _ in range(3)]
        for _ in range(10):  # in some of these minutes, GitHub refuses both
            first, second = minute(*sets[:2])
            assert (len(first._keepers) > 0, second._keepers) == (True, [])
        session = world.told["small"].session
        assert first._source.assigned.session == session != second._source.assigned.session == ""
        for _ in range(4):
            minute(sets[1])
        assert session != world.told["small"].session == second._source.assigned.session != ""
        assert not first._leads()
        first._close()
        assert second._source.assigned.session == world.told["small"].session
        second._close()
        (third,) = minute(sets[2])
        assert third._source.assigned.session == world.told["small"].session != ""


def test_full_set_does_not_use_machines_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(HISTORIES):
        world = played(seed, monkeypatch, jobs_=24)
        assert world.most_at_once == {"small": 4, "h100": 2}
        check(world, seed)


def moved_over(seed: int, monkeypatch: pytest.MonkeyPatch, mess: Mess | None = None, rate: float = 0.0) -> MovingWorld:
    """Return the world of a stack that has had a webhook for 40 minutes, then both for an hour, and then has none."""
    world = MovingWorld(seed, Faults(rate, (0.0, 0.0), FAULTY), 14, mess or Mess(), 100 * MINUTE)
    world.jobs[1].begins = world.start + 39.5 * MINUTE  # the webhook notes it after the last round without a listener
    alone = world.sets[NAME]
    both, one = {**alone, "WEBHOOK": "too"}, OneSet(world, NAME)
    with on_clock_of(world, monkeypatch), monkeypatch.context() as patch:
        for name, value in alone.items():
            patch.setenv(name, value)
        while world.now < world.start + ALL:
            begun = world.now
            world.tick(webhook)
            if begun - world.start < 40 * MINUTE:
                world.killed_at = begun + 55
                with contextlib.suppress(Killed):
                    keeper.Keeper(alone).round()
                world.killed_at = float("inf")
            else:  # an update ends the function of before
                world.sets = {NAME: both if begun < world.alone else alone}
                one.minute(dead=False, killed=0 <= begun - world.alone < MINUTE)
            world.now = max(begun + MINUTE, world.now)
    return world


@pytest.mark.parametrize("case", ["nothing", "twice", "out of order", "lost", "sessions end", "revoked", "calls fail"])
def test_stack_that_moves_over_loses_no_job(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(HISTORIES):
        world = moved_over(seed, monkeypatch, **CASES[case])
        check(world, f"{case}, history {seed}")
