"""What each may do: a machine, the one that builds images, the function that takes webhooks, and the machines' keeper.

Policies as IAM has them, plain data. ``*`` stands only where AWS knows no resource for an action ("Actions, resources,
and condition keys", Service Authorization Reference), and there a condition narrows it where one exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Policy = dict[str, Any]
Statement = dict[str, Any]

_PUSH = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:DescribeImages",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)
"""What pulling and pushing take ("Required IAM permissions for pushing an image", ECR user guide), and ``diff``."""

_SESSION = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""What Session Manager takes. AWS's own policy for it, AmazonSSMManagedInstanceCore, also reads every parameter."""


@dataclass(frozen=True)
class Arns:
    """The resources that policies name; ``logs`` are log groups by whose they are."""

    configs: str
    jobs: str
    groups: Sequence[str]
    repositories: Sequence[str]
    github_secret: str
    webhook_secret: str
    logs: Mapping[str, str]


def trust(service: str) -> Policy:
    """Return who may take a role: one of AWS's services."""
    return _policy({"Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": {"Service": service}})


def runner(arns: Arns) -> Policy:
    """Return what a machine may do, and with it every job on it.

    It reads the one configuration that carries its own session's name as a tag (``aws:userid`` of an instance is
    ``<role's id>:<instance's id>``), and no other's.
    """
    own = {"StringEquals": {"aws:ResourceTag/runner": "${aws:userid}"}}
    push = [_allow(_PUSH, *arns.repositories), _allow(["ecr:GetAuthorizationToken"], "*")] if arns.repositories else []
    return _policy(
        _allow(["ssm:GetParameter"], f"{arns.configs}/*", Condition=own),
        *push,
        _logs(arns, "runner"),
        _allow(_SESSION, "*"),
    )


def builder() -> Policy:
    """Return what the machine may do that builds images: who builds on it brings the credentials to push with."""
    return _policy(_allow(_SESSION, "*"))


def webhook(arns: Arns) -> Policy:
    """Return what the function may do that anybody can call."""
    return _policy(
        _allow(["secretsmanager:GetSecretValue"], arns.webhook_secret),
        _allow(["dynamodb:PutItem"], arns.jobs),
        _logs(arns, "webhook"),
    )


def keeper(arns: Arns, namespace: str) -> Policy:
    """Return what the function may do that starts and ends machines; ``namespace`` is that of its metrics."""
    return _policy(
        _allow(["secretsmanager:GetSecretValue"], arns.github_secret),
        _allow(["dynamodb:PutItem", "dynamodb:Scan"], arns.jobs),
        _allow(
            [
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:RecordLifecycleActionHeartbeat",
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            *arns.groups,
        ),
        _allow(["ssm:AddTagsToResource", "ssm:DeleteParameter", "ssm:PutParameter"], f"{arns.configs}/*"),
        _allow(["ssm:GetParametersByPath"], arns.configs, f"{arns.configs}/*"),
        _allow(
            ["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities", "ec2:DescribeInstances"],
            "*",
        ),
        _allow(["cloudwatch:PutMetricData"], "*", Condition={"StringEquals": {"cloudwatch:namespace": namespace}}),
        _logs(arns, "keeper"),
    )


def _logs(arns: Arns, whose: str) -> Statement:
    return _allow(["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], f"{arns.logs[whose]}:*")


def _allow(actions: Sequence[str], *resources: str, **more: Any) -> Statement:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources), **more}


def _policy(*statements: Statement) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}
