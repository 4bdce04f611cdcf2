"""Whoever may deploy runners makes a role with it that can do more than runners need, and takes that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stacks.config.stack_file import ROOT
from tests.unit.runners import iam
from tests.unit.runners.iam import ACCOUNT, NAME, Ask, allowed

ADMIN = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["*"], "Resource": "*"}]}
LOOT = [
    Ask("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/mallory"),
    Ask("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    Ask("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    Ask("secretsmanager:GetSecretValue", f"{iam.SECRETS}:production/database-AbCdEf"),
    Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/state.json"),
    Ask("ec2:TerminateInstances", iam.INSTANCE),
]


def document(name: str) -> Any:
    path = ROOT / "docs/runners" / name
    return json.loads(path.read_text()) if path.exists() else ADMIN  # no boundary bounds nothing


@pytest.mark.parametrize("boundary", [None, "policy/slipway-boundary", "policy/AdministratorAccess", "policy/mine"])
def test_deployer_makes_no_role_greater_than_its_own(boundary: str | None) -> None:
    """Make a role of an allowed name, give it everything, have a function with it, and ask for what is worth having."""
    deployer, role = document("ec2-policy.json"), f"arn:aws:iam::{ACCOUNT}:role/{NAME}-mallory"
    context: Mapping[str, str] = {"iam:PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:{boundary}"} if boundary else {}
    steps = [
        Ask("iam:CreateRole", role, context),
        Ask("iam:PutRolePolicy", role, context),
        Ask("iam:PassRole", role, {"iam:PassedToService": "lambda.amazonaws.com"}),
        Ask("lambda:CreateFunction", f"arn:aws:lambda:{iam.REGION}:{ACCOUNT}:function:{NAME}-mallory"),
    ]
    succeeded = all(allowed(deployer, step) for step in steps)
    bound = document("ec2-boundary.json") if boundary == "policy/slipway-boundary" else ADMIN
    assert not [ask for ask in LOOT if succeeded and allowed(ADMIN, ask) and allowed(bound, ask)]
    assert succeeded == (boundary == "policy/slipway-boundary")


@pytest.mark.parametrize("whose", ["runner", "builder", "webhook", "keeper"])
def test_boundary_admits_what_each_role_needs(whose: str) -> None:
    boundary = document("ec2-boundary.json")
    assert not [f"{ask.action} on {ask.resource}" for ask in iam.MAY[whose] if not allowed(boundary, ask)]
