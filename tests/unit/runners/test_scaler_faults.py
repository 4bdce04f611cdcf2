"""The scaler on a virtual clock, over random histories in which GitHub, AWS and the network fail at random.

``SLIPWAY_HISTORIES=10000 python -m pytest tests/unit/runners/test_scaler_faults.py`` plays more of them.
"""

from __future__ import annotations

import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from scaler import github, jobs, keeper, webhook
from scaler.decide import Decision
from tests.fakes.aws import runner_world
from tests.fakes.aws.runner_world import ENVIRONMENT, GROUPS, MINUTE, RULES, Faults, Killed, World
from tests.helpers.histories import histories

HISTORIES = histories(30)
FAULTY, ALL = 90 * MINUTE, 240 * MINUTE


def played(seed: int, monkeypatch: pytest.MonkeyPatch, **faults: Any) -> World:
    """Return a world after four hours, of which an hour and a half is faulty."""
    dead = seed * 7919 % 90 * MINUTE
    world = World(
        seed,
        Faults(**{"rate": (0.02, 0.2, 0.5)[seed % 3], "dead": (dead, dead + 25 * MINUTE), "until": FAULTY, **faults}),
        8,
    )
    rounds(world, monkeypatch, ALL)
    return world


def rounds(world: World, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[Decision | None]:
    """Let time pass, with a round of the keeper each minute; return what each decided that came to its end."""
    decisions: list[Decision | None] = []
    with monkeypatch.context() as patch:
        for module in (keeper, jobs, github):
            patch.setattr(module, "time", SimpleNamespace(time=world.time))
        for module in (keeper, webhook):
            patch.setattr(module, "client", world.client)
            patch.setattr(module, "secret", world.secret)
        patch.setattr(github._OPENER, "open", world.urlopen)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        while world.now < world.start + seconds:
            begun = world.now
            world.tick(webhook)
            if not world.faults.dead[0] <= begun - world.start < world.faults.dead[1]:
                world.killed_at = begun + 55
                with contextlib.suppress(Killed):
                    decisions.append(keeper.Keeper(ENVIRONMENT).round())
                world.killed_at = float("inf")
            world.now = max(begun + MINUTE, world.now)
    return decisions


@pytest.mark.parametrize("part", range(3))  # each with a limit of its own
def test_faults_lose_no_job_and_keep_no_machine(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(part, HISTORIES, 3):
        world = played(seed, monkeypatch)
        unfinished = {job.id: job.state for job in world.jobs.values() if job.state != "completed" and not job.again}
        assert not unfinished, f"history {seed}: jobs {unfinished}"
        late = {one.id: (one.ended or world.now) - one.used_until for one in world.machines.values()}
        assert max(late.values()) <= 10 * MINUTE, f"history {seed}: {late}"


def test_minimum_without_spot_capacity_comes_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job waits, so the table remembers since when. A round in between that fails forgets nothing."""
    world = World(0, Faults(0, (3 * MINUTE, 4 * MINUTE), 0), 0)
    world.capacity[GROUPS["spot"]] = False
    monkeypatch.setitem(ENVIRONMENT, "RULES", json.dumps({**RULES, "least": 2}))
    rounds(world, monkeypatch, 9 * MINUTE)
    assert [machine.group for machine in world.machines.values()] == [GROUPS["on-demand"]] * 2
    assert sum(world.desired.values()) == 2


def test_round_that_cannot_tell_its_machines_changes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """AWS lists the groups, and one of their machines in another shape than documented."""
    world = World(0, Faults(0, (0, 0), 0), 8)
    listed = keeper.Keeper._group_descriptions

    def groups(own: keeper.Keeper) -> Any:
        return {kind: {**group, "Instances": [{"LifecycleState": "InService"}]} for kind, group in listed(own).items()}

    monkeypatch.setattr(keeper.Keeper, "_group_descriptions", groups)
    assert rounds(world, monkeypatch, 30 * MINUTE) == [None] * 30
    assert {job.state for job in world.jobs.values()} == {"queued"}
    assert not world.machines
    assert '"to": "list the machines"' in capsys.readouterr().out


@pytest.fixture
def two_offline(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose two machines wait for jobs, for longer than a start may take; GitHub's list shows them as offline."""
    world = World(0, Faults(0, (0, 0), 0), 0)
    listed = github.GitHub.runners

    def runners(own: github.GitHub) -> Any:
        return ({**one, "status": "offline"} for one in listed(own))

    monkeypatch.setattr(runner_world, "IDLE", RULES["lifetime"])  # as a machine of the minimum has it
    monkeypatch.setitem(ENVIRONMENT, "RULES", json.dumps({**RULES, "least": 2}))
    rounds(world, monkeypatch, 24 * MINUTE)
    assert [(one.up is None, one.over) for one in world.machines.values()] == [(False, None)] * 2
    monkeypatch.setattr(github.GitHub, "runners", runners)
    return world


def test_list_that_shows_all_offline_for_a_moment_ends_none(
    two_offline: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds(two_offline, monkeypatch, 26 * MINUTE)
    assert [one.over for one in two_offline.machines.values()] == [None, None]


def test_time_to_come_online_ends_for_none_during_the_asks(two_offline: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine was too young to be asked for, and old enough to end once GitHub had answered for the other."""
    asked = github.GitHub.runner

    def runner(own: github.GitHub, number: int) -> Any:
        two_offline.spend(30)
        return asked(own, number)

    monkeypatch.setattr(github.GitHub, "runner", runner)
    next(iter(two_offline.machines.values())).started = two_offline.now - RULES["boot"] + 20
    (decision,) = rounds(two_offline, monkeypatch, 24 * MINUTE + 1)
    assert decision
    assert decision.end == {}


def test_runner_that_github_has_no_more_loses_its_machine(two_offline: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS may have taken the machine a moment ago, with its job: that is run again only if the machine counts as lost."""
    monkeypatch.setattr(github.GitHub, "runner", lambda *_: None)
    (decision,) = rounds(two_offline, monkeypatch, 24 * MINUTE + 1)
    assert decision
    assert decision.end == dict.fromkeys(two_offline.machines, "no runner came online")
    assert {*decision.lost} == {*two_offline.machines}


def test_offline_runner_of_which_github_says_nothing_stays(two_offline: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def runner(*_: object) -> None:
        two_offline.spend(8)
        raise github.Refused(503, "Unicorn!")

    monkeypatch.setattr(github.GitHub, "runner", runner)
    begun = two_offline.now
    (decision,) = rounds(two_offline, monkeypatch, 24 * MINUTE + 1)
    assert decision
    assert (decision.end, sum(decision.desired.values())) == ({}, 2)
    assert two_offline.now - begun == MINUTE  # no wait for each


def test_github_request_ends_within_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def urlopen(_: object, timeout: float) -> None:
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(github._OPENER, "open", urlopen)
    api = github.GitHub("https://api.example", "acme", lambda: {"token": "t"}, time.time() + 3)
    with pytest.raises(github.Refused):
        list(api.runners())
    assert 0 < max(waits) <= 3


def test_machines_end_themselves_once_no_scaler_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        world = played(seed, monkeypatch, rate=0.0, dead=(20 * MINUTE + seed * MINUTE, ALL))
        assert world.machines
        assert all(one.ended and one.ended - one.used_until <= 10 * MINUTE for one in world.machines.values())
