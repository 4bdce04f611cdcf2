"""Several sets of runners on EC2: what each has of its own, what all share, and the listener of all."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from scaler.listening import listener
from stacks import flavors, graph
from stacks.checks import ec2_site
from stacks.checks.collisions import shared_runners
from stacks.config.stack_file import ROOT
from tests.helpers.every import every
from tests.unit.runners.golden_objects import CASES, recorded
from tests.unit.runners.test_ec2 import HOOK, RUNNERS, load
from tests.unit.runners.test_runner_sets import GITHUB

SETS: dict[str, Any] = {
    "small": {"maxRunners": 9},
    "h100": {"instanceTypes": ["p5.48xlarge"], "labels": ["big"], "minRunners": 1},
}


def values(**more: Any) -> dict[str, Any]:
    own = {key: value for key, value in RUNNERS.items() if key != "labels"}
    return {**own, "sets": SETS, **more}


def test_set_has_what_is_given_beside_the_sets() -> None:
    config = load(**values(spot=False, labels=["gpu"], github={**RUNNERS["github"], "group": 3}))
    small, h100 = config.all_sets
    assert [own.scale_set for own in config.all_sets] == ["small", "h100"]
    assert (small.instance_types, h100.instance_types) == (("g5.2xlarge",), ("p5.48xlarge",))
    assert (small.max_runners, h100.max_runners, h100.min_runners) == (9, 4, 1)
    assert [own.spot for own in config.all_sets] == [False, False]
    assert small.served_labels("linux/amd64") == ("small", "gpu")
    assert h100.served_labels("linux/amd64") == ("h100", "big")
    assert [own.group for own in config.all_sets] == [3, 3]
    assert load(**values(sets={"a": {"groupId": 5}})).all_sets[0].group == 5
    assert [own.resource_name("t") for own in config.all_sets] == ["slipway-t.small", "slipway-t.h100"]
    assert load().all_sets == (load(),)


@every(
    "more, line",
    [
        ({"github": {**RUNNERS["github"], "webhookSecret": HOOK}}, "sets: a webhook does not tell of which set a job is: leave out"),
        ({"listener": True, "github": {**RUNNERS["github"], "webhookSecret": HOOK}}, "sets: a webhook does not tell of which set"),
        ({"sets": {"a": {"minRunners": 5}}}, "sets.a: minRunners 5 is more than maxRunners 4"),
        ({"sets": {"a": {"schedule": [{"minRunners": 5}]}}}, "sets.a: schedule.0.minRunners 5 is more than maxRunners 4"),
        ({"sets": {"a": {"efa": "all"}}}, "sets.a: efa needs exactly one subnet"),
        ({"sets": {"a": {"spot": False, "spotPatience": 3}}}, "sets.a: spotPatience has no effect, because spot is false"),
        ({"sets": {"a": {}, "b": {"labels": ["A"]}}}, "sets.b.labels: 'a' is the name of a set, by which jobs choose that one"),
        ({"sets": {"a": {"retries": 2}}}, "unknown key 'retries'"),
        ({"sets": {"a": {"instanceTypes": []}}}, "instanceTypes: '[]': expected at least one, each only once"),
        ({"sets": {"linux": {}}}, "this is GitHub's own label"),
        ({"sets": {"A": {}}}, "expected 1 to 32 of a-z, 0-9 and -, such as h100"),
        ({"sets": {}}, "labels is missing: give at least one"),
    ],
)  # fmt: skip
def test_sets_that_cannot_be_are_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(SlipwayError) as refused:
        flavors.load({"flavor": "runners", "runners": values(**more)}, "stack x")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_instance_types_are_named() -> None:
    own = {key: value for key, value in values().items() if key != "instanceTypes"}
    with pytest.raises(SlipwayError, match="slipway:runners: sets.small: instanceTypes is missing: give at least one"):
        flavors.load({"flavor": "runners", "runners": own}, "stack x")


def test_name_of_a_set_leaves_room_for_that_of_its_runners() -> None:
    stack = {"flavor": "runners", "runners": values(sets={"a" * 20: {}})}
    graphs = [graph.unlocked(stack, f"stack {'s' * length}", ROOT) for length in (15, 16)]
    fits, (line,) = ([*ec2_site.unfit_name(one)] for one in graphs)
    assert fits == []
    assert line.endswith("which has at most 64 characters: take 1 off the set's name, or off the stack's")
    assert len(f"slipway-{'s' * 15}.{'a' * 20}-i-0123456789abcdef0") == 64


def conflicts(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    stacks = {"a": {"flavor": "runners", "runners": first}, "b": {"flavor": "runners", "runners": second}}
    return shared_runners({name: flavors.load(each, name) for name, each in stacks.items()})


def test_two_stacks_with_one_set_are_refused() -> None:
    (line,) = conflicts(values(), values(sets={"h100": {"labels": ["other"]}}))
    assert line.startswith("stacks a and b: both have the runner scale set h100 of https://github.com/acme")
    assert conflicts(values(), values(sets={"h100": {"groupId": 2}, "medium": {}})) == []
    cluster = {"kind": "kubernetes", "github": GITHUB, "sets": {"h100": {}, "x": {}}}
    (line,) = conflicts(values(), cluster)
    assert "the runner scale set h100" in line
    assert conflicts(values(sets={"y": {}}), cluster) == []


def variables() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the variables of the keeper of the golden stack with sets, and those of its file."""
    (function,) = recorded(CASES["ec2 with sets"], chain={}).of_type("aws:lambda/function:Function").values()
    assert function["handler"] == "scaler.listening.listener.handle"
    assets = function["code"]["assets"] if isinstance(function["code"], dict) else function["code"].assets
    own: dict[str, dict[str, str]] = json.loads(assets["scaler/sets.json"].text)
    return function["environment"]["variables"], own


def test_keeper_has_variables_of_each_set() -> None:
    shared, own = variables()
    assert own.keys() == {"one", "all"}
    assert len(json.dumps(shared)) < 4096  # Lambda's limit
    assert all(not shared.keys() & each.keys() for each in own.values())
    assert own["one"]["OWN_LABELS"] == "one,h100"
    assert [each["RUNNER_GROUP"] for each in own.values()] == ["1", "7"]
    assert [json.loads(each["RULES"])["most"] for each in own.values()] == [9, 4]
    # Nothing of one set is another one's.
    for key in ("NAME", "JOBS", "SCALE_SET"):
        assert len({each[key] for each in own.values()}) == 2
    groups = [set(json.loads(each["GROUPS"]).values()) for each in own.values()]
    assert not groups[0] & groups[1]


def test_one_function_listens_for_each_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A set whose listener breaks is told once the others are done, which it does not end."""
    shared, own = variables()
    file = tmp_path / "sets.json"
    file.write_text(json.dumps(own))
    monkeypatch.setattr(listener, "SETS", file)
    for name, value in shared.items():
        monkeypatch.setenv(name, str(value))
    begun: dict[str, threading.Thread] = {}
    done: list[str] = []
    broken, both = threading.Event(), threading.Barrier(2, timeout=10)

    class Fake:
        def __init__(self, environment: Mapping[str, str], sets: int) -> None:
            self.name = environment["SCALE_SET"]
            assert environment["GITHUB_SCOPE"] == "acme"
            assert sets == 2

        def run(self, seconds: float) -> None:
            assert seconds == listener.SECONDS
            begun[self.name] = threading.current_thread()
            both.wait()
            if self.name == "one":
                broken.set()
                raise KeyError("a fault of its own")
            assert broken.wait(10)
            done.append(self.name)

    monkeypatch.setattr(listener, "Listener", Fake)
    with pytest.raises(KeyError, match="a fault of its own"):
        listener.handle(None, None)
    assert done == ["all"]
    assert len({*begun.values()}) == 2
