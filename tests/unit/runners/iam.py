"""What the roles of runners, and who deploys them, must and must not be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.helpers.iam_simulator import ACCOUNT, Ask, allowed, check

REGION, NAME = "eu-west-1", "slipway-t"
SECRETS = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret"
GITHUB = f"{SECRETS}:slipway/github-AbCdEf"
WEBHOOK = f"{SECRETS}:slipway/webhook-AbCdEf"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{NAME}-jobs"
CONFIGS = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{NAME}-configs"
GROUP = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup"
LOGS = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group"
ECR = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository"
INSTANCE = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0123456789abcdef0"
OTHER = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"


def config(action: str, *keys: str, of: str = CONFIGS, by: str | None = INSTANCE) -> Ask:
    """Return a request of a machine's credentials for items of these keys; ``by`` is the machine, None elsewhere."""
    session = {"ec2:SourceInstanceArn": by} if by else {}
    return Ask(f"dynamodb:{action}", of, session | ({"dynamodb:LeadingKeys": [*keys]} if keys else {}))


VOLUME = f"arn:aws:ec2:{REGION}:{ACCOUNT}:volume/vol-0123456789abcdef0"
DOCUMENT = f"arn:aws:ssm:{REGION}:{ACCOUNT}:document"
OURS = {"aws:ResourceTag/slipway": NAME}
NEW = {"aws:RequestTag/slipway": NAME}
OTHERS: list[dict[str, str]] = [{}, {"aws:ResourceTag/slipway": "production"}, {"aws:ResourceTag/app": "slipway-t"}]
"""What AWS knows of another's resource."""


def _ec2(kind: str) -> str:
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{kind}-0123456789abcdef0"


GROUP_OF_MACHINES, TEMPLATE = _ec2("security-group"), _ec2("launch-template")
ENDPOINT, SUBNET, VPC, INTERFACE = _ec2("vpc-endpoint"), _ec2("subnet"), _ec2("vpc"), _ec2("network-interface")
IMAGE = f"arn:aws:ec2:{REGION}::image/ami-0123456789abcdef0"
PLACEMENT = f"arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/{NAME}"
RESERVATION = f"arn:aws:ec2:{REGION}:{ACCOUNT}:capacity-reservation/cr-0123456789abcdef0"
PARAMETER = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/slipway-boundary"
BOUNDED = {"iam:PermissionsBoundary": BOUNDARY}
UNBOUNDED: list[dict[str, str]] = [{}, {"iam:PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/mine"}]


def _key(user: str, **tags: str) -> Ask:
    return Ask("ec2-instance-connect:SendSSHPublicKey", INSTANCE, {"ec2:osuser": user, **tags})


def _passed(role: str, service: str) -> Ask:
    where = f"arn:aws:iam::{ACCOUNT}:role/{NAME}-{role}"
    return Ask("iam:PassRole", where, {"iam:PassedToService": f"{service}.amazonaws.com"})


RULES = (
    *(f"{verb}SecurityGroup{way}gress" for verb in ("Authorize", "Revoke") for way in ("In", "E")),
    "DeleteSecurityGroup",
)
TEMPLATES = ("CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "DeleteLaunchTemplate")

MAY: dict[str, list[Ask]] = {
    "runner": [
        config("GetItem", INSTANCE),
        config("DeleteItem", INSTANCE),
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
        *(
            Ask(f"ec2:{action}", where, NEW)
            for action, where in (
                ("CreateSecurityGroup", GROUP_OF_MACHINES),
                ("CreateLaunchTemplate", TEMPLATE),
                ("CreatePlacementGroup", PLACEMENT),
                ("CreateVolume", VOLUME),
                ("CreateVpcEndpoint", ENDPOINT),
                ("RunInstances", INSTANCE),
                ("RunInstances", VOLUME),
            )
        ),
        *(
            Ask(f"ec2:{action}", where)
            for action, places in (
                ("CreateSecurityGroup", (VPC,)),
                ("CreateVpcEndpoint", (VPC, SUBNET)),
                ("ModifyVpcEndpoint", (SUBNET,)),
                ("RunInstances", (IMAGE, SUBNET, INTERFACE, PLACEMENT, RESERVATION)),
            )
            for where in places
        ),
        *(Ask(f"ec2:{action}", GROUP_OF_MACHINES, OURS) for action in ("CreateVpcEndpoint", "RunInstances", *RULES)),
        *(Ask(f"ec2:{action}", TEMPLATE, OURS) for action in ("RunInstances", *TEMPLATES)),
        *(Ask(f"ec2:{action}", ENDPOINT, OURS) for action in ("ModifyVpcEndpoint", "DeleteVpcEndpoints")),
        *(Ask(f"ec2:{action}", INSTANCE, OURS) for action in ("DescribeInstanceAttribute", "ModifyInstanceAttribute")),
        Ask("ssm:GetParameter", f"{PARAMETER}/aws/service/deeplearning/ami/x86_64/latest/ami-id"),
        Ask("dynamodb:GetItem", TABLE),
        _key("build", **OURS),
        Ask("ec2:CreateTags", INSTANCE, {"ec2:CreateAction": "RunInstances"}),
        Ask("ec2:CreateTags", VOLUME, {"ec2:CreateAction": "CreateVolume"}),
        Ask("ec2:CreateTags", INSTANCE, OURS),
        Ask("ssm:StartSession", INSTANCE, OURS),
        Ask("ssm:StartSession", f"{DOCUMENT}/AWS-StartSSHSession"),
        *(
            Ask(f"iam:{action}", ROLE, BOUNDED)
            for action in ("CreateRole", "PutRolePolicy", "PutRolePermissionsBoundary", "UpdateAssumeRolePolicy")
        ),
        *(_passed(role, "ec2") for role in ("runner", "builder", "builder-arm64")),
        *(_passed(role, "lambda") for role in ("webhook", "keeper")),
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
        Ask("dynamodb:PutItem", CONFIGS, {"dynamodb:LeadingKeys": [INSTANCE]}),
        Ask("dynamodb:PutItem", CONFIGS, {"dynamodb:ReturnValues": "NONE"}),
        Ask("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "Slipway/Runners"}),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
    ],
}
"""What each role must be able to do."""

MAY_NOT: dict[str, list[Ask]] = {
    "runner": [
        *(
            config(action, *keys, by=by)
            for action in ("GetItem", "DeleteItem")
            for keys, by in (
                ((OTHER,), INSTANCE),
                ((INSTANCE, OTHER), INSTANCE),  # a transaction with one key of one's own
                ((OTHER, INSTANCE), INSTANCE),
                ((), INSTANCE),
                ((f"{INSTANCE}0",), INSTANCE),
                (("*",), INSTANCE),
                (("",), INSTANCE),
                ((INSTANCE,), None),
                (("${ec2:SourceInstanceARN}",), None),
            )
        ),
        *(
            config(action, *keys)
            for action in (
                "BatchGetItem",
                "BatchWriteItem",
                "ConditionCheckItem",
                "PartiQLDelete",
                "PartiQLInsert",
                "PartiQLSelect",
                "PartiQLUpdate",
                "PutItem",
                "Query",
                "Scan",
                "UpdateItem",
            )
            for keys in ((), (INSTANCE,), (OTHER,))
        ),
        *(
            config(action, INSTANCE, of=of)
            for action in ("GetItem", "DeleteItem")
            for of in (TABLE, f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/slipway-other-configs")
        ),
        *(
            Ask(f"dynamodb:{action}", CONFIGS)
            for action in (
                "CreateBackup",
                "DeleteTable",
                "DescribeTable",
                "ExportTableToPointInTime",
                "PutResourcePolicy",
                "UpdateTable",
                "UpdateTimeToLive",
            )
        ),
        Ask("dynamodb:GetRecords", f"{CONFIGS}/stream/2026-01-01T00:00:00.000"),
        Ask("ssm:GetParameter", f"{PARAMETER}/{NAME}/runners/i-0123456789abcdef0"),
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
        config("GetItem", INSTANCE),
        Ask("ssm:StartSession", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
        Ask("ssm:SendCommand", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210"),
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
        *(
            Ask(f"ec2:{action}", where, context)
            for where, actions in (
                (INSTANCE, ("StartInstances", "StopInstances", "TerminateInstances", "ModifyInstanceAttribute")),
                (INSTANCE, ("DescribeInstanceAttribute",)),  # the user data of any machine
                (VOLUME, ("AttachVolume", "DetachVolume", "ModifyVolume", "DeleteVolume")),
                (GROUP_OF_MACHINES, ("RunInstances", "CreateVpcEndpoint", *RULES)),
                (TEMPLATE, ("RunInstances", *TEMPLATES)),
                (ENDPOINT, ("ModifyVpcEndpoint", "DeleteVpcEndpoints")),
                (INTERFACE, ("ModifyNetworkInterfaceAttribute", "AttachNetworkInterface")),
            )
            for action in actions
            for context in OTHERS
        ),
        *(
            Ask(f"ec2:{action}", where, context)
            for action, where in (
                ("CreateSecurityGroup", GROUP_OF_MACHINES),
                ("CreateLaunchTemplate", TEMPLATE),
                ("CreateVolume", VOLUME),
                ("RunInstances", INSTANCE),
            )
            for context in ({}, {"aws:RequestTag/slipway": "production"})
        ),
        *(
            Ask("ssm:GetParameter", f"{PARAMETER}/{name}", OURS)
            for name in ("prod/database", f"{NAME}/runners/i-0123456789abcdef0")
        ),
        *(Ask(f"dynamodb:{action}", CONFIGS) for action in ("GetItem", "Scan", "Query", "UpdateTable")),
        Ask("iam:UpdateAssumeRolePolicy", ROLE),
        Ask("iam:UpdateAssumeRolePolicy", ROLE, UNBOUNDED[1]),
        *(_passed(role, "ec2") for role in ("webhook", "keeper", "admin")),
        *(_passed(role, "lambda") for role in ("runner", "builder", "admin")),
        *(Ask("ec2:CreateTags", where) for where in (INSTANCE, VOLUME)),
        _key("root", **OURS),
        _key("ubuntu", **OURS),
        _key("build"),
        Ask("ssm:StartSession", INSTANCE),
        Ask("ssm:StartSession", f"{DOCUMENT}/AWS-StartPortForwardingSession"),
        Ask("ssm:SendCommand", INSTANCE, OURS),
        Ask("secretsmanager:GetSecretValue", GITHUB),
        Ask("dynamodb:GetItem", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/another"),
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
        *(Ask(f"dynamodb:{action}", CONFIGS) for action in ("PutItem", "GetItem", "Scan")),
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
        *(
            Ask(f"dynamodb:{action}", CONFIGS, {"dynamodb:LeadingKeys": [INSTANCE]})
            for action in ("GetItem", "BatchGetItem", "Query", "Scan", "PartiQLSelect", "DeleteItem", "UpdateItem")
        ),
        Ask("dynamodb:PutItem", CONFIGS, {"dynamodb:ReturnValues": "ALL_OLD"}),
        Ask("dynamodb:PutItem", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/another"),
        Ask("ssm:PutParameter", f"{PARAMETER}/prod/database"),
        Ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"),
        Ask("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "AWS/Billing"}),
        Ask("cloudwatch:PutMetricData"),
        Ask("cloudwatch:DeleteAlarms", "*", {"cloudwatch:namespace": "Slipway/Runners"}),
        Ask("dynamodb:DeleteTable", TABLE),
        Ask("dynamodb:Scan", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/another"),
        Ask("logs:PutLogEvents", f"{LOGS}:/{NAME}/webhook:log-stream:x"),
        Ask("logs:DeleteLogStream", f"{LOGS}:/{NAME}/keeper:log-stream:x"),
        Ask("ssm:GetParametersByPath", f"{PARAMETER}/prod"),
        Ask("ecr:PutImage", f"{ECR}/ml/torch"),
    ],
}
"""What no role must be able to do."""


def mistakes(policy: Mapping[str, Any], whose: str) -> list[str]:
    """Return what a role can not do and must, and what it can and must not."""
    check(policy)
    return [
        *(f"{ask.action} on {ask.resource} is denied" for ask in MAY[whose] if not allowed(policy, ask)),
        *(f"{ask.action} on {ask.resource} is allowed" for ask in MAY_NOT[whose] if allowed(policy, ask)),
    ]
