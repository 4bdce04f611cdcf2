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

_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")

_SPEC = (
    "(object.spec.map(key, key) + oldObject.spec.map(key, key)).all(key, key == 'minRunners'"
    " || (key in object.spec && key in oldObject.spec && object.spec[key] == oldObject.spec[key]))"
)
"""Whether nothing of a scale set's spec has changed but the number, in CEL."""

_PROGRAM = program(Path(__file__).parent / "minimum.js")


def minimum(config: KubernetesRunnersConfig, image: str) -> list[Manifest]:
    """Return what sets ``minRunners`` of the scale sets with a schedule, within five minutes; none without one.

    ARC has no schedule of its own, and does what ``minRunners`` of the object says. A round that is missed is made up
    for by the next one. The account may change this number of these scale sets alone: a role knows no fields, so that
    their template of pods, in a namespace with GitHub's credentials, would be the account's, too. ``image`` is that of
    GitHub's runner.
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
        *_policy(config),
        isolation.account(config, NAME, home),
        *permissions(NAME, config.namespace, NAME, home, [rule]),
        cron_job(config, NAME, image, variables, "*/5 * * * *"),
    ]


def _policy(config: KubernetesRunnersConfig) -> list[Manifest]:
    """Return the admission policy that refuses the account any other change, and its binding; both are cluster-wide.

    Kubernetes has such policies from 1.30 on ("Validating Admission Policy").
    """
    name, api = f"{config.namespace}-{NAME}", "admissionregistration.k8s.io/v1"
    changes = {
        "apiGroups": ["actions.github.com"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["autoscalingrunnersets"],
    }
    who = f"request.userInfo.username == 'system:serviceaccount:{config.controller_namespace}:{NAME}'"
    kept = [f"object.metadata.?{key} == oldObject.metadata.?{key}" for key in _METADATA]
    validations = [
        {"expression": each, "message": f"{NAME} may change minRunners alone"} for each in (" && ".join(kept), _SPEC)
    ]
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [changes]},
        "matchConditions": [{"name": NAME, "expression": who}],
        "validations": validations,
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    metadata = {"name": name, "labels": dict(isolation.LABELS)}
    return [
        {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
        for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding))
    ]


def _schedule(own: KubernetesRunnersConfig) -> dict[str, Any]:
    return {"least": own.min_runners, "entries": [row.entry() for row in own.schedule]}
