"""Releases of GitHub's runner that get no job soon: one rule for both kinds of runners, by the day of the clock."""

from __future__ import annotations

from datetime import date

from stacks import flavors
from stacks.config.ec2 import Ec2RunnersConfig
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.versions.checksums import old_runner, runner_names
from stacks.versions.tables import table
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import RUNNERS, SECRET, load

IMAGE = "ghcr.io/actions/actions-runner"


def cluster(url: str = "https://github.com/acme", **values: object) -> KubernetesRunnersConfig:
    runners = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": url, "secret": "github"}, **values}
    config = flavors.load({"flavor": "runners", "runners": runners}, "stack x").runners
    assert isinstance(config, KubernetesRunnersConfig)
    return config


def test_defaults_are_the_newest_release_of_the_table() -> None:
    """GitHub gave 2.335.1, which was the default in clusters, no job from 2026-09-24 on."""
    newest = max(table("runner"), key=lambda name: table("runner")[name]["published"])
    assert newest == runner_names()[-1]
    assert [*load().runner_releases.values(), *cluster().runner_releases.values()] == [newest] * 2


@every(
    "release, day, said",
    [
        ("2.336.0", date(2026, 9, 10), False),
        ("2.336.0", date(2026, 9, 11), True),
        ("2.335.1", date(2026, 8, 4), False),  # which the table lacks
        ("2.335.1", date(2027, 1, 1), True),
        ("2.338.0", date(2036, 1, 1), False),  # nobody knows a newer one
        ("2.399.0", date(2036, 1, 1), False),
    ],
)
def test_release_is_old_two_weeks_before_its_last_day(release: str, day: date, said: bool) -> None:
    assert bool(old_runner(release, day)) is said


def test_old_runner_is_warned_of_in_both_kinds() -> None:
    line = "GitHub may give runners of release 2.336.0 no job from 2026-09-25 on, 30 days after 2.337.0: take 2.338.0"
    own: Ec2RunnersConfig = load(runner="2.336.0")
    assert own.warnings == [f"slipway:runners.runner: {line}"]
    hooked = load(runner="2.336.0", github={**RUNNERS["github"], "webhookSecret": f"{SECRET[:-6]}123456"})
    assert [each.partition(": ")[0] for each in hooked.warnings] == [
        "slipway:runners.runner",
        "slipway:runners.github.webhookSecret",
    ]
    sets = {
        "cpu": {"profile": "cpu"},
        "big": {"profile": "cpu", "image": f"mirror.example/{IMAGE}:2.336.0@sha256:{'0' * 64}"},
    }
    assert cluster(sets=sets).warnings == [f"slipway:runners.sets.big.image: {line}"]
    assert cluster(image=f"{IMAGE}:2.336.0", profile="cpu").warnings == [f"slipway:runners.image: {line}"]
    for image in ("ghcr.io/acme/runner:2.336.0", f"{IMAGE}:latest"):
        assert cluster(image=image, profile="cpu").warnings == []
    server = cluster("https://github.acme.example/acme", image=f"{IMAGE}:2.336.0", profile="cpu")
    assert server.warnings == []
