"""IAM policies of the runners' machines, the builder, the webhook and the keeper. Plain data, no Pulumi.

The resource is ``*`` only for actions without a resource type ("Actions, resources, and condition keys", Service
Authorization Reference). A condition narrows such an action where one exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Policy = dict[str, Any]
Statement = dict[str, Any]

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:DescribeImages", "ecr:GetDownloadUrlForLayer")
"""Actions for pull and ``slipway diff``."""

_PUSH = ("ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart")
"""Further actions for push ("Required IAM permissions for pushing an image", ECR user guide)."""

_SESSION = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""Actions for Session Manager. AWS's own policy, AmazonSSMManagedInstanceCore, can also read every parameter."""


@dataclass(frozen=True)
class Arns:
    """The resources that policies name. ``logs`` has log groups by their writer, ``jobs`` a table for each set.

    ``configs`` is the table with the configurations of runners.

    A job may pull from the repositories ``pull`` and ``push``, and push to ``push`` alone. ``reserved`` says whether
    there are reservations to be read.
    """

    configs: str
    jobs: Sequence[str]
    groups: Sequence[str]
    pull: Sequence[str]
    push: Sequence[str]
    github_secret: str
    webhook_secret: str | None
    logs: Mapping[str, str]
    reserved: bool = False


def trust(service: str) -> Policy:
    """Return the trust policy that lets an AWS service assume a role."""
    return _policy({"Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": {"Service": service}})


def runner(arns: Arns) -> Policy:
    """Return the policy of a runner's machine, and so of every job on it.

    The machine can read and delete one configuration only: that whose key is the machine's own ARN, which AWS states of
    the credentials of an instance ("AWS global condition context keys", IAM user guide). A transaction has all its keys
    in ``LeadingKeys``, and a scan has none, for which ``ForAllValues`` alone would hold.
    """
    own = {
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["${ec2:SourceInstanceARN}"]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }
    readable = tuple(dict.fromkeys([*arns.pull, *arns.push]))
    pull = [_allow(_PULL, *readable), _allow(["ecr:GetAuthorizationToken"], "*")] if readable else []
    push = [_allow(_PUSH, *arns.push)] if arns.push else []
    return _policy(
        _allow(["dynamodb:DeleteItem", "dynamodb:GetItem"], arns.configs, Condition=own),
        *pull,
        *push,
        _logs(arns, "runner"),
        _allow(_SESSION, "*"),
    )


def builder() -> Policy:
    """Return the policy of the builder. Its clients bring their own credentials for pushes."""
    return _policy(_allow(_SESSION, "*"))


def webhook(arns: Arns) -> Policy:
    """Return the policy of the webhook, which anybody can call."""
    return _policy(
        _allow(["secretsmanager:GetSecretValue"], str(arns.webhook_secret)),
        _allow(["dynamodb:PutItem"], *arns.jobs),
        _logs(arns, "webhook"),
    )


def keeper(arns: Arns, namespace: str) -> Policy:
    """Return the policy of the keeper, which starts and ends machines. ``namespace`` is that of its metrics.

    It writes configurations, and reads none: not the one either that another one replaces.
    """
    unread = {"StringEqualsIfExists": {"dynamodb:ReturnValues": ["NONE"]}}
    return _policy(
        _allow(["secretsmanager:GetSecretValue"], arns.github_secret),
        _allow(["dynamodb:PutItem", "dynamodb:Scan"], *arns.jobs),
        _allow(
            [
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:RecordLifecycleActionHeartbeat",
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            *arns.groups,
        ),
        _allow(["dynamodb:PutItem"], arns.configs, Condition=unread),
        _allow(
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                *(["ec2:DescribeCapacityReservations"] if arns.reserved else []),
                "ec2:DescribeInstances",
            ],
            "*",
        ),
        _allow(["cloudwatch:PutMetricData"], "*", Condition={"StringEquals": {"cloudwatch:namespace": namespace}}),
        _logs(arns, "keeper"),
    )


def _logs(arns: Arns, writer: str) -> Statement:
    return _allow(["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], f"{arns.logs[writer]}:*")


def _allow(actions: Sequence[str], *resources: str, **more: Any) -> Statement:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources), **more}


def _policy(*statements: Statement) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}
