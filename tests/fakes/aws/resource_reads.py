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

from toolchain.provider_base import Properties

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


def _one(found: list[Any]) -> Any:
    """Return the only one."""
    if not found:
        raise Gone
    (one,) = found
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


def _only(found: Mapping[str, Any], *names: str) -> Properties:
    return {name: found[name] for name in names if name in found}


def template(client: Client, name: str, _: Properties) -> Found:
    """A launch template, by its newest version."""
    head = _one(client.describe_launch_templates(LaunchTemplateIds=[name])["LaunchTemplates"])
    versions = client.describe_launch_template_versions(LaunchTemplateId=name, Versions=["$Latest"])
    data = _texts(camel(_one(versions["LaunchTemplateVersions"])["LaunchTemplateData"]))
    # Moto has the template's own tags among those of what it launches
    data["tagSpecifications"] = [one for one in data["tagSpecifications"] if one["resourceType"] != "launch-template"]
    now = client.describe_tags(Filters=[{"Name": "resource-id", "Values": [name]}])["Tags"]  # the others are its first
    own = {"name": head["LaunchTemplateName"], "tags": tags(now)}
    return Found({**data, **own}, {"latestVersion": head["LatestVersionNumber"], "arn": "unused"})


def security_group(client: Client, name: str, _: Properties) -> Found:
    """A security group without its rules, which are resources of their own."""
    found = _one(client.describe_security_groups(GroupIds=[name])["SecurityGroups"])
    own = {"name": found["GroupName"], "description": found["Description"], "vpcId": found["VpcId"]}
    return Found({**own, "tags": tags(found.get("Tags", []))})


def rule(client: Client, name: str, _: Properties) -> Found:
    """A rule of a security group, of either direction."""
    found = _one(client.describe_security_group_rules(SecurityGroupRuleIds=[name])["SecurityGroupRules"])
    whole = camel(found)
    own = {"securityGroupId": found["GroupId"], **_only(whole, "ipProtocol", "cidrIpv4")}
    if found["IpProtocol"] != "-1":
        own |= _only(whole, "fromPort", "toPort")
    if "ReferencedGroupInfo" in found:
        own["referencedSecurityGroupId"] = found["ReferencedGroupInfo"]["GroupId"]
    return Found(own)


def endpoint(client: Client, name: str, _: Properties) -> Found:
    """An endpoint in a VPC."""
    found = _one(client.describe_vpc_endpoints(VpcEndpointIds=[name])["VpcEndpoints"])
    own = _only(camel(found), "vpcId", "serviceName", "vpcEndpointType", "privateDnsEnabled", "subnetIds", "tags")
    return Found({**own, "securityGroupIds": [group["GroupId"] for group in found["Groups"]]})


def volume(client: Client, name: str, _: Properties) -> Found:
    """A volume."""
    found = _one(client.describe_volumes(VolumeIds=[name])["Volumes"])
    own = _only(camel(found), "availabilityZone", "size", "encrypted", "iops", "throughput", "tags")
    return Found({**own, "type": found["VolumeType"]})


def instance(client: Client, name: str, _: Properties) -> Found:
    """A machine; one that has been ended is none."""
    reservation = _one(client.describe_instances(InstanceIds=[name])["Reservations"])
    found = _one(reservation["Instances"])
    if found["State"]["Name"] in {"shutting-down", "terminated"}:
        raise Gone
    told = client.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
    whole = camel(found)
    return Found(
        {
            **_only(whole, "instanceType", "subnetId", "ebsOptimized", "tags"),
            "ami": found["ImageId"],
            "vpcSecurityGroupIds": [group["GroupId"] for group in found["SecurityGroups"]],
            "iamInstanceProfile": found["IamInstanceProfile"]["Arn"].rpartition("/")[2],
            "metadataOptions": _only(
                whole["metadataOptions"],
                "httpEndpoint",
                "httpTokens",
                "httpPutResponseHopLimit",
                "instanceMetadataTags",
            ),
            "userData": base64.b64decode(told).decode(),
        }
    )


def attachment(client: Client, _: str, known: Properties) -> Found:
    """A volume on a machine: the plugin's id of it is of its own making, and says nothing."""
    found = _one(client.describe_volumes(VolumeIds=[known["volumeId"]])["Volumes"])
    there = [one for one in found["Attachments"] if one["InstanceId"] == known["instanceId"]]
    own = {"deviceName": _one(there)["Device"], **_only(known, "volumeId", "instanceId")}
    return Found(own, id=f"vai-{known['volumeId']}")


def group(client: Client, name: str, _: Properties) -> Found:
    """An Auto Scaling group; how many machines it has is not the stack's to say."""
    found = _one(client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"])
    own = _only(camel(found), "minSize", "maxSize", "healthCheckType", "capacityRebalance")  # its grace moto makes up
    return Found(
        {
            **own,
            "name": name,
            "vpcZoneIdentifiers": found["VPCZoneIdentifier"].split(","),
            "protectFromScaleIn": found["NewInstancesProtectedFromScaleIn"],
            "suspendedProcesses": sorted(one["ProcessName"] for one in found["SuspendedProcesses"]),
            "mixedInstancesPolicy": _mixed(camel(found["MixedInstancesPolicy"])),
            "tags": [_only(camel(tag), "key", "value", "propagateAtLaunch") for tag in found["Tags"]],
        },
        {"arn": found["AutoScalingGroupARN"]},
    )


def _mixed(policy: Properties) -> Properties:
    """Return it without the template's name, which AWS adds to its id."""
    for place in [policy["launchTemplate"], *policy["launchTemplate"]["overrides"]]:
        place["launchTemplateSpecification"].pop("launchTemplateName", None)
    return policy


def hook(client: Client, name: str, known: Properties) -> Found:
    """A hook of an Auto Scaling group."""
    name, of = known["name"], known["autoscalingGroupName"]
    hooks = client.describe_lifecycle_hooks(AutoScalingGroupName=of, LifecycleHookNames=[name])["LifecycleHooks"]
    whole = camel(_one(hooks))
    own = _only(whole, "lifecycleTransition", "heartbeatTimeout", "defaultResult")
    return Found({**own, "name": name, "autoscalingGroupName": of}, id=name)


def role(client: Client, name: str, _: Properties) -> Found:
    """A role without its policies, which are resources of their own."""
    found = client.get_role(RoleName=name)["Role"]
    trust = json.dumps(found["AssumeRolePolicyDocument"])
    own = {"name": name, "assumeRolePolicy": trust, "tags": tags(found.get("Tags", []))}
    return Found(own, {"arn": found["Arn"], "uniqueId": found["RoleId"]})


def role_policy(client: Client, _: str, known: Properties) -> Found:
    """A policy of a role alone."""
    found = client.get_role_policy(RoleName=known["role"], PolicyName=known["name"])
    return Found({**_only(known, "role", "name"), "policy": json.dumps(found["PolicyDocument"])})


def profile(client: Client, name: str, _: Properties) -> Found:
    """A machine's profile."""
    found = client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    roles = [one["RoleName"] for one in found["Roles"]]
    return Found({"name": name, "role": roles[0] if roles else ""}, {"arn": found["Arn"]})


def log_group(client: Client, name: str, _: Properties) -> Found:
    """A group of logs."""
    groups = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    found = _one([one for one in groups if one["logGroupName"] == name])
    arn = found["arn"].removesuffix(":*")
    own = {"name": name, "tags": client.list_tags_for_resource(resourceArn=arn)["tags"]}
    return Found({**own, "retentionInDays": found.get("retentionInDays", 0)}, {"arn": arn})


def table(client: Client, name: str, _: Properties) -> Found:
    """A table."""
    found = client.describe_table(TableName=name)["Table"]
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    listed = client.list_tags_of_resource(ResourceArn=found["TableArn"]).get("Tags", [])
    own = {
        "name": name,
        "billingMode": found["BillingModeSummary"]["BillingMode"],
        "hashKey": found["KeySchema"][0]["AttributeName"],
        "attributes": [
            {"name": one["AttributeName"], "type": one["AttributeType"]} for one in found["AttributeDefinitions"]
        ],
        "ttl": {"attributeName": ttl["AttributeName"], "enabled": ttl["TimeToLiveStatus"] == "ENABLED"},
        "tags": tags(listed),
    }
    return Found(own, {"arn": found["TableArn"]})


def function(client: Client, name: str, _: Properties) -> Found:
    """A function without its code, which the plugin does not read back either."""
    answer = client.get_function(FunctionName=name)
    found = answer["Configuration"]
    own = _only(camel(found), "role", "runtime", "architectures", "handler", "timeout", "memorySize")
    variables = found["Environment"]["Variables"]  # named as the user has them
    more = {"environment": {"variables": variables}, "tags": answer.get("Tags", {})}
    return Found({**own, **more, "name": name}, {"arn": found["FunctionArn"]})


def function_url(client: Client, name: str, _: Properties) -> Found:
    """The address of a function."""
    found = client.get_function_url_config(FunctionName=name)
    own = {"functionName": name, "authorizationType": found["AuthType"]}
    return Found(own, {"functionUrl": found["FunctionUrl"]})


def invoke_config(client: Client, name: str, _: Properties) -> Found:
    """How often a function is called again that was not waited for."""
    found = camel(client.get_function_event_invoke_config(FunctionName=name))
    return Found({"functionName": name, **_only(found, "maximumRetryAttempts", "maximumEventAgeInSeconds")})


def permission(client: Client, _: str, known: Properties) -> Found:
    """Who may call a function: a statement of its policy."""
    policy = json.loads(client.get_policy(FunctionName=known["function"])["Policy"])
    name = known["statementId"]
    found = _one([one for one in policy["Statement"] if one["Sid"] == name])
    principal = found["Principal"]
    own = {
        "function": known["function"],
        "statementId": name,
        "action": found["Action"],
        "principal": principal["Service"] if isinstance(principal, dict) else principal,
    }
    if source := found.get("Condition", {}).get("ArnLike", {}).get("AWS:SourceArn"):
        own["sourceArn"] = source
    return Found(own, id=name)


def event_rule(client: Client, name: str, _: Properties) -> Found:
    """A rule that calls by the clock."""
    found = client.describe_rule(Name=name)
    listed = client.list_tags_for_resource(ResourceARN=found["Arn"])["Tags"]
    own = {"name": name, "scheduleExpression": found["ScheduleExpression"], "tags": tags(listed)}
    return Found(own, {"arn": found["Arn"]})


def event_target(client: Client, _: str, known: Properties) -> Found:
    """What a rule calls."""
    targets = client.list_targets_by_rule(Rule=known["rule"])["Targets"]
    found = _one([one for one in targets if one["Id"] == known["targetId"]])
    retry = {"retryPolicy": camel(found["RetryPolicy"])} if "RetryPolicy" in found else {}
    return Found({**_only(known, "rule", "targetId"), "arn": found["Arn"], **retry}, id=known["targetId"])


def alarm(client: Client, name: str, _: Properties) -> Found:
    """An alarm of a metric."""
    found = _one(client.describe_alarms(AlarmNames=[name])["MetricAlarms"])
    arn = found["AlarmArn"]
    own = _only(
        camel(found),
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
    dimensions = {one["Name"]: one["Value"] for one in found["Dimensions"]}
    listed = client.list_tags_for_resource(ResourceARN=arn)["Tags"]
    return Found({**own, "name": name, "dimensions": dimensions, "tags": tags(listed)}, {"arn": arn})


def repository(client: Client, name: str, _: Properties) -> Found:
    """A repository of images."""
    found = _one(client.describe_repositories(repositoryNames=[name])["repositories"])
    own = _only(found, "imageTagMutability", "imageTagMutabilityExclusionFilters", "imageScanningConfiguration")
    encryption = {"encryptionConfigurations": [found["encryptionConfiguration"]]}
    more = {"arn": found["repositoryArn"], "registryId": found["registryId"], "repositoryUrl": found["repositoryUri"]}
    return Found({**own, **encryption, "name": name}, more)


def lifecycle_policy(client: Client, name: str, _: Properties) -> Found:
    """What a repository keeps."""
    found = client.get_lifecycle_policy(repositoryName=name)
    own = {"repository": name, "policy": found["lifecyclePolicyText"]}
    return Found(own, {"registryId": found["registryId"]})


def remembered(_client: Client, _name: str, known: Properties) -> Found:
    """What moto has no API for is as it was, and nothing that there was before."""
    if not known:
        raise Gone
    return Found(known)
