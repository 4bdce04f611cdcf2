"""``Ec2Runners``: GitHub Actions runners on EC2, one machine per job.

Only stacks with such runners import this module, because importing ``pulumi_aws`` is slow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import iam_policies, scaling_groups
from components.runners.ec2.runner_args import Ec2RunnersArgs
from components.runners.ec2.scaler_functions import ScalerFunctions
from components.runners.ec2.vpc_endpoints import declare_endpoints


class Ec2Runners(pulumi.ComponentResource):
    """Auto Scaling groups from zero, the machines' permissions, and the two functions that scale the groups.

    Outputs: ``groups`` (names by kind of capacity), ``template_versions`` (by number of EFA interfaces, or
    reservation), ``role`` (its ARN), ``webhook`` (the URL to enter at GitHub; None without a webhook).
    """

    def __init__(self, name: str, args: Ec2RunnersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:runners:Ec2Runners", name, {}, opts)
        self._args = args
        self._opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        runner = f"{args.name}-runner"
        webhook = ["webhook"] if args.config.github.webhook_secret else []
        logs = {part: self._log_group(part) for part in ("runner", *webhook, "keeper")}
        jobs = self._jobs_table()
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
        templates = scaling_groups.launch_templates(args, security_group, profile, self._opts)
        groups = scaling_groups.scaling_groups(args, templates, self._opts)
        arns = self._arns(jobs, groups, logs)
        aws.iam.RolePolicy(
            runner,
            name="runner",
            role=role.name,
            policy=arns.apply(lambda known: json.dumps(iam_policies.runner(known))),
            opts=self._opts,
        )
        functions = ScalerFunctions(args, arns, jobs, logs, self._opts)
        self.webhook = functions.webhook() if webhook else None
        functions.keeper(groups, role)
        if args.config.endpoints:
            declare_endpoints(args, self._opts)
        self.groups = {kind: group.name for kind, group in groups.items()}
        self.template_versions = {
            (f"efa-{key}" if key else "default") if isinstance(key, int) else key: template.latest_version
            for key, template in templates.items()
        }
        self.role = role.arn
        self.register_outputs({"groups": self.groups, "role": self.role, "webhook": self.webhook})

    def _arns(
        self, jobs: aws.dynamodb.Table, groups: Mapping[str, aws.autoscaling.Group], logs: Mapping[str, Any]
    ) -> pulumi.Output[iam_policies.Arns]:
        args = self._args
        outputs = pulumi.Output.all(
            jobs=jobs.arn,
            groups=[group.arn for group in groups.values()],
            logs={part: group.arn for part, group in logs.items()},
        )
        return outputs.apply(
            lambda known: iam_policies.Arns(
                configs=args.arn("ssm", f"parameter{args.runner_configs}"),
                pull=args.pull,
                push=args.push,
                github_secret=args.config.github.secret,
                webhook_secret=args.config.github.webhook_secret,
                reserved=bool(args.site.reservations),
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

    def _jobs_table(self) -> aws.dynamodb.Table:
        return aws.dynamodb.Table(
            f"{self._args.name}-jobs",
            name=f"{self._args.name}-jobs",
            billing_mode="PAY_PER_REQUEST",
            hash_key="id",
            attributes=[{"name": "id", "type": "S"}],
            ttl={"attribute_name": "expires", "enabled": True},
            tags=self._args.tags,
            opts=self._opts,
        )
