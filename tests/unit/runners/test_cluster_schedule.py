"""``schedule`` of runners in a cluster: the program that sets ``minRunners``, with its own account, and its objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.runners.kubernetes import isolation
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.fakes.pulumi_mocks import run
from tests.helpers.every import every
from tests.unit.runners.test_kubernetes_runners import objects, plainly, validate

GITHUB = {"url": "https://github.com/acme", "secret": "github"}
OFFICE = {"minRunners": 2, "start": "08:00", "end": "18:30", "timeZone": "Europe/Berlin"}


def config(**more: Any) -> KubernetesRunnersConfig:
    return KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": GITHUB, **more})


def test_account_may_change_the_scheduled_scale_sets_alone() -> None:
    own = {"schedule": [OFFICE], "nodeSelector": {"acme.example/pool": "ci"}}
    values: dict[str, Any] = {
        "kind": "kubernetes",
        "github": GITHUB,
        "sets": {"a": own, "b": {"nodeSelector": {"acme.example/pool": "x"}}},
    }
    recorder = run(runners=values)[0]
    declared = objects(recorder)
    for manifest in declared.values():
        validate(json.dumps(plainly(manifest), sort_keys=True))
    role = declared["Role minimum"]
    assert role["rules"] == [
        {
            "apiGroups": ["actions.github.com"], "resources": ["autoscalingrunnersets"], "resourceNames": ["a"],
            "verbs": ["get", "patch"],
        }
    ]  # fmt: skip
    assert role["metadata"]["namespace"] == "slipway-runners"
    home = isolation.controller_namespace(config())["metadata"]["name"]
    assert declared["RoleBinding minimum"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "minimum", "namespace": home}
    ]
    assert declared["CronJob minimum"]["metadata"]["namespace"] == home
    assert "CronJob minimum" not in objects(run(runners={**values, "sets": {"b": values["sets"]["b"]}})[0])


@every(
    "more, line",
    [
        ({"schedule": [{**OFFICE, "minRunners": 5}]}, "schedule.0.minRunners 5 is more than maxRunners 4"),
        ({"sets": {"a": {"maxRunners": 1, "schedule": [OFFICE]}}}, "sets.a: schedule.0.minRunners 2 is more than maxRunners 1"),
    ],
)  # fmt: skip
def test_schedule_above_the_ceiling_is_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        config(**more)
