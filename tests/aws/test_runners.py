"""Runners on EC2, by the real engine and AWS's API as moto has it: made, changed, replaced, ended, and read back."""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from components.runners.ec2 import iam_policies
from stacks.config.ec2 import AMI_PARAMETER
from stacks.config.stack_file import ROOT
from tests.aws.conftest import ACCOUNT, NO_SIGN, REGION
from tests.aws.faults import overlooked
from tests.aws.runners import BOUNDARY, HOOK_SECRET, NAME, RUNNERS, SECRET, TOPIC, WITH_WEBHOOK, RunnersProject, image
from tests.aws.test_ecr import UNCHANGED, operations
from tests.fakes.aws.resource_reads import unpacked
from tests.fakes.aws.resource_types import RUNNERS as KINDS
from tests.fakes.aws.resource_types import taggable, untag
from tests.provider.conftest import Registry
from tests.unit.runners import iam


@pytest.fixture
def project(tmp_path: Path, moto: str, registry: Registry) -> RunnersProject:
    """A fresh project on an AWS that has nothing but two machine images."""
    requests.post(f"{moto}/moto-api/reset", timeout=30).raise_for_status()
    for architecture in ("x86_64", "arm64"):
        image(moto, architecture)
    project = RunnersProject(tmp_path / "project", moto, registry)
    project.add_stack()
    return project


def subnet(project: RunnersProject, *, public: bool, cidr: str = "172.31.200.0/24", vpc: str = "") -> str:
    """Make a subnet, in the default VPC unless another is given."""
    ec2 = project.api("ec2")
    vpc = vpc or ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    subnet: str = ec2.create_subnet(VpcId=vpc, CidrBlock=cidr)["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": public})
    return subnet


def documented() -> set[str]:
    """Return the actions that docs/runners/ec2-permissions.md says are needed to deploy."""
    policy = json.loads((ROOT / "docs/runners/ec2-policy.json").read_text())
    return {action for statement in policy["Statement"] for action in statement["Action"]}


REFUSED = ["ec2:DescribeRouteTables", "ec2:GetInstanceUefiData"]
"""Actions that the policy leaves out: the plugin goes on without an answer, as docs/runners/ec2-permissions.md says."""


def test_policies_allow_what_the_plugin_itself_calls() -> None:
    """It reads more than the stand-in: a policy of what that calls alone would fail every deployment.

    plugin_calls.json has the calls of terraform-provider-aws 5.100.0, below Pulumi's bridge 3.137.0, for stacks with a
    listener, with a webhook, with EFA, with a builder, and with repositories of images. It read a VPC and an image with
    :data:`REFUSED` refused (internal/service/ec2/vpc_data_source.go at 01606926, ec2_ami_data_source.go at 0389eecf).
    """
    called = {
        f"{service}:{action}"
        for service, actions in json.loads(Path(__file__).with_name("plugin_calls.json").read_text()).items()
        for action in actions
    }
    registry = json.loads((ROOT / "docs/guides/ecr-policy.json").read_text())
    pushed = {action for statement in registry["Statement"] for action in statement["Action"]}
    assert sorted(called - documented() - pushed) == REFUSED


def rules(project: RunnersProject, group: str, *, egress: bool) -> list[tuple[str, str]]:
    """Return the rules of a security group: protocol, and where from or to, itself as ``self``."""
    answer = project.api("ec2").describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])
    return sorted(
        (rule["IpProtocol"], rule.get("CidrIpv4") or {group: "self"}[rule["ReferencedGroupInfo"]["GroupId"]])
        for rule in answer["SecurityGroupRules"]
        if rule["IsEgress"] is egress
    )


def test_runners_life_creates_updates_and_destroys(project: RunnersProject) -> None:
    preview = operations(project.preview().output)
    assert set(preview.values()) == {"+"}
    assert not project.api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    project.up()
    assert [project.group(kind)["DesiredCapacity"] for kind in ("spot", "on-demand")] == [0, 0]
    check_launch_template(project)
    check_scaling_groups(project)
    check_functions(project)
    check_roles(project)
    outputs = project.outputs()["runners"]
    assert outputs["groups"] == {"spot": f"{NAME}-spot", "on-demand": f"{NAME}-on-demand"}
    assert outputs["templateVersions"] == {"default": 1}
    assert outputs["role"] == f"arn:aws:iam::{ACCOUNT}:role/{NAME}-runner"
    assert (outputs["scaleSet"], outputs["labels"], outputs.get("webhook")) == (NAME, ["gpu"], None)
    assert outputs["spotDollarsPerHour"]["g5.2xlarge"] > 0
    assert outputs["onDemandDollarsPerHour"] == {"g5.2xlarge": 1.354}  # of the other type nothing is said
    assert UNCHANGED.search(project.up().output)
    check_drift_is_previewed_and_reverted(project)

    # Jobs have come: how many machines there are is the keeper's, and no change of the stack's.
    project.api("autoscaling").set_desired_capacity(AutoScalingGroupName=f"{NAME}-spot", DesiredCapacity=2)
    project.runners(root=300, maxRunners=9, idle=30)
    changes = operations(project.preview().output)
    assert changes == {
        f"LaunchTemplate {NAME}": "~",
        f"Group {NAME}-spot": "~",
        f"Group {NAME}-on-demand": "~",
        f"Function {NAME}-keeper": "~",
    }
    project.up()
    assert project.template()["VersionNumber"] == 2
    assert project.template()["DefaultVersion"]
    spot = project.group("spot")
    assert (spot["MaxSize"], spot["DesiredCapacity"], len(spot["Instances"])) == (9, 2, 2)
    used = spot["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"][0]["LaunchTemplateSpecification"]["Version"]
    assert used == "2"

    # Another VPC takes another security group; the groups only get other subnets.
    other = project.api("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    project.runners(subnets=[subnet(project, public=True, cidr="10.0.1.0/24", vpc=other)])
    changes = operations(project.preview().output)
    assert changes[f"SecurityGroup {NAME}-runner"] == "--"  # the last step: the former group ends
    assert changes[f"Group {NAME}-spot"] == "~"
    check_former_group_ends_last(project)

    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert not project.api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert not project.api("ec2").describe_launch_templates()["LaunchTemplates"]
    assert not project.api("iam").list_roles()["Roles"]
    assert not project.api("lambda").list_functions()["Functions"]
    assert not project.api("logs").describe_log_groups()["logGroups"]
    assert not project.api("dynamodb").list_tables()["TableNames"]
    assert sorted(project.calls() - documented()) == []


def test_sets_come_and_go(project: RunnersProject) -> None:
    """Each set has its own groups, template and table; all share the function, the roles and the security group."""
    sets = {
        "small": {"maxRunners": 2},
        "big": {"instanceTypes": ["p5.48xlarge"], "minGpus": 8, "spot": False, "root": 300},
    }
    project.runners(without=("labels",), sets=sets)
    project.up()
    groups = {
        each["AutoScalingGroupName"]: each["MaxSize"]
        for each in project.api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    }
    assert groups == {f"{NAME}.small-spot": 2, f"{NAME}.small-on-demand": 2, f"{NAME}.big-on-demand": 4}
    tables = project.api("dynamodb").list_tables()["TableNames"]
    assert sorted(tables) == [f"{NAME}-configs", f"{NAME}.big-jobs", f"{NAME}.small-jobs"]
    (function,) = project.api("lambda").list_functions()["Functions"]
    assert function["FunctionName"] == f"{NAME}-keeper"
    outputs = project.outputs()["runners"]
    assert sorted(outputs["scaleSets"]) == ["big", "small"]
    assert outputs["labels"] == {"small": ["small"], "big": ["big"]}
    assert outputs["groups"]["big/on-demand"] == f"{NAME}.big-on-demand"
    assert UNCHANGED.search(project.up().output)

    # One set more changes nothing of the others.
    project.runners(without=("labels",), sets={**sets, "third": {}})
    changes = operations(project.preview().output)
    assert {name: step for name, step in changes.items() if step != "+"} == {
        f"Function {NAME}-keeper": "~",
        f"RolePolicy {NAME}-keeper": "~",
        f"RolePolicy {NAME}-runner": "~",  # a preview does not know the table's ARN; the policy has none of it
    }
    assert all(".third" in name for name, step in changes.items() if step == "+")
    project.runners(without=("labels",), sets={"a": {"instanceTypes": ["g4ad.xlarge"]}})
    refused = project.preview(check=False)
    assert "slipway:runners.sets.a.instanceTypes: g4ad.xlarge has 0 NVIDIA GPUs; minGpus asks for 1" in refused.output
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert not project.api("dynamodb").list_tables()["TableNames"]


def test_webhook_gives_way_to_a_listener(project: RunnersProject) -> None:
    """What serves an old stack stays until its file says otherwise; each update, and each check, says what is next."""
    project.runners(**WITH_WEBHOOK)
    assert "no webhook is needed: have workflows name `labels` alone, set listener: true" in project.up().output
    check_functions(project)
    check_roles(project)
    assert project.outputs()["runners"]["labels"] == ["self-hosted", "linux", "x64", "gpu"]
    assert UNCHANGED.search(project.up().output)
    keeper = f"Function {NAME}-keeper"
    project.runners(listener=True, **WITH_WEBHOOK)
    assert operations(project.up().output) == {keeper: "~"}
    assert project.outputs()["runners"]["scaleSet"] == NAME
    assert project.outputs()["runners"]["webhook"]
    project.runners(listener=True)
    gone = {f"{what} {NAME}-webhook" for what in ("Function", "FunctionUrl", "LogGroup", "Role", "RolePolicy")}
    gone |= {f"Permission {NAME}-webhook-{what}" for what in ("address", "invoke")}
    assert operations(project.up().output) == {keeper: "~", **dict.fromkeys(gone, "-")}
    check_functions(project)
    check_roles(project)
    project.runners()  # the key says nothing more
    assert UNCHANGED.search(project.up().output)
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert sorted(project.calls() - documented()) == []


def check_former_group_ends_last(project: RunnersProject) -> None:
    """A machine is in the former group, as moto puts none of Auto Scaling there: the new one is used before that ends."""
    former = security_group(project)
    ec2 = project.api("ec2")
    (machine,) = ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=project.template()["LaunchTemplateData"]["ImageId"],
        SubnetId=project.group("spot")["VPCZoneIdentifier"].partition(",")[0],
        SecurityGroupIds=[former],
    )["Instances"]
    failed = project.up(check=False)
    assert f"DependencyViolation: resource {former} has a dependent object" in failed.output
    assert security_group(project) != former
    ec2.terminate_instances(InstanceIds=[machine["InstanceId"]])
    project.up()
    groups = project.api("ec2").describe_security_groups(Filters=[{"Name": "group-name", "Values": [f"{NAME}-runner"]}])
    assert [group["GroupId"] for group in groups["SecurityGroups"]] == [security_group(project)]


def security_group(project: RunnersProject) -> str:
    """Return the group in which the newest launch template puts machines."""
    group: str = project.template()["LaunchTemplateData"]["NetworkInterfaces"][0]["Groups"][0]
    return group


def check_drift_is_previewed_and_reverted(project: RunnersProject) -> None:
    """A refresh tells what is other than it was made, and nothing else; the next update makes it so again."""
    assert UNCHANGED.search(project.refresh().output)
    (out,) = project.resources("vpc/securityGroupEgressRule:SecurityGroupEgressRule")
    group, rule = out["inputs"]["securityGroupId"], out["id"]
    project.api("ec2").revoke_security_group_egress(GroupId=group, SecurityGroupRuleIds=[rule])
    spot, policy = f"{NAME}-spot", project.group("spot")["MixedInstancesPolicy"]
    del policy["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateName"]
    project.api("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=spot, MaxSize=1, MixedInstancesPolicy=policy
    )
    more = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    project.api("iam").put_role_policy(RoleName=f"{NAME}-runner", PolicyName="runner", PolicyDocument=more)
    anybody = json.dumps(iam_policies.trust("s3.amazonaws.com"))
    project.api("iam").update_assume_role_policy(RoleName=f"{NAME}-keeper", PolicyDocument=anybody)
    project.api("logs").put_retention_policy(logGroupName=f"/{NAME}/runner", retentionInDays=1)
    changed = [f"Group {spot}", f"RolePolicy {NAME}-runner", *untagged(project)]
    gone = f"SecurityGroupEgressRule {NAME}-runner-out"
    assert operations(project.refresh().output) == {**dict.fromkeys(changed, "~"), gone: "-"}
    assert project.group("spot")["MaxSize"] == 1
    assert operations(project.up().output) == {**dict.fromkeys(changed, "~"), gone: "+"}
    check_launch_template(project)
    check_scaling_groups(project)
    check_roles(project)
    (kept,) = project.api("logs").describe_log_groups(logGroupNamePrefix=f"/{NAME}/runner")["logGroups"]
    assert kept["retentionInDays"] == 30
    assert UNCHANGED.search(project.refresh().output)  # so all tags are there again


def untagged(project: RunnersProject) -> list[str]:
    """Take the tag of the stack from all of its resources that have tags of their own, and return them."""
    names = []
    resources = json.loads(project.exported())["deployment"]["resources"]
    for token, kind in KINDS.items():
        for one in resources:
            if one["type"] == token and isinstance(one["inputs"].get("tags"), dict):
                of = taggable(kind, one["id"], one["outputs"])
                untag(project.api(kind.service), kind.service, of, ["slipway"])
                names.append(f"{token.rpartition(':')[2]} {one['urn'].rpartition('::')[2]}")
    assert len({what.partition(" ")[0] for what in names}) == 8, names
    return names


ENVIRONMENT = rf"""REGION={REGION}
BOOT=20
IDLE=10
CONFIGS=slipway-t-configs
MACHINES=arn:aws:ec2:{REGION}:{ACCOUNT}:instance/
GPUS=1
EFA=0
RUNNER_URL=https://github\.com/actions/runner/releases/download/v(2\.\d+\.\d+)/actions-runner-linux-x64-\1\.tar\.gz
RUNNER_SHA256=[0-9a-f]{{64}}
"""
"""What a machine is told, whichever release of GitHub's runner it gets."""


def check_user_data(text: str) -> None:
    assert text.startswith("#cloud-config\n")
    document = yaml.safe_load(text)
    contents = {file["path"]: file["content"] for file in document.pop("write_files")}
    assert re.fullmatch(ENVIRONMENT, contents.pop("/etc/slipway/runner.env"))
    assert json.loads(contents.pop("/etc/slipway/logs.json"))["logs"]["logs_collected"]["files"]["collect_list"] == [
        {
            "file_path": f"/var/log/{log}.log",
            "log_group_name": "/slipway-t/runner",
            "log_stream_name": f"{{instance_id}}/{log}",
        }
        for log in ("slipway-setup", "slipway-runner", "cloud-init-output")
    ]
    for script in ("setup", "end"):
        there = ROOT / "components/runners/ec2/boot" / script
        assert contents.pop(f"/usr/local/sbin/slipway-{script}") == there.read_text()
    assert "NOPASSWD" in contents.pop("/etc/sudoers.d/slipway-runner")
    assert {path: "ExecStart" in unit for path, unit in contents.items()} == {
        "/etc/systemd/system/slipway-end.service": True,
        "/etc/systemd/system/slipway-end.timer": False,
        "/etc/systemd/system/slipway-runner.service": True,
    }
    assert document == {
        "runcmd": [
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "slipway-end.timer"],
            ["bash", "-c", "/usr/local/sbin/slipway-setup >>/var/log/slipway-setup.log 2>&1"],
        ]
    }


def check_launch_template(project: RunnersProject) -> None:
    """All of it, so that whatever is more, less or other is seen."""
    data = project.template()["LaunchTemplateData"]
    check_user_data(base64.b64decode(data.pop("UserData")).decode())
    newest = project.api("ssm").get_parameter(Name=AMI_PARAMETER.format(architecture="x86_64"))["Parameter"]
    (group,) = data["NetworkInterfaces"][0].pop("Groups")
    assert rules(project, group, egress=False) == []
    assert rules(project, group, egress=True) == [("-1", "0.0.0.0/0")]
    named = [{"Key": "Name", "Value": f"{NAME}-runner"}, {"Key": "slipway", "Value": NAME}]
    # Moto 5.2.5 has the template's own tags among those of what it launches, those of its first version alone
    # (ec2/responses/launch_templates.py). AWS's own provider reads them there (flattenResponseLaunchTemplateData,
    # internal/service/ec2/ec2_launch_template.go at c49358f8), and so updates each template of a stack on moto once.
    of_machines = [one for one in data.pop("TagSpecifications") if one["ResourceType"] != "launch-template"]
    assert of_machines == [
        {"ResourceType": kind, "Tags": named} for kind in ("instance", "volume", "network-interface")
    ]
    assert data == {
        "ImageId": newest["Value"],
        "InstanceType": "g6.2xlarge",
        "EbsOptimized": True,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "IamInstanceProfile": {"Arn": f"arn:aws:iam::{ACCOUNT}:instance-profile/{NAME}-runner"},
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {
                    "VolumeSize": 200,
                    "VolumeType": "gp3",
                    "Iops": 6000,
                    "Throughput": 500,
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "NetworkInterfaces": [
            {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", "DeleteOnTermination": True}
        ],
    }


def check_scaling_groups(project: RunnersProject) -> None:
    used = {"LaunchTemplateId": project.template()["LaunchTemplateId"], "Version": "1"}
    subnets = project.api("ec2").describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    for kind, on_demand in (("spot", 0), ("on-demand", 100)):
        group = project.group(kind)
        assert (group["MinSize"], group["MaxSize"]) == (0, 4)
        assert group["HealthCheckType"] == "EC2"
        assert group["NewInstancesProtectedFromScaleIn"] is True
        assert group["CapacityRebalance"] is (kind == "spot")
        assert sorted(process["ProcessName"] for process in group["SuspendedProcesses"]) == [
            "AZRebalance", "ReplaceUnhealthy",
        ]  # fmt: skip
        assert sorted(group["VPCZoneIdentifier"].split(",")) == sorted(one["SubnetId"] for one in subnets)
        assert [(tag["Key"], tag["Value"], tag["PropagateAtLaunch"]) for tag in group["Tags"]] == [
            ("slipway", NAME, True)
        ]
        assert group["MixedInstancesPolicy"] == {
            "InstancesDistribution": {
                "OnDemandAllocationStrategy": "prioritized",
                "OnDemandBaseCapacity": 0,
                "OnDemandPercentageAboveBaseCapacity": on_demand,
                "SpotAllocationStrategy": "price-capacity-optimized",
            },
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {**used, "LaunchTemplateName": NAME},
                "Overrides": [
                    {"InstanceType": name, "LaunchTemplateSpecification": used} for name in ("g6.2xlarge", "g5.2xlarge")
                ],
            },
        }
        hooks = project.api("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=group["AutoScalingGroupName"])
        (hook,) = hooks["LifecycleHooks"]
        assert hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
        assert (hook["HeartbeatTimeout"], hook["DefaultResult"]) == (1800, "CONTINUE")


def functions_of(project: RunnersProject) -> dict[str, Any]:
    """Return the stack's functions, by their names after its own."""
    functions = project.api("lambda").list_functions()["Functions"]
    return {one["FunctionName"].removeprefix(f"{NAME}-"): one for one in functions}


def check_roles(project: RunnersProject) -> None:
    for whose in ("runner", *functions_of(project)):
        role = project.api("iam").get_role(RoleName=f"{NAME}-{whose}")["Role"]
        service = "ec2" if whose == "runner" else "lambda"
        assert role["AssumeRolePolicyDocument"] == iam_policies.trust(f"{service}.amazonaws.com")
        (inline,) = project.api("iam").list_role_policies(RoleName=f"{NAME}-{whose}")["PolicyNames"]
        assert inline == whose
        assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY
        assert not project.api("iam").list_attached_role_policies(RoleName=f"{NAME}-{whose}")["AttachedPolicies"]
        policy = re.sub(r"(?<=autoScalingGroup:)[0-9a-f-]{36}", "uuid", json.dumps(project.policy(whose)))
        assert iam.mistakes(json.loads(policy), whose) == []


def check_functions(project: RunnersProject) -> None:
    """Those of a stack that listens, or of an old one with its webhook alone."""
    functions = functions_of(project)
    listens = {"keeper": ("listening.listener", 900)}
    expected_functions = {"keeper": ("keeper", 55), "webhook": ("webhook", 10)} if "webhook" in functions else listens
    assert functions.keys() == expected_functions.keys()
    for whose, (module, seconds) in expected_functions.items():
        expected = {
            "Runtime": "python3.13",
            "Handler": f"scaler.{module}.handle",
            "Timeout": seconds,
            "MemorySize": 256,
            "Role": f"arn:aws:iam::{ACCOUNT}:role/{NAME}-{whose}",
        }
        assert {key: functions[whose][key] for key in expected} == expected
        reserved = project.api("lambda").get_function(FunctionName=f"{NAME}-{whose}")["Concurrency"]
        assert reserved["ReservedConcurrentExecutions"] == {"keeper": 1, "webhook": 20}[whose]
    both = {"JOBS": f"{NAME}-jobs", "GITHUB_SCOPE": "acme", "LABELS": "self-hosted,linux,x64,gpu"}
    own = {"OWN_LABELS": "gpu", "RETRIES": "1"}
    if "webhook" in functions:
        variables = functions["webhook"]["Environment"]["Variables"]
        assert variables == {**both, **own, "WEBHOOK_SECRET": HOOK_SECRET}
    of_keeper = {} if "webhook" in functions else {**own, "GITHUB_URL": "https://github.com/acme"}
    variables = functions["keeper"]["Environment"]["Variables"]
    rules = {"least": 0, "most": 4, "patience": 300, "idle": 600, "boot": 1200, "lifetime": 7 * 24 * 3600}
    assert json.loads(variables.pop("RULES")) == rules
    assert json.loads(variables.pop("GROUPS")) == {"spot": f"{NAME}-spot", "on-demand": f"{NAME}-on-demand"}
    assert variables == {
        **both,
        **of_keeper,
        "NAME": NAME,
        "RUNNER_GROUP": "1",
        "CONFIGS": f"{NAME}-configs",
        "MACHINES": f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/",
        "HOOK": "leave",
        "METRICS": "Slipway/Runners",
        "GITHUB_API": "https://api.github.com",
        "GITHUB_SECRET": SECRET,
    }
    (rule,) = project.api("events").list_rules()["Rules"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")
    (target,) = project.api("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
    never = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    assert target == {"Id": "keeper", "Arn": functions["keeper"]["FunctionArn"], "RetryPolicy": never}
    called = project.api("lambda").get_function_event_invoke_config(FunctionName=f"{NAME}-keeper")
    assert {key: called[key] for key in never} == never
    rings: dict[str, Any] = {
        "AlarmName": f"{NAME}-queued",
        "AlarmDescription": "A job waits 30 minutes for a runner, or the keeper is silent.",
        "Namespace": "Slipway/Runners",
        "MetricName": "LongestQueued",
        "Dimensions": [{"Name": "Runners", "Value": NAME}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 1800.0,
        "TreatMissingData": "breaching",
        "AlarmActions": [TOPIC],
        "OKActions": [TOPIC],
    }
    (alarm,) = project.api("cloudwatch").describe_alarms()["MetricAlarms"]
    assert {key: alarm[key] for key in rings} == rings
    for table in ("jobs", "configs"):
        ttl = project.api("dynamodb").describe_time_to_live(TableName=f"{NAME}-{table}")["TimeToLiveDescription"]
        assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expires")


CHECKS = {
    "aws:autoscaling/group:Group": check_scaling_groups,
    "aws:autoscaling/lifecycleHook:LifecycleHook": check_scaling_groups,
    "aws:lambda/function:Function": check_functions,
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": check_functions,
    "aws:cloudwatch/eventRule:EventRule": check_functions,
    "aws:cloudwatch/eventTarget:EventTarget": check_functions,
    "aws:cloudwatch/metricAlarm:MetricAlarm": check_functions,
    "aws:ec2/launchTemplate:LaunchTemplate": check_launch_template,  # last: the groups are of its first version
}
FORGOTTEN: dict[str, dict[str, list[Any]]] = {
    "aws:autoscaling/group:Group": {
        "capacityRebalance": [False, True],
        "forceDelete": [True, True],
        "healthCheckGracePeriod": [0, 0],
        "maxInstanceLifetime": [7 * 24 * 3600] * 2,
        "waitForCapacityTimeout": ["0", "0"],
    },
    "aws:lambda/function:Function": {
        "architectures": [["arm64"], ["arm64"]],
        "loggingConfig": [{"logFormat": "Text", "logGroup": f"/{NAME}/{whose}"} for whose in ("keeper", "webhook")],
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {"updateDefaultVersion": [True]},
}
"""What moto does not keep, or does not change, or the plugin keeps to itself: as the stack is to ask for it, by name."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning:moto.core.serialize")  # that a refusal is not among AWS's own
def test_runners_option_changed_outside_is_detected(project: RunnersProject) -> None:
    project.runners(**WITH_WEBHOOK)
    project.up()
    for token, check in CHECKS.items():
        forgotten = FORGOTTEN.get(token, {})
        resources = sorted(project.resources(token.removeprefix("aws:")), key=lambda one: str(one["urn"]))
        assert {option: [one["inputs"][option] for one in resources] for option in forgotten} == forgotten
        assert overlooked(project, token, check) == forgotten.keys(), token


def test_runners_with_efa_have_interfaces_and_placement_group(project: RunnersProject) -> None:
    private = subnet(project, public=False)
    several = {"instanceTypes": ["p5.48xlarge", "p4d.24xlarge"], "efa": "all", "subnets": [private]}
    project.runners(without=("minGpus",), endpoints=True, **several)
    project.up()
    for name, count in ((f"{NAME}-efa-32", 32), (f"{NAME}-efa-4", 4)):
        data = project.template(name)["LaunchTemplateData"]
        interfaces = data["NetworkInterfaces"]
        assert [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in interfaces] == [
            (0, 0, "efa"),
            *((card, 1, "efa-only") for card in range(1, count)),
        ]
        assert data["Placement"] == {"GroupName": NAME}
        text = yaml.safe_load(base64.b64decode(data["UserData"]))["write_files"][0]["content"]
        assert f"GPUS=8\nEFA={count}\n" in text
        (group,) = {group for interface in interfaces for group in interface["Groups"]}
        assert rules(project, group, egress=False) == [("-1", "self")]
        assert rules(project, group, egress=True) == [("-1", "0.0.0.0/0"), ("-1", "self")]
    overrides = project.group("spot")["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    templates = [override["LaunchTemplateSpecification"]["LaunchTemplateId"] for override in overrides]
    assert templates == [project.template(f"{NAME}-efa-{count}")["LaunchTemplateId"] for count in (32, 4)]
    endpoints = project.api("ec2").describe_vpc_endpoints()["VpcEndpoints"]
    services = sorted(endpoint["ServiceName"].rpartition(f"{REGION}.")[2] for endpoint in endpoints)
    assert services == ["ec2messages", "ecr.api", "ecr.dkr", "logs", "ssm", "ssmmessages"]

    assert UNCHANGED.search(project.refresh().output)
    assert sorted(project.calls() - documented()) == []
    # A rule that goes is seen to go, in the API.
    project.runners(instanceTypes=["p5.48xlarge"], minGpus=8, efa=0, subnets=[private])
    project.up()
    (interface,) = project.template()["LaunchTemplateData"]["NetworkInterfaces"]
    assert rules(project, interface["Groups"][0], egress=False) == []


WRONG = {
    ("aws:cloudwatch/logGroup:LogGroup", "/nosuch"): "resource '/nosuch' does not exist",
    ("aws:ec2/securityGroup:SecurityGroup", "sg-0"): "resource 'sg-0' does not exist",
    ("aws:autoscaling/lifecycleHook:LifecycleHook", "leave"): (
        "unexpected format of ID (leave), expected autoscalingGroupName/name"
    ),
}
"""What cannot be imported: what it is to be, its id, and what is said."""


@pytest.mark.slow  # nine runs of the engine
def test_runners_existing_resources_are_imported_by_id(project: RunnersProject) -> None:
    private = subnet(project, public=False)
    project.runners(instanceTypes=["p4d.24xlarge"], efa="all", subnets=[private], endpoints=True, **WITH_WEBHOOK)
    project.up()
    template, group = project.template(f"{NAME}-efa-4"), project.group("spot")
    resources = project.lose()
    repeated = project.up(check=False)
    assert repeated.returncode != 0
    assert "AlreadyExists" in repeated.output
    project.lose()
    project.imported(resources)
    # The plugin does not read a function's code, nor moto some of what it is asked for: they are given again. Of a
    # permission moto forgets what makes it another.
    anew = {what for what, sign in operations(project.up().output).items() if sign not in {"~", "+"}}
    assert anew == {f"Permission {NAME}-webhook-address", f"Permission {NAME}-webhook-invoke"}
    assert project.template(f"{NAME}-efa-4") == template
    assert project.group("spot") == {**group, "HealthCheckGracePeriod": 0}  # moto makes 300 of it at first
    assert UNCHANGED.search(project.refresh().output)
    runners, provider = (
        next(one["urn"] for one in resources if one["urn"].endswith(f"::{name}")) for name in ("runners", "runners-aws")
    )
    for (typ, wrong), reason in WRONG.items():
        place = ("--parent", f"runners={runners}", "--provider", f"aws={provider}")
        failed = project.pulumi("import", typ, "x", wrong, "-s", "t", "--yes", "--skip-preview", *place, check=False)
        assert failed.returncode != 0
        assert re.search(rf"error: (x: )?{re.escape(reason)}$", failed.output, re.MULTILINE), failed.output
        assert "Traceback" not in failed.output
    project.pulumi("destroy", "-s", "t", "--yes", "--skip-preview")
    assert not project.api("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert not project.api("ec2").describe_launch_templates()["LaunchTemplates"]
    assert not project.api("iam").list_roles()["Roles"]


@pytest.mark.parametrize("token", sorted(token for token, kind in KINDS.items() if kind.shape))
def test_id_of_several_parts_is_read_as_documented(token: str) -> None:
    folder, name = re.sub(r"(?<!^)[A-Z]", lambda letter: f"_{letter[0].lower()}", token.split(":")[1]).split("/")
    page = files("pulumi_aws").joinpath(folder.replace("lambda", "lambda_"), f"{name}.py").read_text()
    example = re.findall(rf"\$ pulumi import {token} \S+ (\S+)\n", page)[0]
    shape = KINDS[token].shape
    parts = unpacked(shape, example)
    assert re.sub(r"\w+", lambda key: parts[key[0]], shape) == example
    mark = re.findall(r"\W", shape)[0]
    assert not any(mark in part for part in parts.values())
    with pytest.raises(ValueError, match=re.escape(f"unexpected format of ID (leave), expected {shape}")):
        unpacked(shape, "leave")


PLATFORM = "slipway:platform linux/amd64 is x86_64"
REFUSALS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "machines": (
        {
            "instanceTypes": ["g6.2xlarge", "g4ad.xlarge", "g5g.xlarge", "c7i.4xlarge", "p4d.24xlarge"],
            "minGpus": 8,
            "efa": 2,
            "ami": "arm64",
            "subnets": ["public"],
            "root": 80,
            "stack": {"flavor": "chain", "budgets": {"link0": "20 GB"}},
        },
        [
            f"runners.ami: ami-* is for arm64; {PLATFORM}",
            "runners.instanceTypes: g6.2xlarge has 1 NVIDIA GPUs; minGpus asks for 8",
            "runners.instanceTypes: g6.2xlarge has 0 EFA interfaces; efa asks for 2",
            "runners.instanceTypes: g4ad.xlarge has 0 NVIDIA GPUs; minGpus asks for 8",
            "runners.instanceTypes: g4ad.xlarge has 0 EFA interfaces; efa asks for 2",
            f"runners.instanceTypes: g5g.xlarge is arm64; {PLATFORM}",
            "runners.instanceTypes: g5g.xlarge has 1 NVIDIA GPUs; minGpus asks for 8",
            "runners.instanceTypes: g5g.xlarge has 0 EFA interfaces; efa asks for 2",
            "runners.instanceTypes: c7i.4xlarge has 0 NVIDIA GPUs; minGpus asks for 8",
            "runners.instanceTypes: c7i.4xlarge has 0 EFA interfaces; efa asks for 2",
            (
                "runners.subnets: subnet-* gives public addresses, which a machine with several EFA interfaces cannot have: "
                "give a private subnet, whose way out is a NAT gateway"
            ),
            (
                "runners.root: 80 GiB is too small: the machine image takes 60 GiB, and link0 within budgets 74; "
                "give at least 134"
            ),
        ],
    ),
    "subnets": (
        {"subnets": ["private", "elsewhere"]},
        ["runners.subnets: subnet-* is in vpc-*; the others, or vpc, are in vpc-*"],
    ),
    "type": (
        {"instanceTypes": ["g5.3xlarge"]},
        [
            (
                "runners.instanceTypes: g5.3xlarge: aws:ec2/getInstanceType:getInstanceType: An error occurred "
                "(InvalidInstanceType) when calling the DescribeInstanceTypes operation: The following supplied instance "
                "types do not exist: [g5.3xlarge]"
            )
        ],
    ),
    "account": (
        {
            "account": "999999999999",
            "permissionsBoundary": BOUNDARY.replace(ACCOUNT, "999999999999"),
            "github": {key: value.replace(ACCOUNT, "999999999999") for key, value in RUNNERS["github"].items()},
        },
        [f"runners.vpc: AWS account ID not allowed: {ACCOUNT}"],
    ),
}
"""Keys of runners that AWS cannot serve, with all messages of the preview, without their `slipway:`."""


def test_runners_of_graviton_boot_what_is_for_arm64(project: RunnersProject) -> None:
    project.runners(instanceTypes=["g5g.xlarge"], stack={"platform": "linux/arm64"})
    project.up()
    data = project.template()["LaunchTemplateData"]
    newest = project.api("ssm").get_parameter(Name=AMI_PARAMETER.format(architecture="arm64"))["Parameter"]
    assert (data["ImageId"], data["InstanceType"]) == (newest["Value"], "g5g.xlarge")
    assert "/actions-runner-linux-arm64-" in base64.b64decode(data["UserData"]).decode()
    assert project.outputs()["runners"]["labels"] == ["gpu"]


def test_runners_invalid_config_is_one_line_at_preview(project: RunnersProject) -> None:
    ec2 = project.api("ec2")
    other = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    arm = next(i["ImageId"] for i in ec2.describe_images(Owners=["self"])["Images"] if i.get("Architecture") == "arm64")
    places = {
        "private": subnet(project, public=False),
        "public": subnet(project, public=True, cidr="172.31.201.0/24"),
        "elsewhere": subnet(project, public=False, cidr="10.0.1.0/24", vpc=other),
    }
    for what, (values, expected) in REFUSALS.items():
        given = dict(values)
        if "subnets" in given:
            given["subnets"] = [places[name] for name in given["subnets"]]
        if "ami" in given:
            given["ami"] = arm
        project.runners(**given)
        failed = project.preview(check=False)
        assert failed.returncode != 0, what
        assert "Traceback" not in failed.output, what
        printed = failed.output.partition("\nDiagnostics:\n")[2]
        messages = re.findall(r"^    (?:error: )?slipway:(runners\..*)$", printed, re.MULTILINE)
        assert [re.sub(r"\b(ami|subnet|vpc)-\w+", r"\1-*", message) for message in messages] == expected, failed.output


def test_runners_preview_without_credentials_is_one_line(project: RunnersProject) -> None:
    failed = project.preview(check=False, **NO_SIGN)
    assert failed.returncode != 0
    assert "No valid credential sources found." in failed.output
    assert "Traceback" not in failed.output
