"""``Ec2Runners``: GitHub Actions runners on EC2, one machine per job.

Only stacks with such runners import this module, because importing ``pulumi_aws`` is slow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import iam_policies, launch_options, scaling_groups
from components.runners.ec2.runner_args import Ec2RunnersArgs
from components.runners.ec2.scaler_functions import ScalerFunctions
from components.runners.ec2.user_data import configs_table

_SERVICES = ("ssm", "ssmmessages", "ec2messages", "ecr.api", "ecr.dkr", "logs")
"""The services of AWS that a machine calls, by VPC endpoints. S3, which holds ECR's layers, has a gateway that the VPC
may already have."""


class Ec2Runners(pulumi.ComponentResource):
    """Auto Scaling groups from zero, the machines' permissions, and the two functions that scale the groups.

    ``args`` are of what all sets share, and ``sets`` of each one; a stack without sets is one itself.

    Outputs: ``groups`` (names by kind of capacity), ``template_versions`` (by number of EFA interfaces, or
    reservation), ``role`` (its ARN), ``webhook`` (the URL to enter at GitHub; None without a webhook). Keys of several
    sets begin with the set's name.
    """

    def __init__(
        self,
        name: str,
        args: Ec2RunnersArgs,
        sets: Sequence[Ec2RunnersArgs] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("slipway:runners:Ec2Runners", name, {}, opts)
        self._args = args
        sets = sets or [args]
        self._opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        runner = f"{args.name}-runner"
        webhook = ["webhook"] if args.config.github.webhook_secret else []
        logs = {part: self._log_group(part) for part in ("runner", *webhook, "keeper")}
        jobs = [self._table(f"{own.name}-jobs", own.jobs, "id") for own in sets]
        configs = self._table(f"{args.name}-configs", configs_table(args.name), "machine")
        role = aws.iam.Role(
            runner,
            name=runner,
            assume_role_policy=json.dumps(iam_policies.trust("ec2.amazonaws.com")),
            permissions_boundary=args.config.permissions_boundary,
            tags=args.tags,
            opts=self._opts,
        )
        profile = aws.iam.InstanceProfile(runner, name=runner, role=role.name, opts=self._opts)
        security_group = scaling_groups.security_group(args, self._opts)
        groups: dict[str, aws.autoscaling.Group] = {}
        self.template_versions: dict[str, pulumi.Output[int]] = {}
        for own in sets:
            of_set = f"{own.config.scale_set}/" if own.config.scale_set else ""
            templates = scaling_groups.launch_templates(own, security_group, profile, self._opts)
            groups |= {
                f"{of_set}{kind}": group
                for kind, group in scaling_groups.scaling_groups(own, templates, self._opts).items()
            }
            self.template_versions |= {
                f"{of_set}{_template_key(key)}": template.latest_version for key, template in templates.items()
            }
        reserved = any(own.site.reservations for own in sets)
        arns = self._arns(jobs, configs, groups, logs, reserved=reserved)
        aws.iam.RolePolicy(
            runner,
            name="runner",
            role=role.name,
            policy=arns.apply(lambda known: json.dumps(iam_policies.runner(known))),
            opts=self._opts,
        )
        functions = ScalerFunctions(args, sets, arns, logs, self._opts)
        self.webhook = functions.webhook() if webhook else None
        functions.keeper()
        if args.config.endpoints:
            _declare_endpoints(args, self._opts)
        self.groups = {kind: group.name for kind, group in groups.items()}
        self.role = role.arn
        self.register_outputs({"groups": self.groups, "role": self.role, "webhook": self.webhook})

    def _arns(
        self,
        jobs: Sequence[aws.dynamodb.Table],
        configs: aws.dynamodb.Table,
        groups: Mapping[str, aws.autoscaling.Group],
        logs: Mapping[str, Any],
        *,
        reserved: bool,
    ) -> pulumi.Output[iam_policies.Arns]:
        args = self._args
        outputs = pulumi.Output.all(
            jobs=[table.arn for table in jobs],
            configs=configs.arn,
            groups=[group.arn for group in groups.values()],
            logs={part: group.arn for part, group in logs.items()},
        )
        return outputs.apply(
            lambda known: iam_policies.Arns(
                pull=args.pull,
                push=args.push,
                github_secret=args.config.github.secret,
                webhook_secret=args.config.github.webhook_secret,
                reserved=reserved,
                **known,
            )
        )

    def _log_group(self, part: str) -> aws.cloudwatch.LogGroup:
        return aws.cloudwatch.LogGroup(
            f"{self._args.name}-{part}",
            name=f"/{self._args.name}/{part}",
            retention_in_days=self._args.config.log_days,
            tags=self._args.tags,
            opts=self._opts,
        )

    def _table(self, resource: str, name: str, key: str) -> aws.dynamodb.Table:
        """Declare a table, which DynamoDB encrypts, and deletes items of once they have expired."""
        return aws.dynamodb.Table(
            resource,
            name=name,
            billing_mode="PAY_PER_REQUEST",
            hash_key=key,
            attributes=[{"name": key, "type": "S"}],
            ttl={"attribute_name": "expires", "enabled": True},
            tags=self._args.tags,
            opts=self._opts,
        )


def _template_key(key: int | str) -> str:
    """Return the key of an output for a template of so many EFA interfaces, or of a reservation."""
    return (f"efa-{key}" if key else "default") if isinstance(key, int) else key


def _declare_endpoints(args: Ec2RunnersArgs, opts: pulumi.ResourceOptions) -> None:
    """Declare the endpoints by which a machine reaches AWS without the internet. GitHub still needs a way out."""
    name = f"{args.name}-endpoints"
    description = "Endpoints of AWS for Slipway's runners"
    group = launch_options.security_group(name, description, args.site.vpc, args.tags, opts)
    for cidr in sorted({network.cidr for network in args.site.networks}):
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-{cidr}",
            security_group_id=group.id,
            cidr_ipv4=cidr,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=opts,
        )
    for service in _SERVICES:
        aws.ec2.VpcEndpoint(
            f"{args.name}-{service}",
            vpc_id=args.site.vpc,
            service_name=f"com.amazonaws.{args.config.region}.{service}",
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            # AWS takes one subnet per zone.
            subnet_ids=list({network.zone: network.subnet for network in args.site.networks}.values()),
            security_group_ids=[group.id],
            tags=args.tags,
            opts=opts,
        )
