"""Whoever may deploy, or publish, does with that what the stack does not need. IAM's verdict is an outsider's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stacks.config.stack_file import ROOT
from tests.helpers.iam_simulator import ACCOUNT, Ask, allowed
from tests.unit.runners import iam
from tests.unit.runners.iam import INSTANCE, NAME, OURS, REGION

ADMIN = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["*"], "Resource": "*"}]}
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{NAME}"
LOOT = [
    Ask("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/mallory"),
    Ask("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    Ask("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    Ask("secretsmanager:GetSecretValue", f"{iam.SECRETS}:production/database-AbCdEf"),
    Ask("ssm:GetParameter", f"{iam.PARAMETER}/production/database"),
    Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/state.json"),
    Ask("kms:Decrypt", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
    Ask("ec2:TerminateInstances", INSTANCE),
    Ask("ecr:BatchDeleteImage", f"{iam.ECR}/ml/torch"),
    Ask("lambda:UpdateFunctionCode", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:production"),
]
"""What is worth having in the account, whoever has what a deployer can make."""
SECRETS = [
    Ask("secretsmanager:GetSecretValue", iam.GITHUB),
    iam.config("GetItem", INSTANCE, by=None),
    iam.config("DeleteItem", INSTANCE, by=None),
    iam.config("PutItem", INSTANCE, by=None),
    iam.config("Scan", by=None),
    Ask("autoscaling:SetDesiredCapacity", f"{iam.GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
    Ask("dynamodb:Scan", iam.TABLE),
    Ask("dynamodb:PutItem", iam.TABLE),
    *(Ask(f"ssm:{action}Parameter", f"{iam.PARAMETER}/{NAME}/runners/i-0") for action in ("Get", "Put", "Delete")),
]
"""What the stack's own roles may do, and nobody with their credentials elsewhere."""


def document(name: str) -> Any:
    path = ROOT / "docs" / name
    return json.loads(path.read_text()) if path.exists() else ADMIN  # no boundary bounds nothing


DEPLOYER, BOUNDARY = document("runners/ec2-policy.json"), document("runners/ec2-boundary.json")
PUBLISHER = document("guides/ecr-policy.json")


def succeed(policy: Mapping[str, Any], steps: list[Ask]) -> bool:
    return all(allowed(policy, step) for step in steps)


@pytest.mark.parametrize("boundary", [None, "policy/slipway-boundary", "policy/AdministratorAccess", "policy/mine"])
def test_deployer_makes_no_role_greater_than_its_own(boundary: str | None) -> None:
    """Make a role of an allowed name, give it everything, have a function with it, and ask for what is worth having."""
    context: Mapping[str, str] = {"iam:PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:{boundary}"} if boundary else {}
    function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{NAME}-keeper"
    succeeded = succeed(
        DEPLOYER,
        [
            Ask("iam:CreateRole", f"{ROLE}-keeper", context),
            Ask("iam:PutRolePolicy", f"{ROLE}-keeper", context),
            Ask("iam:PassRole", f"{ROLE}-keeper", {"iam:PassedToService": "lambda.amazonaws.com"}),
            Ask("lambda:CreateFunction", function),
        ],
    )
    bound = BOUNDARY if boundary == "policy/slipway-boundary" else ADMIN
    within = {"lambda:SourceFunctionArn": function, **OURS}
    got = [ask for ask in LOOT if allowed(ADMIN, Ask(ask.action, ask.resource, within), bound)]
    assert not (succeeded and got)
    assert succeeded == (boundary == "policy/slipway-boundary")


def test_role_that_trusts_anybody_is_of_no_use_elsewhere() -> None:
    """Let another account assume the keeper's role, which no key of IAM forbids, and use it from there."""
    bounded = {"iam:PermissionsBoundary": iam.BOUNDARY}
    assert allowed(DEPLOYER, Ask("iam:UpdateAssumeRolePolicy", f"{ROLE}-keeper", bounded))
    assert [ask for ask in SECRETS if allowed(ADMIN, ask, BOUNDARY)] == []
    foreign = {"lambda:SourceFunctionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:mallory"}
    assert [ask for ask in SECRETS if allowed(ADMIN, Ask(ask.action, ask.resource, foreign), BOUNDARY)] == []


@pytest.mark.parametrize("context", [{}, {"iam:PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/mine"}])
def test_deployer_takes_over_no_role_without_the_boundary(context: dict[str, str]) -> None:
    """A role that has the prefix by chance: let oneself assume it, or change what it may do."""
    for action in ("UpdateAssumeRolePolicy", "PutRolePolicy"):
        assert not allowed(DEPLOYER, Ask(f"iam:{action}", f"{ROLE}-admin", context))


@pytest.mark.parametrize("role", ["keeper", "webhook", "admin"])
def test_deployer_logs_in_to_no_machine_with_such_a_role(role: str) -> None:
    """Start a machine with the role that reads the App's key, and open a session on it."""
    new = {"aws:RequestTag/slipway": NAME}
    login = [Ask("ec2:RunInstances", INSTANCE, new), Ask("ssm:StartSession", INSTANCE, OURS)]
    assert succeed(DEPLOYER, login)
    to_machine = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert not allowed(DEPLOYER, Ask("iam:PassRole", f"{ROLE}-{role}", to_machine))


@pytest.mark.parametrize(
    "name", ["production/database", f"{NAME}/runners/i-0123456789abcdef0", "awsome/secret", "aws-reference/x"]
)
def test_deployer_reads_no_parameter_of_the_account(name: str) -> None:
    assert not allowed(DEPLOYER, Ask("ssm:GetParameter", f"{iam.PARAMETER}/{name}", OURS))


@pytest.mark.parametrize("context", iam.OTHERS)
def test_deployer_opens_no_group_and_tags_none_to_open_it(context: dict[str, str]) -> None:
    group = iam.GROUP_OF_MACHINES
    steps = [Ask("ec2:AuthorizeSecurityGroupIngress", group, context), Ask("ec2:CreateTags", group, context)]
    assert [allowed(DEPLOYER, step) for step in steps] == [False, False]
    assert allowed(DEPLOYER, Ask("ec2:AuthorizeSecurityGroupIngress", group, OURS))


@pytest.mark.parametrize("context", iam.OTHERS)
def test_deployer_runs_nothing_on_machines_of_others(context: dict[str, str]) -> None:
    """Make another's launch template start other machines, read their user data, move them into an open group."""
    steps = [
        Ask("ec2:CreateLaunchTemplateVersion", iam.TEMPLATE, context),
        Ask("ec2:ModifyLaunchTemplate", iam.TEMPLATE, context),
        Ask("ec2:ModifyInstanceAttribute", INSTANCE, context),
        Ask("ec2:DescribeInstanceAttribute", INSTANCE, context),
        Ask("ec2:ModifyNetworkInterfaceAttribute", iam.INTERFACE, context),
        Ask("ec2:RunInstances", iam.GROUP_OF_MACHINES, context),
        Ask("ssm:StartSession", INSTANCE, context),
        Ask("ec2:AttachVolume", iam.VOLUME, context),
    ]
    assert [step.action for step in steps if allowed(DEPLOYER, step)] == []


@pytest.mark.parametrize("whose", ["runner", "builder", "webhook", "keeper"])
def test_boundary_admits_what_each_role_needs(whose: str) -> None:
    """With the keys that AWS sends for a machine's and for a function's credentials."""
    session = (
        {"ec2:SourceInstanceArn": INSTANCE}
        if whose in {"runner", "builder"}
        else {"lambda:SourceFunctionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{NAME}-{whose}"}
    )
    asks = [Ask(ask.action, ask.resource, {**ask.context, **session}) for ask in iam.MAY[whose]]
    assert not [f"{ask.action} on {ask.resource}" for ask in asks if not allowed(BOUNDARY, ask)]
    assert not [f"{ask.action} on {ask.resource}" for ask in asks if not allowed(ADMIN, ask, BOUNDARY)]


@pytest.mark.parametrize("returned", ["ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"])
def test_function_within_the_boundary_reads_no_registration(returned: str) -> None:
    """Give the keeper's role everything, and have AWS return the registration that one's own replaces."""
    keeper = {"lambda:SourceFunctionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{NAME}-keeper"}
    keys = {"dynamodb:LeadingKeys": [INSTANCE]}
    assert allowed(ADMIN, Ask("dynamodb:PutItem", iam.CONFIGS, {**keeper, **keys}), BOUNDARY)
    replaced = {**keeper, **keys, "dynamodb:ReturnValues": returned}
    assert not allowed(ADMIN, Ask("dynamodb:PutItem", iam.CONFIGS, replaced), BOUNDARY)
    assert not allowed(ADMIN, Ask("dynamodb:PutItem", iam.TABLE.replace("-jobs", "-other"), keeper), BOUNDARY)
    for action in ("GetItem", "BatchGetItem", "Query", "Scan", "UpdateItem", "DeleteItem", "PartiQLSelect"):
        assert not allowed(ADMIN, Ask(f"dynamodb:{action}", iam.CONFIGS, {**keeper, **keys}), BOUNDARY)


def test_publisher_reaches_its_own_path_alone() -> None:
    """Replace another's image, make its tags mutable, expire all of it, delete one's own images' history."""
    actions = ("PutImage", "PutImageTagMutability", "PutLifecyclePolicy", "DeleteRepository", "BatchGetImage")
    for path in ("prod/api", "ml", "mlops/api"):
        assert [each for each in actions if allowed(PUBLISHER, Ask(f"ecr:{each}", f"{iam.ECR}/{path}"))] == []
    assert [each for each in actions if not allowed(PUBLISHER, Ask(f"ecr:{each}", f"{iam.ECR}/ml/torch"))] == []
    for action in ("BatchDeleteImage", "SetRepositoryPolicy", "TagResource"):
        assert not allowed(PUBLISHER, Ask(f"ecr:{action}", f"{iam.ECR}/ml/torch"))
    for action in ("PutRegistryPolicy", "PutReplicationConfiguration", "CreatePullThroughCacheRule"):
        assert not allowed(PUBLISHER, Ask(f"ecr:{action}"))
    assert [ask.action for ask in LOOT if allowed(PUBLISHER, ask)] == []


@pytest.mark.parametrize("policy", [DEPLOYER, BOUNDARY, PUBLISHER], ids=["deployer", "boundary", "publisher"])
def test_policy_names_actions_that_aws_has(policy: Any) -> None:
    """The evaluator ends the test at an action that AWS's own list lacks; none is by a pattern."""
    actions = [action for statement in policy["Statement"] for action in statement["Action"]]
    assert not [action for action in actions if "*" in action or not allowed(ADMIN, Ask(action))]
