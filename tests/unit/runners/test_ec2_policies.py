"""What the roles of runners may do, and that a statement too many or too few would be seen."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from components.runners.ec2 import iam_policies
from stacks.config.stack_file import ROOT
from tests.helpers.every import every
from tests.helpers.iam_simulator import Ask, allowed
from tests.unit.runners import iam

ARNS = iam_policies.Arns(
    configs=iam.CONFIGS,
    jobs=[iam.TABLE],
    groups=[f"{iam.GROUP}:uuid:autoScalingGroupName/{iam.NAME}-{kind}" for kind in ("spot", "on-demand")],
    pull=[f"{iam.ECR}/ml/torch", f"{iam.ECR}/ml/torch-wheels"],
    push=[f"{iam.ECR}/ml/service"],
    github_secret=iam.GITHUB,
    webhook_secret=iam.WEBHOOK,
    logs={whose: f"{iam.LOGS}:/{iam.NAME}/{whose}" for whose in ("runner", "webhook", "keeper")},
)
POLICIES: dict[str, Callable[[], iam_policies.Policy]] = {
    "runner": lambda: iam_policies.runner(ARNS),
    "builder": iam_policies.builder,
    "webhook": lambda: iam_policies.webhook(ARNS),
    "keeper": lambda: iam_policies.keeper(ARNS, "Slipway/Runners"),
}
NAMELESS = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeScalingActivities",
    "cloudwatch:PutMetricData",
    "ec2:DescribeInstances",
    "ecr:GetAuthorizationToken",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
}
"""Actions for which AWS knows no resource (Service Authorization Reference); UpdateInstanceInformation has one that a
machine of no tag yet cannot be named by."""


@every("whose", POLICIES)
def test_policy_of_each_role_grants_only_what_it_needs(whose: str) -> None:
    assert iam.mistakes(POLICIES[whose](), whose) == []


def test_deployer_policy_reaches_only_the_builder() -> None:
    policy = json.loads((ROOT / "docs/runners/ec2-policy.json").read_text())
    assert iam.mistakes(policy, "who deploys") == []
    for sid in ("MachineImagesOfAws", "NewOnes", "NewMachines", "OwnOnes", "WithOwnOnes", "TagsOfWhatIsMade",
                "TagsOfWhatIsThere", "Builder", "SessionOfTheBuilder", "KeyOfTheBuilder", "WayToTheBuilder",
                "RolesWithinTheBoundary", "RolesOfMachines", "RolesOfFunctions"):  # fmt: skip
        bad = copy.deepcopy(policy)
        (statement,) = (one for one in bad["Statement"] if one["Sid"] == sid)
        statement["Resource"] = "*"
        statement.pop("Condition", None)
        assert iam.mistakes(bad, "who deploys"), sid
        statement["Action"] = []
        assert iam.mistakes(bad, "who deploys"), sid


@every("whose", POLICIES)
def test_policy_star_is_only_for_actions_without_resources(whose: str) -> None:
    for statement in POLICIES[whose]()["Statement"]:
        assert not [action for action in statement["Action"] if "*" in action]
        if "*" in statement["Resource"]:
            assert set(statement["Action"]) <= NAMELESS


@every(
    "whose, number",
    [(whose, number) for whose, make in POLICIES.items() for number in range(len(make()["Statement"]))],
)
def test_policy_with_a_planted_fault_fails_the_checks(whose: str, number: int) -> None:
    """Planted in each statement: it is gone, an action is gone, it is for any resource, for any action, unconditional."""
    good = POLICIES[whose]()

    def planted(**changes: Any) -> list[str]:
        bad = copy.deepcopy(good)
        bad["Statement"][number].update(changes)
        return iam.mistakes(bad, whose)

    statement = good["Statement"][number]
    assert planted(Action=[])
    # AWS sends the namespace of metrics with no other action, so that its condition holds for none.
    bound_by_namespace = statement["Action"] == ["cloudwatch:PutMetricData"]
    assert planted(Action=["*"]) or bound_by_namespace
    assert planted(Action=[f"{statement['Action'][0].partition(':')[0]}:*"], Resource=["*"]) or bound_by_namespace
    if "*" not in statement["Resource"]:
        assert planted(Resource=["*"])
    if "Condition" in statement:
        assert planted(Condition={})


def test_runner_policy_without_ecr_grants_no_push() -> None:
    bare = iam_policies.runner(iam_policies.Arns(**{**vars(ARNS), "pull": [], "push": []}))
    assert not [action for statement in bare["Statement"] for action in statement["Action"] if action.startswith("ecr")]


def test_keeper_policy_reads_reservations_where_there_are_some() -> None:
    reads = Ask("ec2:DescribeCapacityReservations")
    assert not allowed(POLICIES["keeper"](), reads)
    assert allowed(iam_policies.keeper(replace(ARNS, reserved=True), "Slipway/Runners"), reads)
    assert allowed(json.loads((ROOT / "docs/runners/ec2-boundary.json").read_text()), reads)


@every("service", ["ec2.amazonaws.com", "lambda.amazonaws.com"])
def test_trust_policy_names_its_service_alone(service: str) -> None:
    (statement,) = iam_policies.trust(service)["Statement"]
    assert statement == {"Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": {"Service": service}}
