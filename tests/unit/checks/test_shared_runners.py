"""Two stacks whose runners are one thing at GitHub, or in one cluster, are found before either is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from cli import stack_checks
from stacks import flavors
from stacks.checks.collisions import shared_runners
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import OLD
from tests.unit.runners.test_ec2 import RUNNERS as EC2

CLUSTER = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": "https://github.com/acme", "secret": "s"}}


def conflicts(first: dict[str, Any], second: dict[str, Any], **of_second: Any) -> list[str]:
    """Return the conflicts of two stacks of runners; ``of_second`` are keys of the second stack."""
    stacks = {"a": {"flavor": "runners", "runners": first}, "b": {"flavor": "runners", "runners": second, **of_second}}
    return shared_runners({name: flavors.load(values, name) for name, values in stacks.items()})


def at(base: dict[str, Any], url: str, **values: Any) -> dict[str, Any]:
    return {**base, "github": {**base["github"], "url": url}, **values}


def test_two_stacks_with_one_scale_set_are_refused() -> None:
    (line,) = conflicts(CLUSTER, at(CLUSTER, "https://github.com/ACME/", profile="aks-ndv5", labels=["other"]))
    assert line.startswith("stacks a and b: both have the runner scale set slipway-runners of https://github.com/acme")
    assert line.endswith("set slipway:runners.namespace in one of them")


def test_two_stacks_in_one_namespace_of_one_cluster_are_refused() -> None:
    first, second = {**CLUSTER, "context": "prod"}, at(CLUSTER, "https://github.com/other", context="prod")
    (line,) = conflicts(first, second)
    assert "both create the namespace slipway-runners in the cluster of the context 'prod'" in line


@every("contexts", [({}, {}), ({"context": "prod"}, {}), ({}, {"context": "prod"})])
def test_two_stacks_with_a_namespace_in_no_known_cluster_clash(contexts: tuple[dict[str, str], dict[str, str]]) -> None:
    """Without a context a stack is in the current one: the second update took over the first one's objects."""
    first, second = {**CLUSTER, **contexts[0]}, at(CLUSTER, "https://github.com/other", **contexts[1])
    (line,) = conflicts(first, second)
    assert "both create the namespace slipway-runners, and may be in one cluster" in line
    assert line.endswith("or slipway:runners.context in both")
    assert conflicts({**first, "kubeconfig": "a"}, {**second, "kubeconfig": "b"}) == []


@every(
    "other",
    [
        {**CLUSTER, "namespace": "others"},
        {**CLUSTER, "group": "ml", "context": "b"},
        at(CLUSTER, "https://github.com/acme2", context="b"),
        at(CLUSTER, "https://github.com/acme/images", context="b"),
    ],
)
def test_two_stacks_with_a_scale_set_each_are_right(other: dict[str, Any]) -> None:
    assert conflicts({**CLUSTER, "context": "a"}, other) == []


@every("url", [EC2["github"]["url"], "https://github.com/ACME/images"])
def test_two_stacks_that_serve_one_job_are_refused(url: str) -> None:
    (line,) = conflicts(EC2, at(EC2, url, labels=["GPU"]))
    assert line == (
        "stacks a and b: both serve each job of https://github.com/acme with the labels gpu; set other "
        "slipway:runners.labels in one of them, or, if both are to serve them, add a label to one"
    )
    assert conflicts(EC2, at(EC2, url, labels=["GPU", "green"])) == []


def test_stack_on_ec2_has_a_scale_set_of_its_name() -> None:
    """Runners in a cluster with the namespace of that name took its session, again and again."""
    cluster = {**CLUSTER, "namespace": "slipway-a"}
    (line,) = conflicts(EC2, cluster)
    assert "both have the runner scale set slipway-a of https://github.com/acme, which has one listener" in line
    assert conflicts(at(EC2, "https://github.com/other"), cluster) == []
    assert conflicts({**EC2, "github": OLD}, cluster) == []


def test_two_stacks_on_ec2_with_other_jobs_are_right() -> None:
    assert conflicts(EC2, {**EC2, "labels": ["gpu", "h100"]}) == []
    assert conflicts(EC2, at(EC2, "https://github.com/acme-labs")) == []
    old = {**EC2, "github": OLD}
    assert conflicts(old, old, platform="linux/arm64") == []


def test_platform_is_no_label_of_a_stack_that_listens() -> None:
    """A job with ``runs-on: gpu`` got a machine of either platform."""
    for other in (EC2, {**EC2, "github": OLD}):
        (line,) = conflicts(EC2, other, platform="linux/arm64")
        assert "both serve each job of https://github.com/acme with the labels gpu" in line


def test_shipped_stacks_share_no_runners(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line for line in stack_checks.check() if "both" in line] == []
    assert "runners-eks: 0 images, 1 runner a node, ok" in capsys.readouterr().out.splitlines()


def test_label_that_is_the_name_of_anothers_set_is_refused() -> None:
    """As in one stack. GitHub ignores case, and an organization's runners take the jobs of its repositories."""
    listening = {**EC2, "github": {key: value for key, value in EC2["github"].items() if key != "webhookSecret"}}
    of_ec2 = {**listening, "labels": ["CI"]}
    sets = {**listening, "sets": {"ci": {}}, "labels": ["x"]}
    cluster = {**CLUSTER, "namespace": "ci", "context": "a"}
    labelled = {**CLUSTER, "labels": ["Ci"], "context": "b"}
    for one, other in ((cluster, of_ec2), (sets, labelled), (cluster, labelled), (labelled, sets)):
        first, second = (at(each, "https://github.com/acme") for each in (one, other))
        (line,) = conflicts(first, second)
        having, lacking = ("b", "a") if one is labelled else ("a", "b")
        assert line == (
            f"stacks a and b: jobs that choose the scale set ci of {having} by its name may get runners of {lacking}, "
            "which have it as a label: set other slipway:runners.labels there, or, if both are to take them, have jobs "
            "choose a label that both have"
        )
        assert len(conflicts(first, at(second, "https://github.com/ACME/images"))) == 1
        assert conflicts(first, at(second, "https://github.com/acme2")) == []
