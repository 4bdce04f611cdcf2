"""``schedule`` in a cluster: the minimum of a set's runners by weekday and time. Plain data, no Pulumi."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.runners.kubernetes import isolation
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.periodic.cron_job import cron_job, permissions, program
from stacks.config.kubernetes import KubernetesRunnersConfig

NAME = "minimum"
"""The name of the CronJob, its account and its role."""

_PROGRAM = program(Path(__file__).parent / "minimum.js")


def minimum(config: KubernetesRunnersConfig, image: str) -> list[Manifest]:
    """Return what sets ``minRunners`` of the scale sets with a schedule, within five minutes; none without one.

    ARC has no schedule of its own, and does what ``minRunners`` of the object says. A round that is missed is made up
    for by the next one. The account may change these scale sets alone.

    Args:
        config: the configuration of the runners.
        image: that of GitHub's runner.
    """
    sets = [own for own in config.all_sets if own.schedule]
    if not sets:
        return []
    home = config.controller_namespace
    variables = {
        "MINIMUM": _PROGRAM,
        "RUNNERS": config.namespace,
        "SETS": json.dumps({own.scale_set: _schedule(own) for own in sets}),
    }
    rule: dict[str, Any] = {
        "apiGroups": ["actions.github.com"],
        "resources": ["autoscalingrunnersets"],
        "resourceNames": [own.scale_set for own in sets],
        "verbs": ["get", "patch"],
    }
    return [
        isolation.account(NAME, home),
        *permissions(NAME, config.namespace, NAME, home, [rule]),
        cron_job(config, NAME, image, variables, "*/5 * * * *"),
    ]


def _schedule(own: KubernetesRunnersConfig) -> dict[str, Any]:
    return {"least": own.min_runners, "entries": [row.entry() for row in own.schedule]}
