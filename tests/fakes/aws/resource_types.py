"""What the stand-in for Pulumi's AWS plugin knows beside ECR: the types and functions of runners on EC2.

Each turns the plugin's inputs into the API's arguments, which botocore checks against its own models, and the API's answer
into the outputs that Slipway uses. Where moto has no such action, the request is checked and answered here, and kept
nowhere: :func:`tests.fakes.aws.calls.unanswered`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.fakes.aws import resource_reads as reads
from tests.fakes.aws.calls import unanswered
from toolchain.provider.provider_base import Properties

Client = Any
"""A boto3 client; its methods exist only while it runs."""


@dataclass(frozen=True)
class Kind:
    """How one type of resource is made, changed, ended and read back.

    ``replaces`` are the inputs that AWS cannot change, ``moves`` the outputs that are others after any change, and
    ``shape`` of which inputs the id is made by which the plugin imports it, where that is not its name or AWS's own id.
    A replaced resource is deleted first if it has a name of its own, and otherwise if it ``ends_first``.
    """

    create: Callable[[Client, Properties], tuple[str, Properties]]
    update: Callable[[Client, str, Properties, Properties], Properties]
    delete: Callable[[Client, str, Properties], None]
    read: reads.Read
    replaces: frozenset[str]
    service: str = "ecr"
    moves: frozenset[str] = frozenset()
    shape: str = ""
    ends_first: bool = False


_BOOLEANS = {"encrypted", "deleteOnTermination", "ebsOptimized", "associatePublicIpAddress"}
"""Inputs that the plugin takes as text, since they may also be left out."""

_ACRONYMS = {"securityGroups": "Groups"}


def pascal(value: Any) -> Any:
    """Turn the plugin's names into those of the EC2 and Auto Scaling APIs, tags' maps into their lists."""
    if isinstance(value, list):
        return [pascal(item) for item in value]
    if not isinstance(value, dict):
        return value
    arguments: dict[str, Any] = {}
    for key, item in value.items():
        name = _ACRONYMS.get(key, key[:1].upper() + key[1:])
        if key == "tags" and isinstance(item, dict):
            arguments[name] = tags(item)
        else:
            arguments[name] = item in {"true", True} if key in _BOOLEANS else _number(pascal(item))
    return arguments


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def tags(given: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as most APIs list them, by name: on the wire they are in any order."""
    return [{"Key": key, "Value": given[key]} for key in sorted(given)]


def without(inputs: Mapping[str, Any], *names: str) -> Properties:
    """Return the inputs without some, and without what Pulumi itself adds."""
    return {key: value for key, value in inputs.items() if key not in {*names, "__defaults", "region"}}


def _specified(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags(inputs["tags"])}]} if "tags" in inputs else {}


def _template_data(inputs: Properties) -> dict[str, Any]:
    other = ("name", "tags", "updateDefaultVersion", "latestVersion", "arn")
    data: dict[str, Any] = pascal(without(inputs, *other))
    return data


def _create_template(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_launch_template(
        LaunchTemplateName=inputs["name"],
        LaunchTemplateData=_template_data(inputs),
        **_specified("launch-template", inputs),
    )["LaunchTemplate"]
    return response["LaunchTemplateId"], {**inputs, "latestVersion": response["LatestVersionNumber"], "arn": "unused"}


def _update_template(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    if _template_data(olds) == _template_data(news):
        return {**olds, **news}
    version = client.create_launch_template_version(LaunchTemplateId=name, LaunchTemplateData=_template_data(news))
    number = version["LaunchTemplateVersion"]["VersionNumber"]
    if news["updateDefaultVersion"]:
        client.modify_launch_template(LaunchTemplateId=name, DefaultVersion=str(number))
    return {**olds, **news, "latestVersion": number}


def _group_arguments(inputs: Properties) -> dict[str, Any]:
    one, several = inputs.get("launchTemplate"), inputs.get("mixedInstancesPolicy")
    assert (one is None) != (several is None), "one of `launch_template`, `mixed_instances_policy` must be specified"
    template = one and {"LaunchTemplate": {"LaunchTemplateId": one["id"], "Version": one["version"]}}
    return {
        "AutoScalingGroupName": inputs["name"],
        "MinSize": int(inputs["minSize"]),
        "MaxSize": int(inputs["maxSize"]),
        "VPCZoneIdentifier": ",".join(inputs["vpcZoneIdentifiers"]),
        "NewInstancesProtectedFromScaleIn": inputs["protectFromScaleIn"],
        "CapacityRebalance": inputs.get("capacityRebalance", False),
        "MaxInstanceLifetime": int(inputs["maxInstanceLifetime"]),
        "HealthCheckType": inputs["healthCheckType"],
        "HealthCheckGracePeriod": int(inputs["healthCheckGracePeriod"]),
        **(template or {"MixedInstancesPolicy": pascal(several)}),
    }


def _create_group(client: Client, inputs: Properties) -> tuple[str, Properties]:
    client.create_auto_scaling_group(**_group_arguments(inputs), Tags=_group_tags(inputs))
    client.suspend_processes(AutoScalingGroupName=inputs["name"], ScalingProcesses=inputs["suspendedProcesses"])
    response = client.describe_auto_scaling_groups(AutoScalingGroupNames=[inputs["name"]])["AutoScalingGroups"][0]
    return inputs["name"], {**inputs, "arn": response["AutoScalingGroupARN"]}


def _group_tags(inputs: Properties) -> list[dict[str, Any]]:
    whose = {"ResourceId": inputs["name"], "ResourceType": "auto-scaling-group"}
    return [{**pascal(tag), **whose} for tag in inputs["tags"]]


def _update_group(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    client.update_auto_scaling_group(**_group_arguments(news))
    for method, processes in (
        (client.resume_processes, set(olds["suspendedProcesses"]) - set(news["suspendedProcesses"])),
        (client.suspend_processes, set(news["suspendedProcesses"]) - set(olds["suspendedProcesses"])),
    ):
        if processes:
            method(AutoScalingGroupName=name, ScalingProcesses=sorted(processes))
    kept = [tag["key"] for tag in news["tags"]]
    if gone := [tag for tag in _group_tags(olds) if tag["Key"] not in kept]:
        client.delete_tags(Tags=gone)
    client.create_or_update_tags(Tags=_group_tags(news))
    return {**olds, **news}


def _put_hook(client: Client, inputs: Properties) -> tuple[str, Properties]:
    arguments = pascal(without(inputs, "name", "autoscalingGroupName"))
    client.put_lifecycle_hook(
        LifecycleHookName=inputs["name"], AutoScalingGroupName=inputs["autoscalingGroupName"], **arguments
    )
    return inputs["name"], inputs


def _create_security_group(client: Client, inputs: Properties) -> tuple[str, Properties]:
    """As the plugin does, take away the rule that lets everything out: only what is declared goes."""
    group = client.create_security_group(
        GroupName=inputs["name"],
        Description=inputs["description"],
        VpcId=inputs["vpcId"],
        **_specified("security-group", inputs),
    )["GroupId"]
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    client.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
    return group, inputs


def _delete_security_group(client: Client, name: str, _: Properties) -> None:
    """As the plugin does, look for interfaces that are left in it; as AWS does, refuse a group that machines are in."""
    client.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [name]}])
    for reservation in client.describe_instances()["Reservations"]:
        for machine in reservation["Instances"]:
            groups = [group["GroupId"] for group in machine["SecurityGroups"]]
            if name in groups and machine["State"]["Name"] != "terminated":
                raise ValueError(f"DependencyViolation: resource {name} has a dependent object")
    client.delete_security_group(GroupId=name)


def _rule(direction: str) -> Kind:
    def create(client: Client, inputs: Properties) -> tuple[str, Properties]:
        permission: dict[str, Any] = {"IpProtocol": inputs["ipProtocol"]}
        for port in ("fromPort", "toPort"):
            if port in inputs:
                permission[port[0].upper() + port[1:]] = int(inputs[port])
        if "cidrIpv4" in inputs:
            permission["IpRanges"] = [{"CidrIp": inputs["cidrIpv4"]}]
        else:
            permission["UserIdGroupPairs"] = [{"GroupId": inputs["referencedSecurityGroupId"]}]
        authorize = getattr(client, f"authorize_security_group_{direction}")
        response = authorize(GroupId=inputs["securityGroupId"], IpPermissions=[permission])
        return response["SecurityGroupRules"][0]["SecurityGroupRuleId"], inputs

    def delete(client: Client, name: str, olds: Properties) -> None:
        revoke = getattr(client, f"revoke_security_group_{direction}")
        revoke(GroupId=olds["securityGroupId"], SecurityGroupRuleIds=[name])

    replaces = frozenset({"securityGroupId", "referencedSecurityGroupId", "cidrIpv4"})
    return Kind(create, _kept, delete, reads.rule, replaces, "ec2")


def _kept(_client: Client, _name: str, olds: Properties, news: Properties) -> Properties:
    """Change nothing but tags, which :func:`retag` does."""
    changed = sorted(key for key, value in without(news, "tags").items() if olds.get(key) != value)
    if changed:
        raise ValueError(f"the stand-in cannot change {', '.join(changed)}")
    return {**olds, **news}


@dataclass(frozen=True)
class _Tagging:
    """What a service calls the methods that add tags and take them away, and their arguments.

    Tags are a list of keys and values, or, if not ``listed``, an object of them.
    """

    of: str
    given: str = "Tags"
    gone: str = "TagKeys"
    add: str = "tag_resource"
    remove: str = "untag_resource"
    listed: bool = True


_TAGGING: Final = {
    "iam": _Tagging("RoleName", add="tag_role", remove="untag_role"),
    "logs": _Tagging("resourceArn", "tags", "tagKeys", listed=False),
    "dynamodb": _Tagging("ResourceArn"),
    "lambda": _Tagging("Resource", listed=False),
    "cloudwatch": _Tagging("ResourceARN"),
    "events": _Tagging("ResourceARN"),
}
"""How each service but EC2 is asked."""


def retag(client: Client, service: str, of: str, olds: Mapping[str, str], news: Mapping[str, str]) -> None:
    """Make a resource's tags those that are given; ``of`` is what :func:`taggable` returns."""
    if service == "ec2":
        client.create_tags(Resources=[of], Tags=tags(news))
    else:
        how = _TAGGING[service]
        getattr(client, how.add)(**{how.of: of, how.given: tags(news) if how.listed else news})
    if gone := sorted(olds.keys() - news.keys()):
        untag(client, service, of, gone)


def untag(client: Client, service: str, of: str, keys: list[str]) -> None:
    """Take tags away; ``of`` is as in :func:`retag`."""
    if service == "ec2":
        client.delete_tags(Resources=[of], Tags=[{"Key": key} for key in keys])
    else:
        how = _TAGGING[service]
        getattr(client, how.remove)(**{how.of: of, how.gone: keys})


def taggable(kind: Kind, name: str, outputs: Mapping[str, str]) -> str:
    """Return what :func:`retag` asks for: a resource's id in EC2 and IAM, its ARN elsewhere."""
    return name if kind.service in {"ec2", "iam"} else outputs["arn"]


def _create_placement_group(client: Client, inputs: Properties) -> tuple[str, Properties]:
    unanswered(
        client,
        "create_placement_group",
        GroupName=inputs["name"],
        Strategy=inputs["strategy"],
        **_specified("placement-group", inputs),
    )
    return inputs["name"], inputs


def _create_endpoint(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_vpc_endpoint(
        **pascal(without(inputs, "tags", "privateDnsEnabled")),
        PrivateDnsEnabled=inputs.get("privateDnsEnabled", False),
        **_specified("vpc-endpoint", inputs),
    )
    return response["VpcEndpoint"]["VpcEndpointId"], inputs


def _update_endpoint(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    before, after = set(olds["subnetIds"]), set(news["subnetIds"])
    client.modify_vpc_endpoint(
        VpcEndpointId=name, AddSubnetIds=sorted(after - before), RemoveSubnetIds=sorted(before - after)
    )
    return _kept(client, name, {**olds, "subnetIds": news["subnetIds"]}, news)


def _create_role(client: Client, inputs: Properties) -> tuple[str, Properties]:
    bounded = {"PermissionsBoundary": boundary} if (boundary := inputs.get("permissionsBoundary")) else {}
    response = client.create_role(
        RoleName=inputs["name"],
        AssumeRolePolicyDocument=inputs["assumeRolePolicy"],
        Tags=tags(inputs["tags"]),
        **bounded,
    )["Role"]
    return inputs["name"], {**inputs, "arn": response["Arn"], "uniqueId": response["RoleId"]}


def _update_role(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    if olds["assumeRolePolicy"] != news["assumeRolePolicy"]:
        client.update_assume_role_policy(RoleName=name, PolicyDocument=news["assumeRolePolicy"])
    if boundary := news.get("permissionsBoundary"):
        client.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=boundary)
    elif olds.get("permissionsBoundary"):
        client.delete_role_permissions_boundary(RoleName=name)
    return {**olds, **news}


def _put_role_policy(client: Client, inputs: Properties) -> tuple[str, Properties]:
    client.put_role_policy(RoleName=inputs["role"], PolicyName=inputs["name"], PolicyDocument=inputs["policy"])
    return f"{inputs['role']}:{inputs['name']}", inputs


def _create_profile(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_instance_profile(InstanceProfileName=inputs["name"])["InstanceProfile"]
    client.add_role_to_instance_profile(InstanceProfileName=inputs["name"], RoleName=inputs["role"])
    return inputs["name"], {**inputs, "arn": response["Arn"]}


def _delete_profile(client: Client, name: str, olds: Properties) -> None:
    client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=olds["role"])
    client.delete_instance_profile(InstanceProfileName=name)


def _create_log_group(client: Client, inputs: Properties) -> tuple[str, Properties]:
    client.create_log_group(logGroupName=inputs["name"], tags=inputs["tags"])
    arn = client.describe_log_groups(logGroupNamePrefix=inputs["name"])["logGroups"][0]["arn"].removesuffix(":*")
    return inputs["name"], _keep_logs(client, inputs["name"], {"arn": arn}, inputs)


def _keep_logs(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    client.put_retention_policy(logGroupName=name, retentionInDays=int(news["retentionInDays"]))
    return {**olds, **news}


def _create_table(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_table(
        TableName=inputs["name"],
        BillingMode=inputs["billingMode"],
        KeySchema=[{"AttributeName": inputs["hashKey"], "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": a["name"], "AttributeType": a["type"]} for a in inputs["attributes"]],
        Tags=tags(inputs["tags"]),
    )["TableDescription"]
    ttl = {"Enabled": inputs["ttl"]["enabled"], "AttributeName": inputs["ttl"]["attributeName"]}
    client.update_time_to_live(TableName=inputs["name"], TimeToLiveSpecification=ttl)
    return inputs["name"], {**inputs, "arn": response["TableArn"]}


def _zip(code: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, asset in sorted(code["assets"].items()):
            archive.writestr(zipfile.ZipInfo(name), asset["text"])
    return content.getvalue()


def _configuration(inputs: Properties) -> dict[str, Any]:
    logging = inputs["loggingConfig"]
    return {
        "FunctionName": inputs["name"],
        "Role": inputs["role"],
        "Runtime": inputs["runtime"],
        "Handler": inputs["handler"],
        "Timeout": int(inputs["timeout"]),
        "MemorySize": int(inputs["memorySize"]),
        "Environment": {"Variables": inputs["environment"]["variables"]},
        "LoggingConfig": {"LogFormat": logging["logFormat"], "LogGroup": logging["logGroup"]},
    }


def _create_function(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_function(
        **_configuration(inputs),
        Architectures=inputs["architectures"],
        Code={"ZipFile": _zip(inputs["code"])},
        Tags=inputs["tags"],
    )
    _reserve(client, inputs)
    return inputs["name"], {**inputs, "arn": response["FunctionArn"]}


def _update_function(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    client.update_function_code(FunctionName=name, ZipFile=_zip(news["code"]), Architectures=news["architectures"])
    client.update_function_configuration(**_configuration(news))
    _reserve(client, news)
    return {**olds, **news}


def _reserve(client: Client, inputs: Properties) -> None:
    count = int(inputs["reservedConcurrentExecutions"])
    client.put_function_concurrency(FunctionName=inputs["name"], ReservedConcurrentExecutions=count)


def _create_function_url(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_function_url_config(
        FunctionName=inputs["functionName"], AuthType=inputs["authorizationType"]
    )
    return inputs["functionName"], {**inputs, "functionUrl": response["FunctionUrl"]}


def _put_invoke_config(client: Client, inputs: Properties) -> tuple[str, Properties]:
    arguments = {key[0].upper() + key[1:]: _number(value) for key, value in without(inputs).items()}
    client.put_function_event_invoke_config(**arguments)
    return inputs["functionName"], inputs


def _update_invoke_config(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    """Put another; moto would keep the first."""
    client.delete_function_event_invoke_config(FunctionName=name)
    return {**olds, **_put_invoke_config(client, news)[1]}


def _add_permission(client: Client, inputs: Properties) -> tuple[str, Properties]:
    names = {"function": "FunctionName", "invokedViaFunctionUrl": "InvokedViaFunctionUrl"}
    client.add_permission(**{names.get(key, key[0].upper() + key[1:]): value for key, value in without(inputs).items()})
    return inputs["statementId"], inputs


def _put_rule(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.put_rule(
        Name=inputs["name"], ScheduleExpression=inputs["scheduleExpression"], Tags=tags(inputs["tags"])
    )
    return inputs["name"], {**inputs, "arn": response["RuleArn"]}


def _put_target(client: Client, inputs: Properties) -> tuple[str, Properties]:
    target = {"Id": inputs["targetId"], "Arn": inputs["arn"], "RetryPolicy": pascal(inputs["retryPolicy"])}
    client.put_targets(Rule=inputs["rule"], Targets=[target])
    return inputs["targetId"], inputs


def _put_alarm(client: Client, inputs: Properties) -> tuple[str, Properties]:
    arguments = {
        {"name": "AlarmName", "alarmActions": "AlarmActions", "okActions": "OKActions"}.get(
            key, key[0].upper() + key[1:]
        ): _number(value)
        for key, value in without(inputs, "tags", "dimensions").items()
    }
    dimensions = [{"Name": name, "Value": value} for name, value in inputs["dimensions"].items()]
    client.put_metric_alarm(**arguments, Dimensions=dimensions, Tags=tags(inputs["tags"]))
    response = client.describe_alarms(AlarmNames=[inputs["name"]])["MetricAlarms"][0]
    return inputs["name"], {**inputs, "arn": response["AlarmArn"]}


def _create_volume(client: Client, inputs: Properties) -> tuple[str, Properties]:
    response = client.create_volume(
        AvailabilityZone=inputs["availabilityZone"],
        Size=int(inputs["size"]),
        VolumeType=inputs["type"],
        Iops=int(inputs["iops"]),
        Throughput=int(inputs["throughput"]),
        Encrypted=inputs["encrypted"],
        **_specified("volume", inputs),
    )
    return response["VolumeId"], inputs


def _grow_volume(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    client.modify_volume(VolumeId=name, Size=int(news["size"]))
    return {**olds, **news}


def _create_instance(client: Client, inputs: Properties) -> tuple[str, Properties]:
    """Start it; the root volume is as large as its image's, which moto wants to be told."""
    image = client.describe_images(ImageIds=[inputs["ami"]])["Images"][0]
    size = {"VolumeSize": image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]}
    assert "tags" not in inputs["rootBlockDevice"]  # the plugin would set these later, by another call
    root = {**size, **pascal(inputs["rootBlockDevice"])}
    specified = [
        one
        for kind, key in (("instance", "tags"), ("volume", "volumeTags"))
        for one in _specified(kind, {"tags": inputs[key]})["TagSpecifications"]
    ]
    metadata = {
        "httpEndpoint": "HttpEndpoint",
        "httpTokens": "HttpTokens",
        "httpPutResponseHopLimit": "HttpPutResponseHopLimit",
        "instanceMetadataTags": "InstanceMetadataTags",
    }
    response = client.run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=inputs["ami"],
        InstanceType=inputs["instanceType"],
        SubnetId=inputs["subnetId"],
        SecurityGroupIds=inputs["vpcSecurityGroupIds"],
        IamInstanceProfile={"Name": inputs["iamInstanceProfile"]},
        InstanceInitiatedShutdownBehavior=inputs["instanceInitiatedShutdownBehavior"],
        EbsOptimized=inputs["ebsOptimized"],
        MetadataOptions={metadata[key]: _number(value) for key, value in inputs["metadataOptions"].items()},
        BlockDeviceMappings=[{"DeviceName": image["RootDeviceName"], "Ebs": root}],
        UserData=inputs["userData"],
        TagSpecifications=specified,
    )["Instances"][0]
    return response["InstanceId"], inputs


def _update_instance(client: Client, name: str, olds: Properties, news: Properties) -> Properties:
    """As the plugin does, stop the machine for another type, and start it, whether it ran or not."""
    if olds["instanceType"] != news["instanceType"]:
        client.stop_instances(InstanceIds=[name])
        client.modify_instance_attribute(InstanceId=name, InstanceType={"Value": news["instanceType"]})
        client.start_instances(InstanceIds=[name])
    return _kept(client, name, {**olds, "instanceType": news["instanceType"]}, news)


def _attach_volume(client: Client, inputs: Properties) -> tuple[str, Properties]:
    """As AWS does, refuse a volume that is on a machine."""
    (volume,) = client.describe_volumes(VolumeIds=[inputs["volumeId"]])["Volumes"]
    if volume["Attachments"]:
        raise ValueError(f"VolumeInUse: {inputs['volumeId']} is attached")
    client.attach_volume(Device=inputs["deviceName"], InstanceId=inputs["instanceId"], VolumeId=inputs["volumeId"])
    return f"vai-{inputs['volumeId']}", inputs


def _detach_volume(client: Client, _: str, olds: Properties) -> None:
    if olds["stopInstanceBeforeDetaching"]:
        client.stop_instances(InstanceIds=[olds["instanceId"]])
    client.detach_volume(InstanceId=olds["instanceId"], VolumeId=olds["volumeId"])


def _again(create: Callable[[Client, Properties], tuple[str, Properties]]) -> Callable[..., Properties]:
    """Return an update that is the creation once more: what the API calls ``Put``."""
    return lambda client, _, olds, news: {**olds, **create(client, news)[1]}


RUNNERS: Final = {
    "aws:ec2/launchTemplate:LaunchTemplate": Kind(
        _create_template,
        _update_template,
        lambda client, name, _: client.delete_launch_template(LaunchTemplateId=name),
        reads.template,
        frozenset({"name"}),
        "ec2",
        frozenset({"latestVersion"}),
    ),
    "aws:ec2/placementGroup:PlacementGroup": Kind(
        _create_placement_group,
        _kept,
        lambda client, name, _: unanswered(client, "delete_placement_group", GroupName=name),
        reads.remembered,
        frozenset({"name", "strategy"}),
        "ec2",
    ),
    "aws:ec2/securityGroup:SecurityGroup": Kind(
        _create_security_group,
        _kept,
        _delete_security_group,
        reads.security_group,
        frozenset({"name", "description", "vpcId"}),
        "ec2",
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("egress"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Kind(
        _create_endpoint,
        _update_endpoint,
        lambda client, name, _: client.delete_vpc_endpoints(VpcEndpointIds=[name]),
        reads.endpoint,
        frozenset({"serviceName", "vpcId"}),
        "ec2",
    ),
    "aws:ebs/volume:Volume": Kind(
        _create_volume,
        _grow_volume,
        lambda client, name, _: client.delete_volume(VolumeId=name),
        reads.volume,
        frozenset({"availabilityZone", "encrypted"}),
        "ec2",
    ),
    "aws:ec2/instance:Instance": Kind(
        _create_instance,
        _update_instance,
        lambda client, name, _: client.terminate_instances(InstanceIds=[name]),
        reads.instance,
        frozenset({"ami", "subnetId", "userData"}),  # the last as userDataReplaceOnChange says
        "ec2",
    ),
    "aws:ec2/volumeAttachment:VolumeAttachment": Kind(
        _attach_volume,
        _kept,
        _detach_volume,
        reads.attachment,
        frozenset({"deviceName", "instanceId", "volumeId"}),
        "ec2",
        shape="deviceName:volumeId:instanceId",
    ),
    "aws:autoscaling/group:Group": Kind(
        _create_group,
        _update_group,
        lambda client, name, olds: client.delete_auto_scaling_group(
            AutoScalingGroupName=name, ForceDelete=olds["forceDelete"]
        ),
        reads.group,
        frozenset({"name"}),
        "autoscaling",
    ),
    "aws:autoscaling/lifecycleHook:LifecycleHook": Kind(
        _put_hook,
        _again(_put_hook),
        lambda client, name, olds: client.delete_lifecycle_hook(
            LifecycleHookName=name, AutoScalingGroupName=olds["autoscalingGroupName"]
        ),
        reads.hook,
        frozenset({"name", "autoscalingGroupName"}),
        "autoscaling",
        shape="autoscalingGroupName/name",
    ),
    "aws:iam/role:Role": Kind(
        _create_role,
        _update_role,
        lambda client, name, _: client.delete_role(RoleName=name),
        reads.role,
        frozenset({"name"}),
        "iam",
    ),
    "aws:iam/rolePolicy:RolePolicy": Kind(
        _put_role_policy,
        _again(_put_role_policy),
        lambda client, _, olds: client.delete_role_policy(RoleName=olds["role"], PolicyName=olds["name"]),
        reads.role_policy,
        frozenset({"name", "role"}),
        "iam",
        shape="role:name",
    ),
    "aws:iam/instanceProfile:InstanceProfile": Kind(
        _create_profile, _kept, _delete_profile, reads.profile, frozenset({"name"}), "iam"
    ),
    "aws:cloudwatch/logGroup:LogGroup": Kind(
        _create_log_group,
        _keep_logs,
        lambda client, name, _: client.delete_log_group(logGroupName=name),
        reads.log_group,
        frozenset({"name"}),
        "logs",
    ),
    "aws:dynamodb/table:Table": Kind(
        _create_table,
        _kept,
        lambda client, name, _: client.delete_table(TableName=name),
        reads.table,
        frozenset({"name", "hashKey"}),
        "dynamodb",
    ),
    "aws:lambda/function:Function": Kind(
        _create_function,
        _update_function,
        lambda client, name, _: client.delete_function(FunctionName=name),
        reads.function,
        frozenset({"name"}),
        "lambda",
    ),
    "aws:lambda/functionUrl:FunctionUrl": Kind(
        _create_function_url,
        _kept,
        lambda client, name, _: client.delete_function_url_config(FunctionName=name),
        reads.function_url,
        frozenset({"functionName"}),
        "lambda",
    ),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": Kind(
        _put_invoke_config,
        _update_invoke_config,
        lambda client, name, _: client.delete_function_event_invoke_config(FunctionName=name),
        reads.invoke_config,
        frozenset({"functionName"}),
        "lambda",
    ),
    "aws:lambda/permission:Permission": Kind(
        _add_permission,
        _kept,
        lambda client, name, olds: client.remove_permission(FunctionName=olds["function"], StatementId=name),
        reads.permission,
        frozenset(
            {
                "function",
                "action",
                "principal",
                "statementId",
                "sourceArn",
                "functionUrlAuthType",
                "invokedViaFunctionUrl",
            }
        ),
        "lambda",
        shape="function/statementId",
    ),
    "aws:cloudwatch/eventRule:EventRule": Kind(
        _put_rule,
        _again(_put_rule),
        lambda client, name, _: client.delete_rule(Name=name),
        reads.event_rule,
        frozenset({"name"}),
        "events",
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Kind(
        _put_target,
        _again(_put_target),
        lambda client, name, olds: client.remove_targets(Rule=olds["rule"], Ids=[name]),
        reads.event_target,
        frozenset({"rule", "targetId"}),
        "events",
        shape="rule/targetId",
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": Kind(
        _put_alarm,
        _again(_put_alarm),
        lambda client, name, _: client.delete_alarms(AlarmNames=[name]),
        reads.alarm,
        frozenset({"name"}),
        "cloudwatch",
    ),
}


def _instance_type(session: Any, args: Mapping[str, Any]) -> Properties:
    description = session.client("ec2").describe_instance_types(InstanceTypes=[args["instanceType"]])["InstanceTypes"][
        0
    ]
    network = description["NetworkInfo"]
    return {
        "instanceType": args["instanceType"],
        "supportedArchitectures": description["ProcessorInfo"]["SupportedArchitectures"],
        "gpuses": [
            {"count": gpu["Count"], "manufacturer": gpu["Manufacturer"], "name": gpu["Name"]}
            for gpu in description.get("GpuInfo", {}).get("Gpus", [])
        ],
        "efaSupported": network["EfaSupported"],
        "efaMaximumInterfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "maximumNetworkCards": network["MaximumNetworkCards"],
        "instanceDisks": [
            {"count": disk["Count"], "size": disk["SizeInGB"]}
            for disk in description.get("InstanceStorageInfo", {}).get("Disks", [])
        ],
        "supportedPlacementStrategies": description["PlacementGroupInfo"]["SupportedStrategies"],
        "supportedUsagesClasses": description["SupportedUsageClasses"],
    }


def _parameter(session: Any, args: Mapping[str, Any]) -> Properties:
    return {"value": session.client("ssm").get_parameter(Name=args["name"])["Parameter"]["Value"]}


def _filters(args: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"Name": f["name"], "Values": f["values"]} for f in args.get("filters", [])]


def _image(session: Any, args: Mapping[str, Any]) -> Properties:
    images = session.client("ec2").describe_images(Filters=_filters(args))["Images"]
    if not images:
        raise ValueError("Your query returned no results. Please change your search criteria and try again.")
    image = images[0]
    return {
        "id": image["ImageId"],
        "imageId": image["ImageId"],
        "architecture": image["Architecture"],
        "rootDeviceName": image["RootDeviceName"],
        "blockDeviceMappings": [
            {
                "deviceName": one["DeviceName"],
                # Text throughout, as the plugin has it.
                "ebs": {"volume_size": str(one["Ebs"]["VolumeSize"]), "snapshot_id": one["Ebs"].get("SnapshotId", "")},
            }
            for one in image["BlockDeviceMappings"]
            if "Ebs" in one
        ],
    }


def _vpc(session: Any, _: Mapping[str, Any]) -> Properties:
    filters = [{"Name": "is-default", "Values": ["true"]}]
    vpcs = session.client("ec2").describe_vpcs(Filters=filters)["Vpcs"]
    if not vpcs:
        raise ValueError("no matching EC2 VPC found")
    return {"id": vpcs[0]["VpcId"]}


def _subnets(session: Any, args: Mapping[str, Any]) -> Properties:
    subnets = session.client("ec2").describe_subnets(Filters=_filters(args))["Subnets"]
    return {"id": "unused", "ids": [subnet["SubnetId"] for subnet in subnets]}


def _subnet(session: Any, args: Mapping[str, Any]) -> Properties:
    description = session.client("ec2").describe_subnets(SubnetIds=[args["id"]])["Subnets"][0]
    return {
        "id": description["SubnetId"],
        "vpcId": description["VpcId"],
        "availabilityZone": description["AvailabilityZone"],
        "cidrBlock": description["CidrBlock"],
        "mapPublicIpOnLaunch": description["MapPublicIpOnLaunch"],
    }


def _spot_price(session: Any, args: Mapping[str, Any]) -> Properties:
    history = session.client("ec2").describe_spot_price_history(
        InstanceTypes=[args["instanceType"]], AvailabilityZone=args["availabilityZone"]
    )
    return {"spotPrice": history["SpotPriceHistory"][0]["SpotPrice"]}


def _offerings(session: Any, args: Mapping[str, Any]) -> Properties:
    offerings = session.client("ec2").describe_instance_type_offerings(
        LocationType=args["locationType"], Filters=_filters(args)
    )["InstanceTypeOfferings"]
    return {
        "locations": [one["Location"] for one in offerings],
        "instanceTypes": [one["InstanceType"] for one in offerings],
    }


def _product(session: Any, args: Mapping[str, Any]) -> Properties:
    """Moto has no prices: the request is checked, sent where there is such an API, and answered here."""
    client = session.client("pricing")
    assert session.region_name in {"us-east-1", "eu-central-1", "ap-south-1"}, session.region_name
    fields = {f["field"]: f["value"] for f in args["filters"]}
    assert {"instanceType", "regionCode", "operatingSystem", "tenancy", "capacitystatus"} <= fields.keys()
    if fields["instanceType"] != "g5.2xlarge":
        raise ValueError("your query did not return any results")
    price = {"unit": "Hrs", "pricePerUnit": {"USD": "1.3540000000"}}
    product = {"terms": {"OnDemand": {"X.Y": {"priceDimensions": {"X.Y.Z": price}}}}}
    answer = unanswered(
        client,
        "get_products",
        {"PriceList": [json.dumps(product)]},
        ServiceCode=args["serviceCode"],
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()],
    )
    return {"result": answer["PriceList"][0]}


FUNCTIONS: Final[dict[str, Callable[[Any, Mapping[str, Any]], Properties]]] = {
    "aws:ec2/getInstanceType:getInstanceType": _instance_type,
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": _offerings,
    "aws:ssm/getParameter:getParameter": _parameter,
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getSpotPrice:getSpotPrice": _spot_price,
    "aws:pricing/getProduct:getProduct": _product,
}
