"""The rules of the policy pack: for each, a stack that violates it and one that does not."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policies import stack_rules
from policies.stack_rules import RULES, Resource
from tests.helpers.every import every

DIGEST = f"@sha256:{'a' * 64}"


def urn(name: str) -> str:
    return f"urn:pulumi:t::slipway::x::{name}"


def resource(type_: str, name: str = "torch", parent: str = "", **props: Any) -> Resource:
    return Resource(type_, urn(name), name, props, urn(parent) if parent else "")


def image(base: str = f"debian{DIGEST}", *, push: bool = True, **props: Any) -> list[Resource]:
    """Return an image as a stack declares it."""
    contents = {"args": {"BASE_IMAGE": base, "VERSION": "1"}, "platform": "linux/amd64", **props}
    return [
        resource("slipway:image:ImageVariant", **contents),
        resource("docker:index/image:Image", "torch-build", "torch", skipPush=not push)._replace(
            urn="urn:pulumi:t::slipway::slipway:image:ImageVariant$docker:index/image:Image::torch-build"
        ),
    ]


def signed() -> list[Resource]:
    return [*image(), resource("pulumi-python:dynamic/image:Signature", "torch-signature", "torch")]


def compressed() -> list[Resource]:
    """Return an image with layers of zstd, as a stack with the official docker provider declares it."""
    return [*image(push=False), resource("pulumi-python:dynamic/image:CompressedPush", "torch-push", "torch")]


def workload(kind: str, reference: str) -> list[Resource]:
    template = {"spec": {"containers": [{"image": reference}], "initContainers": [{"image": None}]}}
    return [resource(f"kubernetes:{kind}", spec={"template": template})]


def chart(reference: str) -> list[Resource]:
    values = {"template": {"spec": {"containers": [{"name": "runner", "image": reference}]}}}
    return [resource("kubernetes:helm.sh/v3:Release", chart="gha-runner-scale-set", values=values)]


def machine(line: str, *, encoded: bool = True) -> list[Resource]:
    text = f"#!/bin/sh\n{line}\n./run.sh\n"
    data = base64.b64encode(text.encode()).decode() if encoded else text
    return [resource("aws:ec2/launchTemplate:LaunchTemplate", userData=data)]


def repository(**props: Any) -> list[Resource]:
    return [resource("aws:ecr/repository:Repository", **props)]


def summerwind(kind: str, **spec: Any) -> list[Resource]:
    return [resource(f"kubernetes:actions.summerwind.dev/v1alpha1:{kind}", spec=spec)]


BUDGET = {"budgets": {"torch": "3 GB"}}
RUNNER = f"ghcr.io/actions/actions-runner{DIGEST}"

CASES: list[tuple[str, Sequence[Resource], dict[str, Any], str]] = [
    ("parents-locked", image("debian:bookworm-slim"), {}, "BASE_IMAGE is debian:bookworm-slim, whose tag may move"),
    ("parents-locked", image(), {}, ""),
    ("parents-locked", image("scratch"), {}, ""),
    ("images-signed", image(), {}, "is published without a signature"),
    ("images-signed", signed(), {}, ""),
    ("images-signed", image(push=False), {}, ""),
    ("images-signed", compressed(), {}, "is published without a signature"),
    ("no-mutable-tag", workload("apps/v1:Deployment", "docker:28-dind"), {}, "runs docker:28-dind, whose tag may move"),
    ("no-mutable-tag", chart("ghcr.io/actions/actions-runner:2"), {}, "runs ghcr.io/actions/actions-runner:2, whose"),
    ("no-mutable-tag", chart(RUNNER), {}, ""),
    ("no-mutable-tag", workload("batch/v1:Job", f"docker:28-dind{DIGEST}"), {}, ""),
    ("images-budgeted", image(), {}, "has no largest size"),
    ("images-budgeted", image(), {"budgets": {"torch-extras": "3 GB"}}, "has no largest size"),
    ("images-budgeted", image(), BUDGET, ""),
    ("images-budgeted", compressed(), {}, "has no largest size"),
    ("images-budgeted", [image()[0]._replace(name="torch-amd64")], BUDGET, ""),
    ("repositories-immutable", repository(), {}, "imageTagMutability is MUTABLE"),
    ("repositories-immutable", repository(imageTagMutability="MUTABLE_WITH_EXCLUSION"), {}, "is MUTABLE_WITH_EXC"),
    ("repositories-immutable", repository(imageTagMutability="IMMUTABLE"), {}, ""),
    ("repositories-immutable", repository(imageTagMutability="IMMUTABLE_WITH_EXCLUSION"), {}, ""),
    ("runners-ephemeral", workload("apps/v1:StatefulSet", RUNNER), {}, "runs GitHub's runner as a StatefulSet"),
    ("runners-ephemeral", workload("apps/v1:Deployment", f"docker{DIGEST}"), {}, ""),
    ("runners-ephemeral", chart(RUNNER), {}, ""),
    ("runners-ephemeral", machine("./config.sh --url x --token y"), {}, "config.sh without --ephemeral"),
    ("runners-ephemeral", machine("./config.sh --url x", encoded=False), {}, "config.sh without --ephemeral"),
    ("runners-ephemeral", machine("./config.sh --url x --ephemeral"), {}, ""),
    ("runners-ephemeral", machine("./run.sh --jitconfig x"), {}, ""),
    (
        "runners-ephemeral",
        summerwind("RunnerDeployment", template={"spec": {"ephemeral": False}}),
        {},
        "its runners have ephemeral: false",
    ),
    ("runners-ephemeral", summerwind("RunnerSet", ephemeral=False), {}, "its runners have ephemeral: false"),
    ("runners-ephemeral", summerwind("RunnerDeployment", template={"spec": {}}), {}, ""),
]


@every("name, resources, settings, expected", CASES)
def test_rule_reports_what_violates_it(
    name: str, resources: Sequence[Resource], settings: dict[str, Any], expected: str
) -> None:
    (rule,) = [rule for rule in RULES if rule.name == name]
    messages = [violation.message for violation in rule.check(resources, settings)]
    if expected:
        (message,) = messages
        assert message.startswith("torch: ")
        assert expected in message
    else:
        assert messages == []


def test_each_rule_has_a_failing_and_a_passing_stack() -> None:
    for rule in RULES:
        outcomes = {bool(expected) for name, _, _, expected in CASES if name == rule.name}
        assert outcomes == {True, False}, rule.name


def test_unknown_properties_are_no_violation() -> None:
    unknown = resource("kubernetes:apps/v1:Deployment", spec=None)
    template = resource("aws:ec2/launchTemplate:LaunchTemplate", userData=None)
    variant = resource("slipway:image:ImageVariant", args={"BASE_IMAGE": None})
    for rule in RULES:
        if rule.name not in {"images-signed", "images-budgeted"}:
            assert list(rule.check([unknown, template, variant], {})) == [], rule.name


def test_settings_are_those_of_the_stacks_file(tmp_path: Path) -> None:
    assert stack_rules.settings(image(), tmp_path) == {}
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.t.yaml").write_text("config:\n  slipway:budgets: {torch: 3 GB}\n  aws:region: x\n")
    assert stack_rules.settings(image(), tmp_path) == BUDGET
    assert stack_rules.settings([], tmp_path) == {}
