"""The labels of runners: one grammar for all places that name them."""

from __future__ import annotations

from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import flavors
from tests.helpers.every import every
from tests.unit.runners.test_ec2 import RUNNERS as EC2

CLUSTER = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": "https://github.com/acme", "secret": "s"}}


def stacks(*labels: str) -> list[dict[str, Any]]:
    """Return stacks with the labels in each of the keys that take them."""
    sets = [{"runners": {**CLUSTER, "labels": [*labels]}}, {"runners": {**EC2, "labels": [*labels]}}]
    return [{"flavor": "local", "runsOn": [*labels]}, *({"flavor": "runners", **each} for each in sets)]


@every("label", ["ubuntu-22.04", "GPU_A100", "gpu:h100", "8 GPUs", "größer", "x" * 255])
def test_label_that_github_takes_is_taken_everywhere(label: str) -> None:
    for stack in stacks(label):
        flavors.load(stack, "stack x")


@every("label", ["", " gpu", "gpu\t", "a,b", "a\nb", "x" * 256, "ü" * 128])
def test_label_that_github_refuses_is_refused_everywhere(label: str) -> None:
    for stack in stacks(label):
        with pytest.raises(SlipwayError, match="expected a runner's label"):
            flavors.load(stack, "stack x")


def test_label_given_twice_is_refused_everywhere() -> None:
    for stack in stacks("GPU", "gpu"):
        with pytest.raises(SlipwayError, match="each only once"):
            flavors.load(stack, "stack x")
