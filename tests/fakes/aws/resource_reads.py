"""How the stand-in for Pulumi's AWS plugin reads each type back, by the id that the plugin's documentation gives it.

Each function asks the API and answers in the plugin's names: what may be said of the resource, and what AWS alone says of
it. What moto does not keep is left out. :class:`Gone` is what AWS does not have.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from toolchain.provider.provider_base import Properties

Client = Any


class Gone(Exception):
    """AWS has no such thing."""


@dataclass(frozen=True)
class Found:
    """What AWS says of a resource: ``inputs``, ``more`` that nobody can ask for, and its id where that is a new one."""

    inputs: Properties
    more: Properties = field(default_factory=dict)
    id: str | None = None


Read = Callable[[Client, str, Properties], Found]
"""Takes the id and what is known: the state, or in an import what its id says."""


def not_found(error: ClientError) -> bool:
    """Tell whether AWS says that it has no such thing."""
    code = error.response["Error"]["Code"]
    return "NotFound" in code or code == "NoSuchEntity"


def unpacked(shape: str, given: str) -> Properties:
    """Return what an id of several parts says, by ``shape``, such as ``autoscalingGroupName/name``.

    Raises:
        ValueError: it has not this shape.
    """
    mark = next((mark for mark in "/:" if mark in shape), None)
    if mark is None:
        return {}
    names, parts = shape.split(mark), given.rsplit(mark, shape.count(mark))
    if len(parts) != len(names) or not all(parts):
        raise ValueError(f"unexpected format of ID ({given}), expected {shape}")
    return dict(zip(names, parts, strict=True))


def _one(items: list[Any]) -> Any:
    """Return the only one."""
    if not items:
        raise Gone
    (one,) = items
    return one


_CAMEL: Final = {"Groups": "securityGroups", "OKActions": "okActions", "VPCZoneIdentifier": "vpcZoneIdentifiers"}


def camel(value: Any) -> Any:
    """Turn the names of AWS's APIs into the plugin's, tags' lists into their maps."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _CAMEL.get(key, key[:1].lower() + key[1:]): tags(item) if key == "Tags" else camel(item)
        for key, item in value.items()
    }


def tags(listed: list[Mapping[str, str]]) -> dict[str, str]:
    """Return tags as the plugin has them."""
    return {tag["Key"]: tag["Value"] for tag in listed}


_TEXTS = {"encrypted", "deleteOnTermination", "ebsOptimized"}


def _texts(value: Any) -> Any:
    """Turn the truth of what may be left out into text, as a launch template has it."""
    if isinstance(value, list):
        return [_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: str(item).lower() if key in _TEXTS else _texts(item) for key, item in value.items()}


def _only(properties: Mapping[str, Any], *names: str) -> Properties:
    return {name: properties[name] for name in names if name in properties}


def template(client: Client, name: str, _: Properties) -> Found:
    """A launch template, by its newest version."""
    head = _one(client.describe_launch_templates(LaunchTemplateIds=[name])["LaunchTemplates"])
    versions = client.describe_launch_template_versions(LaunchTemplateId=name, Versions=["$Latest"])
    data = _texts(camel(_one(versions["LaunchTemplateVersions"])["LaunchTemplateData"]))
    # Moto has the template's own tags among those of what it launches
    data["tagSpecifications"] = [one for one in data["tagSpecifications"] if one["resourceType"] != "launch-template"]
    now = client.describe_tags(Filters=[{"Name": "resource-id", "Values": [name]}])["Tags"]  # the others are its first
    inputs = {"name": head["LaunchTemplateName"], "tags": tags(now)}
    return Found({**data, **inputs}, {"latestVersion": head["LatestVersionNumber"], "arn": "unused"})


def security_group(client: Client, name: str, _: Properties) -> Found:
    """A security group without its rules, which are resources of their own."""
    description = _one(client.describe_security_groups(GroupIds=[name])["SecurityGroups"])
    inputs = {
        "name": description["GroupName"],
        "description": description["Description"],
        "vpcId": description["VpcId"],
    }
    return Found({**inputs, "tags": tags(description.get("Tags", []))})


def rule(client: Client, name: str, _: Properties) -> Found:
    """A rule of a security group, of either direction."""
    description = _one(client.describe_security_group_rules(SecurityGroupRuleIds=[name])["SecurityGroupRules"])
    whole = camel(description)
    inputs = {"securityGroupId": description["GroupId"], **_only(whole, "ipProtocol", "cidrIpv4")}
    if description["IpProtocol"] != "-1":
        inputs |= _only(whole, "fromPort", "toPort")
    if "ReferencedGroupInfo" in description:
        inputs["referencedSecurityGroupId"] = description["ReferencedGroupInfo"]["GroupId"]
    return Found(inputs)


def endpoint(client: Client, name: str, _: Properties) -> Found:
    """An endpoint in a VPC."""
    description = _one(client.describe_vpc_endpoints(VpcEndpointIds=[name])["VpcEndpoints"])
    inputs = _only(
        camel(description), "vpcId", "serviceName", "vpcEndpointType", "privateDnsEnabled", "subnetIds", "tags"
    )
    return Found({**inputs, "securityGroupIds": [group["GroupId"] for group in description["Groups"]]})


def volume(client: Client, name: str, _: Properties) -> Found:
    """A volume."""
    description = _one(client.describe_volumes(VolumeIds=[name])["Volumes"])
    inputs = _only(camel(description), "availabilityZone", "size", "encrypted", "iops", "throughput", "tags")
    return Found({**inputs, "type": description["VolumeType"]})


def instance(client: Client, name: str, _: Properties) -> Found:
    """A machine; one that has been ended is none."""
    reservation = _one(client.describe_instances(InstanceIds=[name])["Reservations"])
    description = _one(reservation["Instances"])
    if description["State"]["Name"] in {"shutting-down", "terminated"}:
        raise Gone
    user_data = client.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
    whole = camel(description)
    return Found(
        {
            **_only(whole, "instanceType", "subnetId", "ebsOptimized", "tags"),
            "ami": description["ImageId"],
            "vpcSecurityGroupIds": [group["GroupId"] for group in description["SecurityGroups"]],
            "iamInstanceProfile": description["IamInstanceProfile"]["Arn"].rpartition("/")[2],
            "metadataOptions": _only(
                whole["metadataOptions"],
                "httpEndpoint",
                "httpTokens",
                "httpPutResponseHopLimit",
                "instanceMetadataTags",
            ),
            "userData": base64.b64decode(user_data).decode(),
        }
    )


def attachment(client: Client, _: str, known: Properties) -> Found:
    """A volume on a machine: the plugin's id of it is of its own making, and says nothing."""
    description = _one(client.describe_volumes(VolumeIds=[known["volumeId"]])["Volumes"])
    there = [one for one in description["Attachments"] if one["InstanceId"] == known["instanceId"]]
    inputs = {"deviceName": _one(there)["Device"], **_only(known, "volumeId", "instanceId")}
    return Found(inputs, id=f"vai-{known['volumeId']}")


def group(client: Client, name: str, _: Properties) -> Found:
    """An Auto Scaling group; how many machines it has is not the stack's to say."""
    description = _one(client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"])
    # Moto makes up the grace of health checks.
    inputs = _only(camel(description), "minSize", "maxSize", "healthCheckType", "capacityRebalance")
    return Found(
        {
            **inputs,
            "name": name,
            "vpcZoneIdentifiers": description["VPCZoneIdentifier"].split(","),
            "protectFromScaleIn": description["NewInstancesProtectedFromScaleIn"],
            "suspendedProcesses": sorted(one["ProcessName"] for one in description["SuspendedProcesses"]),
            **_machines(camel(description)),
            "tags": [_only(camel(tag), "key", "value", "propagateAtLaunch") for tag in description["Tags"]],
        },
        {"arn": description["AutoScalingGroupARN"]},
    )


def _machines(group: Properties) -> Properties:
    """Return a group's template or templates, without their names, which AWS adds to the ids."""
    if template := group.get("launchTemplate"):
        return {"launchTemplate": {"id": template["launchTemplateId"], "version": template["version"]}}
    policy = group["mixedInstancesPolicy"]
    for place in [policy["launchTemplate"], *policy["launchTemplate"]["overrides"]]:
        place["launchTemplateSpecification"].pop("launchTemplateName", None)
    return {"mixedInstancesPolicy": policy}


def hook(client: Client, name: str, known: Properties) -> Found:
    """A hook of an Auto Scaling group."""
    name, of = known["name"], known["autoscalingGroupName"]
    hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=of, LifecycleHookNames=[name])["LifecycleHooks"]
    whole = camel(_one(hooks))
    inputs = _only(whole, "lifecycleTransition", "heartbeatTimeout", "defaultResult")
    return Found({**inputs, "name": name, "autoscalingGroupName": of}, id=name)


def role(client: Client, name: str, _: Properties) -> Found:
    """A role without its policies, which are resources of their own."""
    description = client.get_role(RoleName=name)["Role"]
    trust = json.dumps(description["AssumeRolePolicyDocument"])
    inputs = {"name": name, "assumeRolePolicy": trust, "tags": tags(description.get("Tags", []))}
    if boundary := description.get("PermissionsBoundary"):
        inputs["permissionsBoundary"] = boundary["PermissionsBoundaryArn"]
    return Found(inputs, {"arn": description["Arn"], "uniqueId": description["RoleId"]})


def role_policy(client: Client, _: str, known: Properties) -> Found:
    """A policy of a role alone."""
    description = client.get_role_policy(RoleName=known["role"], PolicyName=known["name"])
    return Found({**_only(known, "role", "name"), "policy": json.dumps(description["PolicyDocument"])})


def profile(client: Client, name: str, _: Properties) -> Found:
    """A machine's profile."""
    description = client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    roles = [one["RoleName"] for one in description["Roles"]]
    return Found({"name": name, "role": roles[0] if roles else ""}, {"arn": description["Arn"]})


def log_group(client: Client, name: str, _: Properties) -> Found:
    """A group of logs."""
    groups = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    description = _one([one for one in groups if one["logGroupName"] == name])
    arn = description["arn"].removesuffix(":*")
    inputs = {"name": name, "tags": client.list_tags_for_resource(resourceArn=arn)["tags"]}
    return Found({**inputs, "retentionInDays": description.get("retentionInDays", 0)}, {"arn": arn})


def table(client: Client, name: str, _: Properties) -> Found:
    """A table."""
    description = client.describe_table(TableName=name)["Table"]
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    listed = client.list_tags_of_resource(ResourceArn=description["TableArn"]).get("Tags", [])
    inputs = {
        "name": name,
        "billingMode": description["BillingModeSummary"]["BillingMode"],
        "hashKey": description["KeySchema"][0]["AttributeName"],
        "attributes": [
            {"name": one["AttributeName"], "type": one["AttributeType"]} for one in description["AttributeDefinitions"]
        ],
        "ttl": {"attributeName": ttl["AttributeName"], "enabled": ttl["TimeToLiveStatus"] == "ENABLED"},
        "tags": tags(listed),
    }
    return Found(inputs, {"arn": description["TableArn"]})


def function(client: Client, name: str, _: Properties) -> Found:
    """A function without its code, which the plugin does not read back either."""
    answer = client.get_function(FunctionName=name)
    description = answer["Configuration"]
    inputs = _only(camel(description), "role", "runtime", "architectures", "handler", "timeout", "memorySize")
    variables = description["Environment"]["Variables"]  # named as the user has them
    reserved = answer.get("Concurrency", {}).get("ReservedConcurrentExecutions", -1)
    more = {
        "environment": {"variables": variables},
        "tags": answer.get("Tags", {}),
        "reservedConcurrentExecutions": int(reserved),
    }
    return Found({**inputs, **more, "name": name}, {"arn": description["FunctionArn"]})


def function_url(client: Client, name: str, _: Properties) -> Found:
    """The address of a function."""
    description = client.get_function_url_config(FunctionName=name)
    inputs = {"functionName": name, "authorizationType": description["AuthType"]}
    return Found(inputs, {"functionUrl": description["FunctionUrl"]})


def invoke_config(client: Client, name: str, _: Properties) -> Found:
    """How often a function is called again that was not waited for."""
    description = camel(client.get_function_event_invoke_config(FunctionName=name))
    return Found({"functionName": name, **_only(description, "maximumRetryAttempts", "maximumEventAgeInSeconds")})


def permission(client: Client, _: str, known: Properties) -> Found:
    """Who may call a function: a statement of its policy."""
    policy = json.loads(client.get_policy(FunctionName=known["function"])["Policy"])
    name = known["statementId"]
    description = _one([one for one in policy["Statement"] if one["Sid"] == name])
    principal = description["Principal"]
    inputs = {
        "function": known["function"],
        "statementId": name,
        "action": description["Action"],
        "principal": principal["Service"] if isinstance(principal, dict) else principal,
    }
    if source := description.get("Condition", {}).get("ArnLike", {}).get("AWS:SourceArn"):
        inputs["sourceArn"] = source
    return Found(inputs, id=name)


def event_rule(client: Client, name: str, _: Properties) -> Found:
    """A rule that calls by the clock."""
    description = client.describe_rule(Name=name)
    listed = client.list_tags_for_resource(ResourceARN=description["Arn"])["Tags"]
    inputs = {"name": name, "scheduleExpression": description["ScheduleExpression"], "tags": tags(listed)}
    return Found(inputs, {"arn": description["Arn"]})


def event_target(client: Client, _: str, known: Properties) -> Found:
    """What a rule calls."""
    targets = client.list_targets_by_rule(Rule=known["rule"])["Targets"]
    description = _one([one for one in targets if one["Id"] == known["targetId"]])
    retry = {"retryPolicy": camel(description["RetryPolicy"])} if "RetryPolicy" in description else {}
    return Found({**_only(known, "rule", "targetId"), "arn": description["Arn"], **retry}, id=known["targetId"])


def alarm(client: Client, name: str, _: Properties) -> Found:
    """An alarm of a metric."""
    description = _one(client.describe_alarms(AlarmNames=[name])["MetricAlarms"])
    arn = description["AlarmArn"]
    inputs = _only(
        camel(description),
        "alarmDescription",
        "namespace",
        "metricName",
        "statistic",
        "period",
        "evaluationPeriods",
        "comparisonOperator",
        "threshold",
        "treatMissingData",
        "alarmActions",
        "okActions",
    )
    dimensions = {one["Name"]: one["Value"] for one in description["Dimensions"]}
    listed = client.list_tags_for_resource(ResourceARN=arn)["Tags"]
    return Found({**inputs, "name": name, "dimensions": dimensions, "tags": tags(listed)}, {"arn": arn})


def repository(client: Client, name: str, _: Properties) -> Found:
    """A repository of images."""
    description = _one(client.describe_repositories(repositoryNames=[name])["repositories"])
    inputs = _only(
        description, "imageTagMutability", "imageTagMutabilityExclusionFilters", "imageScanningConfiguration"
    )
    encryption = {"encryptionConfigurations": [description["encryptionConfiguration"]]}
    more = {
        "arn": description["repositoryArn"],
        "registryId": description["registryId"],
        "repositoryUrl": description["repositoryUri"],
    }
    return Found({**inputs, **encryption, "name": name}, more)


def lifecycle_policy(client: Client, name: str, _: Properties) -> Found:
    """What a repository keeps."""
    description = client.get_lifecycle_policy(repositoryName=name)
    inputs = {"repository": name, "policy": description["lifecyclePolicyText"]}
    return Found(inputs, {"registryId": description["registryId"]})


def remembered(_client: Client, _name: str, known: Properties) -> Found:
    """What moto has no API for is as it was, and nothing that there was before."""
    if not known:
        raise Gone
    return Found(known)
