"""A job on a runner, of a pull request say, replaces what ``main`` takes by its tag, with the role of its machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from components.runners.ec2 import ec2_deployment
from stacks import graph
from stacks.checks import pushes
from stacks.config.stack_file import ROOT, read_stack, stack_names
from tests.fakes.pulumi_mocks import run
from tests.helpers.iam_simulator import Ask, allowed
from tests.unit.runners.golden_objects import CASES, SITE
from tests.unit.runners.iam import ECR

RUNNERS = {key: value for key, value in CASES["ec2"].items() if key != "build"}
REGISTRY = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}
WRITES = ("InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload", "PutImage")
CHAINS: dict[str, Any] = {"images": {"torch-wheels": {}, "torch": {"WHEELS": "torch-wheels"}}, "runners alone": {}}


def policy_of_job(chain: dict[str, Any], **runners: Any) -> Any:
    """Return what the machine's role may do, as the stack declares it."""
    site = replace(SITE, builders={})  # as these runners have none
    with patch.object(ec2_deployment, "look_up", lambda *_: site):
        recorder, _ = run(
            chain=chain, products=("torch-wheels",), registry=REGISTRY, runners={**RUNNERS, **runners},
        )  # fmt: skip
    return json.loads(recorder.of_type("aws:iam/rolePolicy:RolePolicy")["slipway-t-runner"]["policy"])


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("runners", [{}, {"push": ["service"]}], ids=["pull only", "push to its own"])
def test_job_can_push_no_product_and_no_image(chain: dict[str, Any], runners: dict[str, Any]) -> None:
    policy = policy_of_job(chain, **runners)
    for name in ("torch-wheels", "torch", "service-2"):
        for action in WRITES:
            assert not allowed(policy, Ask(f"ecr:{action}", f"{ECR}/ml/{name}")), f"{action} of {name}"
    assert allowed(policy, Ask("ecr:BatchGetImage", f"{ECR}/ml/torch-wheels"))
    assert all(allowed(policy, Ask(f"ecr:{action}", f"{ECR}/ml/service")) == bool(runners) for action in WRITES)


def test_push_to_a_product_of_any_stack_is_refused() -> None:
    (stack,) = (name for name in stack_names() if name == "base-cu121")
    values = read_stack(stack)
    mine = {"flavor": "runners", "registry": {**REGISTRY, "create": False}, "runners": {**RUNNERS, "push": ["service"]}}
    assert not list(pushes.products(graph.unlocked(mine, "stack mine", ROOT)))
    product = next(spec.name for spec in graph.unlocked(values, "stack x").specs if spec.product)
    with patch.object(pushes, "read_stack", lambda *_: {**values, "registry": REGISTRY}):
        mine["runners"] = {**RUNNERS, "push": [product, "service"]}
        (line,) = pushes.products(graph.unlocked(mine, "stack mine", ROOT))
    assert line.startswith(f"slipway:runners.push: '{product}': stack ")
    values |= {"registry": REGISTRY, "runners": {**RUNNERS, "push": [product]}}
    (line,) = pushes.products(graph.unlocked(values, f"stack {stack}", ROOT))
    assert f"'{product}': stack {stack} keeps a build product there" in line


@pytest.mark.parametrize("name", ["*", "torch*", "", "../prod/api", "a//b", "Torch", "a:b"])
def test_push_names_one_repository_and_no_pattern(name: str) -> None:
    with pytest.raises(Exception, match="the name of one repository, such as service, without a wildcard"):
        graph.unlocked({"flavor": "runners", "registry": REGISTRY, "runners": {**RUNNERS, "push": [name]}}, "stack t")


def test_push_to_a_registry_other_than_ecr_is_refused() -> None:
    values = {"flavor": "runners", "registry": {"kind": "ghcr", "repository": "ghcr.io/acme/x"}}
    (line,) = pushes.products(graph.unlocked({**values, "runners": {**RUNNERS, "push": ["service"]}}, "stack t"))
    assert line.startswith("slipway:runners.push: slipway:registry is of kind ghcr")
