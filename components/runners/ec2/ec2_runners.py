"""``Ec2Runners``: machines that take GitHub's jobs, made for each and ended after it.

Imported only by stacks that have such runners: ``pulumi_aws`` costs every program that loads it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import iam_policies, launch_options
from stacks.checks.ec2_site import Machine, Site, partition
from stacks.config.ec2 import Ec2Runners as Config

METRICS = "Slipway/Runners"
"""The namespace of the keeper's metrics."""

HOOK = "leave"
"""The hook by which a machine waits for the end of its job."""

_HEARTBEAT = 15 * 60
"""Seconds that a leaving machine is kept without word from the keeper, which gives it each minute."""

_RUNTIME = "python3.13"

_ENDPOINTS = ("ssm", "ssmmessages", "ec2messages", "ecr.api", "ecr.dkr", "logs")
"""What a machine asks of AWS. S3, where ECR's layers are, has a gateway: the VPC's own, which may be there."""


@dataclass(frozen=True, kw_only=True)
class Ec2RunnersArgs:
    """What :class:`Ec2Runners` are made of.

    ``name`` is that of all resources, in their account and region; ``config`` what is asked for and ``site`` what AWS
    said of it. ``user_data`` is by number of EFA interfaces; ``code`` are the functions' files; ``repositories`` are
    the ARNs of what a job may push to, and ``labels`` all labels of a runner.
    """

    name: str
    config: Config
    site: Site
    provider: aws.Provider
    user_data: Mapping[int, str]
    code: Mapping[str, str]
    repositories: Sequence[str]
    labels: Sequence[str]


class Ec2Runners(pulumi.ComponentResource):
    """Auto Scaling groups from zero, what their machines may do, and the two functions that keep them.

    Outputs: ``groups`` (name by kind of capacity), ``template_versions`` (by number of EFA interfaces), ``role``
    (its ARN), ``webhook`` (the address to give GitHub).
    """

    def __init__(self, name: str, args: Ec2RunnersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:runners:Ec2Runners", name, {}, opts)
        self._args = args
        self._name = args.name
        self._opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        self._tags = {"slipway": args.name}
        logs = {whose: self._log_group(whose) for whose in ("runner", "webhook", "keeper")}
        jobs = self._table()
        role = aws.iam.Role(
            f"{self._name}-runner",
            name=f"{self._name}-runner",
            assume_role_policy=json.dumps(iam_policies.trust("ec2.amazonaws.com")),
            tags=self._tags,
            opts=self._opts,
        )
        profile = aws.iam.InstanceProfile(
            f"{self._name}-runner", name=f"{self._name}-runner", role=role.name, opts=self._opts
        )
        templates = self._templates(self._security_group(), profile)
        groups = self._groups(templates)
        arns = self._arns(jobs, groups, logs)
        aws.iam.RolePolicy(
            f"{self._name}-runner",
            name="runner",
            role=role.name,
            policy=self._policy(iam_policies.runner, arns),
            opts=self._opts,
        )
        environment = self._environment(jobs)
        self.webhook = self._webhook(arns, environment, logs["webhook"])
        self._keeper(arns, environment, groups, role, logs["keeper"])
        self._alarm()
        if args.config.endpoints:
            self._endpoints()
        self.groups = {kind: group.name for kind, group in groups.items()}
        self.template_versions = {
            "default" if not efa else f"efa-{efa}": template.latest_version for efa, template in templates.items()
        }
        self.role = role.arn
        self.register_outputs({"groups": self.groups, "role": self.role, "webhook": self.webhook})

    def _arn(self, service: str, resource: str) -> str:
        config = self._args.config
        return f"arn:{partition(config.region)}:{service}:{config.region}:{config.account}:{resource}"

    def _arns(
        self, jobs: aws.dynamodb.Table, groups: Mapping[str, aws.autoscaling.Group], logs: Mapping[str, Any]
    ) -> pulumi.Output[iam_policies.Arns]:
        args = self._args
        known = pulumi.Output.all(
            jobs=jobs.arn,
            groups=[group.arn for group in groups.values()],
            logs={whose: group.arn for whose, group in logs.items()},
        )
        return known.apply(
            lambda found: iam_policies.Arns(
                configs=self._arn("ssm", f"parameter{self._configs}"),
                repositories=args.repositories,
                github_secret=args.config.github.secret,
                webhook_secret=args.config.github.webhook_secret,
                **found,
            )
        )

    @property
    def _configs(self) -> str:
        """Where each machine finds its runner's configuration."""
        return f"/{self._name}/runners"

    def _policy(self, make: Any, arns: pulumi.Output[iam_policies.Arns], *more: str) -> pulumi.Output[str]:
        return arns.apply(lambda known: json.dumps(make(known, *more)))

    def _log_group(self, whose: str) -> aws.cloudwatch.LogGroup:
        return aws.cloudwatch.LogGroup(
            f"{self._name}-{whose}",
            name=f"/{self._name}/{whose}",
            retention_in_days=self._args.config.log_days,
            tags=self._tags,
            opts=self._opts,
        )

    def _table(self) -> aws.dynamodb.Table:
        return aws.dynamodb.Table(
            f"{self._name}-jobs",
            name=f"{self._name}-jobs",
            billing_mode="PAY_PER_REQUEST",
            hash_key="id",
            attributes=[{"name": "id", "type": "S"}],
            ttl={"attribute_name": "expires", "enabled": True},
            tags=self._tags,
            opts=self._opts,
        )

    def _security_group(self) -> aws.ec2.SecurityGroup:
        """Nothing comes in. With EFA all goes between the machines, both ways, which it does not work without.

        "An EFA requires a security group that allows all inbound and outbound traffic to and from the security group
        itself" (EC2 user guide, "Get started with EFA and NCCL").
        """
        config = self._args.config
        name = f"{self._name}-runner"
        group = aws.ec2.SecurityGroup(
            name,
            name=name,
            description="GitHub Actions runners of Slipway: nothing comes in",
            vpc_id=self._args.site.vpc,
            tags=self._tags,
            opts=self._opts,
        )
        out = {"security_group_id": group.id, "ip_protocol": "-1", "opts": self._opts}
        aws.vpc.SecurityGroupEgressRule(f"{name}-out", cidr_ipv4="0.0.0.0/0", **out)
        if config.efa:
            aws.vpc.SecurityGroupEgressRule(f"{name}-efa", referenced_security_group_id=group.id, **out)
            aws.vpc.SecurityGroupIngressRule(f"{name}-efa", referenced_security_group_id=group.id, **out)
        return group

    def _efa(self, machine: Machine) -> int:
        """Return how many EFA interfaces a machine of a type gets."""
        asked = self._args.config.efa
        return machine.efa if asked == "all" else asked

    def _templates(
        self, security_group: aws.ec2.SecurityGroup, profile: aws.iam.InstanceProfile
    ) -> dict[int, aws.ec2.LaunchTemplate]:
        """Declare a launch template for each number of EFA interfaces among the types."""
        args = self._args
        placement: dict[str, Any] = {}
        if args.config.efa:
            group = aws.ec2.PlacementGroup(
                self._name, name=self._name, strategy="cluster", tags=self._tags, opts=self._opts
            )
            placement = {"placement": {"group_name": group.name}}
        made: dict[int, aws.ec2.LaunchTemplate] = {}
        for machine in args.site.machines:
            efa = self._efa(machine)
            if efa in made:
                continue
            name = f"{self._name}-efa-{efa}" if efa else self._name
            made[efa] = aws.ec2.LaunchTemplate(
                name,
                name=name,
                image_id=args.site.image,
                instance_type=machine.name,
                instance_initiated_shutdown_behavior="terminate",
                ebs_optimized="true",
                iam_instance_profile={"arn": profile.arn},
                user_data=base64.b64encode(args.user_data[efa].encode()).decode(),
                update_default_version=True,
                metadata_options=launch_options.METADATA,
                block_device_mappings=[
                    {
                        "device_name": args.site.root_device,
                        "ebs": {
                            "volume_size": args.config.root,
                            "volume_type": "gp3",
                            **launch_options.FAST,
                            "encrypted": "true",
                            "delete_on_termination": "true",
                        },
                    }
                ],
                network_interfaces=[
                    {
                        "network_card_index": card,
                        "device_index": device,
                        "interface_type": kind,
                        "security_groups": [security_group.id],
                        "delete_on_termination": "true",
                    }
                    for card, device, kind in machine.interfaces(args.config.efa)
                ],
                tag_specifications=[
                    {"resource_type": kind, "tags": {**self._tags, "Name": f"{self._name}-runner"}}
                    for kind in ("instance", "volume", "network-interface")
                ],
                **placement,
                tags=self._tags,
                opts=self._opts,
            )
        return made

    def _groups(self, templates: Mapping[int, aws.ec2.LaunchTemplate]) -> dict[str, aws.autoscaling.Group]:
        """Declare a group for each kind of capacity: a group does not turn from spot to on-demand by itself."""
        config = self._args.config
        shares = {"spot": 0, "on-demand": 100} if config.spot else {"on-demand": 100}
        return {kind: self._group(kind, share, templates) for kind, share in shares.items()}

    def _group(
        self, kind: str, on_demand: int, templates: Mapping[int, aws.ec2.LaunchTemplate]
    ) -> aws.autoscaling.Group:
        args, config = self._args, self._args.config
        name = f"{self._name}-{kind}"
        first = templates[self._efa(args.site.machines[0])]
        group = aws.autoscaling.Group(
            name,
            name=name,
            min_size=0,
            max_size=config.max_runners,
            vpc_zone_identifiers=[network.subnet for network in args.site.networks],
            # The keeper alone says how many there are, and which ends: Auto Scaling ends none to have fewer, or to have
            # as many in each zone.
            protect_from_scale_in=True,
            suspended_processes=["AZRebalance"],
            capacity_rebalance=kind == "spot",
            max_instance_lifetime=config.max_lifetime * 24 * 3600,
            health_check_type="EC2",
            health_check_grace_period=0,
            wait_for_capacity_timeout="0",
            force_delete=True,
            mixed_instances_policy={
                "instances_distribution": {
                    "on_demand_base_capacity": 0,
                    "on_demand_percentage_above_base_capacity": on_demand,
                    "on_demand_allocation_strategy": "prioritized",
                    "spot_allocation_strategy": "price-capacity-optimized",
                },
                "launch_template": {
                    "launch_template_specification": _newest(first),
                    "overrides": [
                        {
                            "instance_type": machine.name,
                            "launch_template_specification": _newest(templates[self._efa(machine)]),
                        }
                        for machine in args.site.machines
                    ],
                },
            },
            tags=[{"key": key, "value": value, "propagate_at_launch": True} for key, value in self._tags.items()],
            opts=self._opts,
        )
        aws.autoscaling.LifecycleHook(
            f"{name}-leave",
            name=HOOK,
            autoscaling_group_name=group.name,
            lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
            heartbeat_timeout=_HEARTBEAT,
            default_result="CONTINUE",
            opts=self._opts,
        )
        return group

    def _environment(self, jobs: aws.dynamodb.Table) -> dict[str, pulumi.Input[str]]:
        """Return what both functions are told."""
        github = self._args.config.github
        scope = f"{github.owner}/{github.repository}" if github.repository else github.owner
        return {"JOBS": jobs.name, "GITHUB_SCOPE": scope, "LABELS": ",".join(self._args.labels)}

    def _function(
        self,
        whose: str,
        policy: pulumi.Input[str],
        environment: Mapping[str, pulumi.Input[str]],
        log_group: aws.cloudwatch.LogGroup,
        seconds: int,
    ) -> aws.lambda_.Function:
        name = f"{self._name}-{whose}"
        role = aws.iam.Role(
            name,
            name=name,
            assume_role_policy=json.dumps(iam_policies.trust("lambda.amazonaws.com")),
            tags=self._tags,
            opts=self._opts,
        )
        allowed = aws.iam.RolePolicy(name, name=whose, role=role.name, policy=policy, opts=self._opts)
        code: dict[str, pulumi.Asset | pulumi.Archive] = {
            f"scaler/{file}": pulumi.StringAsset(text) for file, text in self._args.code.items()
        }
        return aws.lambda_.Function(
            name,
            name=name,
            role=role.arn,
            runtime=_RUNTIME,
            architectures=["arm64"],
            handler=f"scaler.{whose}.handle",
            code=pulumi.AssetArchive(code),
            timeout=seconds,
            memory_size=256,
            environment={"variables": environment},
            logging_config={"log_format": "Text", "log_group": log_group.name},
            tags=self._tags,
            opts=pulumi.ResourceOptions.merge(self._opts, pulumi.ResourceOptions(depends_on=[allowed])),
        )

    def _webhook(
        self,
        arns: pulumi.Output[iam_policies.Arns],
        environment: Mapping[str, pulumi.Input[str]],
        log_group: aws.cloudwatch.LogGroup,
    ) -> pulumi.Output[str]:
        config = self._args.config
        own = {
            "OWN_LABELS": ",".join(config.labels),
            "WEBHOOK_SECRET": config.github.webhook_secret,
            "RETRIES": str(config.retries),
        }
        function = self._function(
            "webhook", self._policy(iam_policies.webhook, arns), {**environment, **own}, log_group, 10
        )
        name = f"{self._name}-webhook"
        address = aws.lambda_.FunctionUrl(name, function_name=function.name, authorization_type="NONE", opts=self._opts)
        # GitHub signs, but has no AWS identity: anybody may call, and the function looks at the signature. Since
        # October 2025 both are needed ("Control access to Lambda function URLs").
        anybody = {"function": function.name, "principal": "*", "opts": self._opts}
        aws.lambda_.Permission(
            f"{name}-address",
            statement_id="address",
            action="lambda:InvokeFunctionUrl",
            function_url_auth_type="NONE",
            **anybody,
        )
        aws.lambda_.Permission(
            f"{name}-invoke",
            statement_id="invoke",
            action="lambda:InvokeFunction",
            invoked_via_function_url=True,
            **anybody,
        )
        url: pulumi.Output[str] = address.function_url
        return url

    def _keeper(
        self,
        arns: pulumi.Output[iam_policies.Arns],
        environment: Mapping[str, pulumi.Input[str]],
        groups: Mapping[str, aws.autoscaling.Group],
        runner: aws.iam.Role,
        log_group: aws.cloudwatch.LogGroup,
    ) -> None:
        config = self._args.config
        rules = {
            "least": config.min_runners,
            "most": config.max_runners,
            "patience": config.spot_patience * 60,
            "idle": config.idle * 60,
            "boot": config.boot * 60,
            "lifetime": config.max_lifetime * 24 * 3600,
        }
        own = {
            "NAME": self._name,
            "GROUPS": pulumi.Output.json_dumps({kind: group.name for kind, group in groups.items()}),
            "RULES": json.dumps(rules),
            "RUNNER_GROUP": str(config.github.group),
            "RUNNER_ROLE": runner.unique_id,
            "CONFIGS": self._configs,
            "HOOK": HOOK,
            "METRICS": METRICS,
            "GITHUB_API": config.github.api,
            "GITHUB_SECRET": config.github.secret,
        }
        function = self._function(
            "keeper", self._policy(iam_policies.keeper, arns, METRICS), {**environment, **own}, log_group, 55
        )
        name = f"{self._name}-keeper"
        rule = aws.cloudwatch.EventRule(
            name, name=name, schedule_expression="rate(1 minute)", tags=self._tags, opts=self._opts
        )
        aws.lambda_.Permission(
            name,
            statement_id="schedule",
            action="lambda:InvokeFunction",
            function=function.name,
            principal="events.amazonaws.com",
            source_arn=rule.arn,
            opts=self._opts,
        )
        # A round that did not start, or failed, is not made up for: the next one does all there is to do, and none is
        # beside another.
        never: dict[str, Any] = {"maximum_retry_attempts": 0, "maximum_event_age_in_seconds": 60}
        aws.lambda_.FunctionEventInvokeConfig(name, function_name=function.name, **never, opts=self._opts)
        aws.cloudwatch.EventTarget(
            name, rule=rule.name, target_id="keeper", arn=function.arn, retry_policy=never, opts=self._opts
        )

    def _alarm(self) -> None:
        """Ring where a job has waited too long for a runner, and where nobody says whether one has."""
        alarm = self._args.config.alarm
        topics = [alarm.topic] if alarm.topic else []
        aws.cloudwatch.MetricAlarm(
            f"{self._name}-queued",
            name=f"{self._name}-queued",
            alarm_description=f"A job waits {alarm.minutes} minutes for a runner, or the keeper is silent.",
            namespace=METRICS,
            metric_name="LongestQueued",
            dimensions={"Runners": self._name},
            statistic="Maximum",
            period=60,
            evaluation_periods=3,
            comparison_operator="GreaterThanThreshold",
            threshold=alarm.minutes * 60,
            treat_missing_data="breaching",
            alarm_actions=topics,
            ok_actions=topics,
            tags=self._tags,
            opts=self._opts,
        )

    def _endpoints(self) -> None:
        """Declare what lets a machine reach AWS without the internet. GitHub still takes a way out."""
        args, config = self._args, self._args.config
        name = f"{self._name}-endpoints"
        group = aws.ec2.SecurityGroup(
            name,
            name=name,
            description="Endpoints of AWS for Slipway's runners",
            vpc_id=args.site.vpc,
            tags=self._tags,
            opts=self._opts,
        )
        for network in sorted({n.cidr for n in args.site.networks}):
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-{network}",
                security_group_id=group.id,
                cidr_ipv4=network,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                opts=self._opts,
            )
        for service in _ENDPOINTS:
            aws.ec2.VpcEndpoint(
                f"{self._name}-{service}",
                vpc_id=args.site.vpc,
                service_name=f"com.amazonaws.{config.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list({n.zone: n.subnet for n in args.site.networks}.values()),  # AWS takes one of a zone
                security_group_ids=[group.id],
                tags=self._tags,
                opts=self._opts,
            )


def _newest(template: aws.ec2.LaunchTemplate) -> dict[str, Any]:
    """Return the newest version of a template by its number, so that another is a change of the group."""
    return {"launch_template_id": template.id, "version": template.latest_version.apply(str)}
