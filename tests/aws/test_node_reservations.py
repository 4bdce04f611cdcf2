"""Capacity reservations and Capacity Blocks of a cluster's nodes: looked up at AWS as moto has it, and refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.config import CONFIG

from cli.main import main
from components.runners.ec2 import reservation_lookup
from containers.errors import SlipwayError
from containers.image.gpu import kubectl
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.aws.conftest import ACCOUNT, REGION
from tests.fakes.aws.reservations import block, plant, reservation, served

FIRST = reservation()["CapacityReservationId"]
P5: dict[str, Any] = {"InstanceType": "p5.48xlarge"}


@pytest.fixture(autouse=True)
def aws(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An AWS that has reservations."""
    for name, value in {"AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    with served():
        yield


def runners(reserved: dict[str, Any] | None = None, **values: Any) -> KubernetesRunnersConfig:
    given = {"ids": [FIRST], "region": REGION, "account": ACCOUNT, "nodeClass": "gpus", **(reserved or {})}
    github = {"url": "https://github.com/acme", "secret": "github"}
    return KubernetesRunnersConfig.model_validate(
        {"kind": "kubernetes", "github": github, "profile": "eks-p5", "reservation": given, **values}
    )


ZONE = {"topology.kubernetes.io/zone": "eu-west-1b"}


def planted_cases() -> dict[str, tuple[dict[str, Any], dict[str, Any], str]]:
    """Return the cases by name, as of now: their times are near."""
    return {
        "expired": (block(days=-1, State="expired", **P5), {}, " is expired, not active: it ended at "),
        "not started": (block(State="scheduled", **P5), {}, " is scheduled, not active"),
        "in its last half hour": (block(days=0.01, **P5), {}, " ends at .*, and no job starts there"),
        "of another zone": (
            reservation(**P5),
            {"nodeSelector": ZONE},
            " is in eu-west-1a; the machines are in eu-west-1b",
        ),
        "of another type": (reservation(), {}, " is for g5.2xlarge; the machines are p5.48xlarge"),
        "over its count": (
            reservation(**{**P5, "TotalInstanceCount": 1}),
            {"gpus": 4, "maxRunners": 3},
            ": 1 machines in all, and maxRunners 3 needs 2 nodes: give less in maxRunners",
        ),
        "of another account": (reservation(OwnerId="999999999999", **P5), {}, " is of account 999999999999"),
        "of which EC2 does not know": (
            reservation(1, **P5),
            {},
            ": DescribeCapacityReservations: AWS refuses it: 400, Inv",
        ),
    }


@pytest.mark.parametrize("name", planted_cases())
def test_useless_reservation_of_nodes_is_refused(name: str) -> None:
    planted, values, message = planted_cases()[name]
    plant(planted)
    with pytest.raises(SlipwayError) as caught:
        reservation_lookup.of_nodes(runners(**values))
    assert re.search(f"^slipway:runners.reservation: {FIRST}{message}", str(caught.value))
    assert "\n" not in str(caught.value)


def test_preview_says_what_nodes_are_reserved() -> None:
    plant(block(days=40, **P5))
    texts = reservation_lookup.of_nodes(runners())
    assert texts[FIRST].startswith("Capacity Block: 4 p5.48xlarge in eu-west-1a, until ")
    assert texts["reservation"] == "without a machine there, jobs wait"
    # What EC2 has fewer of is no mistake where others are taken.
    plant(block(days=40, **{**P5, "TotalInstanceCount": 1}))
    assert reservation_lookup.of_nodes(runners({"fallback": True}))["reservation"].endswith("other machines are taken")


def test_each_set_has_reservations_of_its_own() -> None:
    tags = [{"Key": "team", "Value": "ml"}]
    plant(reservation(Tags=tags, **P5), reservation(1, State="cancelled", Tags=tags, **P5))
    given = {"tags": {"team": "ml"}, "region": REGION, "account": ACCOUNT, "nodeGroup": "p5"}
    config = KubernetesRunnersConfig.model_validate(
        {
            "kind": "kubernetes",
            "github": {"url": "https://github.com/acme", "secret": "github"},
            "sets": {"small": {}, "h100": {"profile": "eks-p5", "reservation": given}},
        }
    )
    assert reservation_lookup.of_nodes(config).keys() == {FIRST, "sets.h100.reservation"}
    plant(reservation(State="cancelled", Tags=tags, **P5))
    with pytest.raises(SlipwayError, match=r"^slipway:runners.sets.h100.reservation: cr-\w+ is cancelled, not active"):
        reservation_lookup.of_nodes(config)
    plant(reservation(**P5))
    with pytest.raises(SlipwayError) as caught:
        reservation_lookup.of_nodes(config)
    line = f"slipway:runners.sets.h100.reservation: team=ml: {REGION} has no such reservation"
    assert str(caught.value) == line


def test_profile_of_the_stack_looks_them_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own login is another one, or none: the profile is what counts for Pulumi's provider, too."""
    plant(reservation(**P5))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = tmp_path / "credentials"
    file.write_text("[ml]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(SlipwayError, match=r"^slipway:runners.reservation: .*: Unable to locate credentials"):
        reservation_lookup.of_nodes(runners())
    for profile, line in (("ml", ""), ("other", "The config profile (other) could not be found")):
        settings = CONFIG.set({"aws:profile": profile})
        try:
            if line:
                with pytest.raises(SlipwayError, match=re.escape(line)):
                    reservation_lookup.of_nodes(runners())
            else:
                assert FIRST in reservation_lookup.of_nodes(runners())
        finally:
            CONFIG.reset(settings)
    # CI has a login of variables, and no profiles.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-ci")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    settings = CONFIG.set({"aws:profile": "other"})
    try:
        assert FIRST in reservation_lookup.of_nodes(runners())
    finally:
        CONFIG.reset(settings)


STACK = f"""config:
  slipway:flavor: runners
  slipway:runners:
    kind: kubernetes
    profile: eks-p5
    github: {{url: https://github.com/acme, secret: github}}
    reservation: {{ids: [{FIRST}], region: {REGION}, account: "{ACCOUNT}", nodeClass: gpus}}
"""
ON_EC2 = f"""config:
  slipway:flavor: runners
  slipway:registry: {{kind: ecr, repository: {ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/ml, create: false}}
  slipway:runners:
    kind: ec2
    region: {REGION}
    account: "{ACCOUNT}"
    github:
      url: https://github.com/acme
      secret: arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:slipway/github-AbCdEf
    labels: [gpu]
    instanceTypes: [p5.48xlarge]
    reservation: {{ids: [{FIRST}]}}
"""


def test_daily_look_fails_14_3_and_1_days_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of both kinds of runners; where AWS does not know the reservation, too."""
    monkeypatch.setattr("cli.commands.fleet.ROOT", tmp_path)
    (tmp_path / "stacks").mkdir()
    lines = {}
    for file in (STACK, ON_EC2):
        (tmp_path / "stacks/Pulumi.mine.yaml").write_text(file)
        due = {}
        for days in (20, 13.9, 12.1, 11.9, 4, 2.9, 1.5, 0.9, 0.2, -1):  # those that a look a day late has, too
            plant(block(days=days, State="active" if days > 0 else "expired", **P5))
            due[days] = main(["runners", "reservations"])
            lines[days] = capsys.readouterr().out.splitlines()
        assert [days for days, code in due.items() if code] == [13.9, 12.1, 2.9, 1.5, 0.9, 0.2, -1]
        assert len(lines[20]) == 1
        assert lines[12.1][1].startswith(f"stack mine: slipway:runners.reservation: {FIRST} ends in 12 days, at ")
        assert f"{FIRST} is expired, not active" in lines[-1][1]
        plant(reservation(1))
        assert main(["runners", "reservations", "mine"]) == 1
        assert FIRST in capsys.readouterr().out
        plant(reservation(**P5))  # it has no end
        assert main(["runners", "reservations", "mine"]) == 0
        capsys.readouterr()
    (tmp_path / "stacks/Pulumi.mine.yaml").write_text(f"{STACK}  aws:profile: of-a-developer\n")
    assert main(["runners", "reservations"]) == 0
    capsys.readouterr()
    (tmp_path / "stacks/Pulumi.broken.yaml").write_text(STACK.replace("eks-p5", "eks-p6000"))
    assert main(["runners", "reservations"]) == 1
    broken, line = capsys.readouterr().out.splitlines()
    assert broken.startswith("stack broken: slipway:runners.profile: ")
    assert line.startswith(f"stack mine: slipway:runners.reservation: {FIRST}: ")


def test_status_and_metrics_say_when_a_reservation_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.commands.fleet.ROOT", tmp_path)
    monkeypatch.setattr(kubectl, "items", lambda *_, **__: [])
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.mine.yaml").write_text(STACK)
    plant(block(days=2, **P5))
    assert main(["runners", "status", "mine"]) == 0
    assert f"{FIRST} ends in 47 hours, at " in capsys.readouterr().out
    assert main(["runners", "status", "mine", "--metrics"]) == 0
    [sample] = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("slipway_runners_reservation_")
    ]
    name, _, left = sample.rpartition(" ")
    assert name == f'slipway_runners_reservation_left_seconds{{stack="mine",kind="kubernetes",reservation="{FIRST}"}}'
    assert 47 * 3600 < float(left) <= 48 * 3600
