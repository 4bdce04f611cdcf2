"""What a role of the runners may do, by IAM's rules: a small evaluator, and the lists of what must and must not be possible.

Actions and resources match with ``*`` and ``?``; a condition must hold with the values that the request has, and does not
where the request has none (IAM user guide, "Policy evaluation logic", "Condition"). There is no denial in these policies.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REGION, ACCOUNT, NAME = "eu-west-1", "123456789012", "slipway-t"
SECRETS = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret"
GITHUB = f"{SECRETS}:slipway/github-AbCdEf"
WEBHOOK = f"{SECRETS}:slipway/webhook-AbCdEf"
CONFIG = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/{NAME}/runners"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{NAME}-jobs"
GROUP = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup"
LOGS = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group"
ECR = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository"
SELF = "AROAEXAMPLE:i-0123456789abcdef0"
OTHER = "AROAEXAMPLE:i-0fedcba9876543210"


@dataclass(frozen=True)
class Ask:
    """A request: what for, on what, and what IAM knows of it."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


def allowed(policy: Mapping[str, Any], ask: Ask) -> bool:
    """Tell whether a policy allows a request."""
    return any(_applies(statement, ask) for statement in policy["Statement"])


def _applies(statement: Mapping[str, Any], ask: Ask) -> bool:
    assert statement["Effect"] == "Allow"
    assert set(statement) <= {"Effect", "Action", "Resource", "Condition", "Sid"}
    return (
        _matches(statement["Action"], ask.action.lower(), fold=True)
        and _matches(_listed(statement["Resource"]), ask.resource)
        and all(
            _holds(operator, key, value, ask.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, value in keys.items()
        )
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _matches(patterns: list[str], value: str, *, fold: bool = False) -> bool:
    return any(fnmatch.fnmatchcase(value, pattern.lower() if fold else pattern) for pattern in patterns)


def _holds(operator: str, key: str, value: str | list[str], context: Mapping[str, str]) -> bool:
    filled = [re.sub(r"\$\{([^}]+)\}", lambda match: context.get(match[1], ""), one) for one in _listed(value)]
    given = context.get(key)
    if operator == "StringLike":
        return given is not None and _matches(filled, given)
    assert operator == "StringEquals"
    return given in filled


def _config(of: str, by: str = SELF) -> Ask:
    machine = of.partition(":")[2]
    return Ask("ssm:GetParameter", f"{CONFIG}/{machine}", {"aws:ResourceTag/runner": of, "aws:userid": by})


INSTANCE = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0123456789abcdef0"
VOLUME = f"arn:aws:ec2:{REGION}:{ACCOUNT}:volume/vol-0123456789abcdef0"
DOCUMENT = f"arn:aws:ssm:{REGION}::document"
OURS = {"aws:ResourceTag/slipway": NAME}
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/slipway-boundary"
BOUNDED = {"iam:PermissionsBoundary": BOUNDARY}
UNBOUNDED: list[dict[str, str]] = [{}, {"iam:PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/mine"}]


def _key(user: str, **tags: str) -> Ask:
    return Ask("ec2-instance-connect:SendSSHPublicKey", INSTANCE, {"ec2:osuser": user, **tags})


MAY: dict[str, list[Ask]] = {
    "runner": [
        _config(SELF),
        Ask("ecr:GetAuthorizationToken"),
        Ask("ecr:BatchGetImage", f"{ECR}/ml/torch"),
        Ask("ecr:BatchGetImage", f"{ECR}/ml/torch-wheels"),
        *(
            Ask(f"ecr:{action}", f"{ECR}/ml/service")
            for action in ("BatchGetImage", "InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload", "PutImage")
        ),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/runner:log-stream:i-0/slipway-setup"),
        Ask("ssmmessages:OpenDataChannel"),
        Ask("ssm:UpdateInstanceInformation"),
    ],
    "builder": [
        Ask("ssm:UpdateInstanceInformation"),
        *(
            Ask(f"ssmmessages:{action}")
            for action in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
        ),
    ],
    "who deploys": [
        *(Ask(f"ec2:{action}Instances", INSTANCE, OURS) for action in ("Start", "Stop", "Terminate")),
        *(Ask(f"ec2:{action}Volume", where, OURS) for action in ("Attach", "Detach") for where in (INSTANCE, VOLUME)),
        *(Ask(f"ec2:{action}Volume", VOLUME, OURS) for action in ("Modify", "Delete")),
        _key("build", **OURS),
        Ask("ec2:CreateTags", INSTANCE, {"ec2:CreateAction": "RunInstances"}),
        Ask("ec2:CreateTags", VOLUME, {"ec2:CreateAction": "CreateVolume"}),
        Ask("ec2:CreateTags", INSTANCE, OURS),
        Ask("ssm:StartSession", INSTANCE, OURS),
        Ask("ssm:StartSession", f"{DOCUMENT}/AWS-StartSSHSession"),
        *(
            Ask(f"iam:{action}", ROLE, BOUNDED)
            for action in ("CreateRole", "PutRolePolicy", "PutRolePermissionsBoundary")
        ),
        *(Ask("iam:PassRole", ROLE, {"iam:PassedToService": f"{to}.amazonaws.com"}) for to in ("ec2", "lambda")),
    ],
    "webhook": [
        Ask("secretsmanager:GetSecretValue", WEBHOOK),
        Ask("dynamodb:PutItem", TABLE),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/webhook:log-stream:x"),
    ],
    "keeper": [
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("dynamodb:Scan", TABLE),
        Ask("dynamodb:PutItem", TABLE),
        *(
            Ask(f"autoscaling:{action}", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-{kind}")
            for kind in ("spot", "on-demand")
            for action in (
                "SetDesiredCapacity",
                "TerminateInstanceInAutoScalingGroup",
                "CompleteLifecycleAction",
                "RecordLifecycleActionHeartbeat",
            )
        ),
        Ask("autoscaling:DescribeAutoScalingGroups"),
        Ask("autoscaling:DescribeScalingActivities"),
        Ask("ec2:DescribeInstances"),
        Ask("ssm:PutParameter", f"{CONFIG}/i-0123456789abcdef0"),
        Ask("ssm:AddTagsToResource", f"{CONFIG}/i-0123456789abcdef0"),
        Ask("ssm:DeleteParameter", f"{CONFIG}/i-0123456789abcdef0"),
        Ask("ssm:GetParametersByPath", CONFIG),
        Ask("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "Slipway/Runners"}),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
    ],
}
"""What each role must be able to do."""

MAY_NOT: dict[str, list[Ask]] = {
    "runner": [
        _config(OTHER),
        Ask("ssm:GetParameter", f"{CONFIG}/i-0123456789abcdef0", {"aws:userid": SELF}),
        Ask(
            "ssm:GetParameter",
            f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/prod/database",
            {"aws:ResourceTag/runner": SELF, "aws:userid": SELF},
        ),
        Ask("ssm:PutParameter", f"{CONFIG}/i-0123456789abcdef0", {"aws:ResourceTag/runner": SELF, "aws:userid": SELF}),
        Ask("ssm:AddTagsToResource", f"{CONFIG}/i-0fedcba9876543210"),
        Ask("ssm:DeleteParameter", f"{CONFIG}/i-0fedcba9876543210"),
        Ask("ssm:GetParametersByPath", CONFIG),
        Ask("ssm:StartSession", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("secretsmanager:GetSecretValue", WEBHOOK),
        *(Ask("ecr:PutImage", f"{ECR}/{name}") for name in ("ml/torch", "ml/torch-wheels", "prod/api")),
        Ask("ecr:InitiateLayerUpload", f"{ECR}/ml/torch-wheels"),
        Ask("ecr:BatchGetImage", f"{ECR}/prod/api"),
        *(
            Ask(f"ecr:{action}", f"{ECR}/ml/{name}")
            for action in ("DeleteRepository", "BatchDeleteImage")
            for name in ("torch", "service")
        ),
        Ask("autoscaling:TerminateInstanceInAutoScalingGroup", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
        Ask("autoscaling:SetDesiredCapacity", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
        Ask("autoscaling:SetInstanceHealth", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
        Ask("dynamodb:PutItem", TABLE),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
        Ask("logs:DeleteLogStream", f"{LOGS}:/{NAME}/runner:log-stream:i-0/slipway-setup"),
        Ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"),
        Ask("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
        Ask("ec2:RunInstances"),
        Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/state.json"),
    ],
    "builder": [
        _config(SELF),
        Ask("ssm:StartSession", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
        Ask("ssm:SendCommand", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
        Ask("ssmmessages:DeleteChannel"),
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("secretsmanager:GetSecretValue", WEBHOOK),
        Ask("ecr:GetAuthorizationToken"),
        Ask("ecr:PutImage", f"{ECR}/ml/torch"),
        Ask("ec2:StopInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0123456789abcdef0"),
        Ask("ec2:AttachVolume"),
        Ask("ec2-instance-connect:SendSSHPublicKey"),
        Ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/runner:log-stream:x"),
        Ask("s3:GetObject", "arn:aws:s3:::acme-pulumi/state.json"),
    ],
    "who deploys": [
        *(Ask(f"ec2:{action}Instances", INSTANCE) for action in ("Start", "Stop", "Terminate")),
        Ask("ec2:StopInstances", INSTANCE, {"aws:ResourceTag/slipway": "production"}),
        *(Ask(f"ec2:{action}Volume", VOLUME) for action in ("Attach", "Detach", "Modify", "Delete")),
        *(Ask("ec2:CreateTags", where) for where in (INSTANCE, VOLUME)),
        _key("root", **OURS),
        _key("ubuntu", **OURS),
        _key("build"),
        Ask("ssm:StartSession", INSTANCE),
        Ask("ssm:StartSession", f"{DOCUMENT}/AWS-StartPortForwardingSession"),
        Ask("ssm:SendCommand", INSTANCE, OURS),
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
        *(Ask(f"iam:{action}", ROLE, bound) for action in ("CreateRole", "PutRolePolicy") for bound in UNBOUNDED),
        Ask("iam:PutRolePermissionsBoundary", ROLE, UNBOUNDED[1]),
        *(Ask(f"iam:{action}", ROLE, BOUNDED) for action in ("DeleteRolePermissionsBoundary", "AttachRolePolicy")),
        Ask("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/admin", BOUNDED),
        *(Ask(f"iam:{action}", BOUNDARY) for action in ("CreatePolicyVersion", "SetDefaultPolicyVersion")),
        Ask("iam:PassRole", ROLE, {"iam:PassedToService": "sagemaker.amazonaws.com"}),
        Ask("iam:PassRole", ROLE),
        Ask("ecr:PutImage", f"{ECR}/ml/torch"),
    ],
    "webhook": [
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("secretsmanager:PutSecretValue", WEBHOOK),
        Ask("dynamodb:Scan", TABLE),
        Ask("dynamodb:DeleteItem", TABLE),
        Ask("dynamodb:PutItem", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/another"),
        Ask("autoscaling:SetDesiredCapacity", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
        Ask("ssm:PutParameter", f"{CONFIG}/i-0123456789abcdef0"),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
        Ask("logs:DeleteLogStream", f"{LOGS}:/{NAME}/webhook:log-stream:x"),
        Ask("lambda:InvokeFunction", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{NAME}-keeper"),
    ],
    "keeper": [
        Ask("secretsmanager:GetSecretValue", WEBHOOK),
        Ask("secretsmanager:PutSecretValue", GITHUB),
        Ask("autoscaling:SetDesiredCapacity", f"{GROUP}:uuid:autoScalingGroupName/production"),
        Ask("autoscaling:TerminateInstanceInAutoScalingGroup", f"{GROUP}:uuid:autoScalingGroupName/production"),
        Ask("autoscaling:UpdateAutoScalingGroup", f"{GROUP}:uuid:autoScalingGroupName/{NAME}-spot"),
        Ask("ec2:RunInstances"),
        Ask("ec2:TerminateInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
        Ask("ssm:GetParameter", f"{CONFIG}/i-0123456789abcdef0"),
        Ask("ssm:PutParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/prod/database"),
        Ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"),
        Ask("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "AWS/Billing"}),
        Ask("cloudwatch:PutMetricData"),
        Ask("cloudwatch:DeleteAlarms", "*", {"cloudwatch:namespace": "Slipway/Runners"}),
        Ask("dynamodb:DeleteTable", TABLE),
        Ask("dynamodb:Scan", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/another"),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/webhook:log-stream:x"),
        Ask("logs:DeleteLogStream", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
        Ask("ssm:GetParametersByPath", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/prod"),
        Ask("ssm:LabelParameterVersion", CONFIG),
        Ask("ecr:PutImage", f"{ECR}/ml/torch"),
    ],
}
"""What no role must be able to do."""


def mistakes(policy: Mapping[str, Any], whose: str) -> list[str]:
    """Return what a role can not do and must, and what it can and must not."""
    return [
        *(f"{ask.action} on {ask.resource} is denied" for ask in MAY[whose] if not allowed(policy, ask)),
        *(f"{ask.action} on {ask.resource} is allowed" for ask in MAY_NOT[whose] if allowed(policy, ask)),
    ]
