"""The two Lambda functions that scale the runners: GitHub's webhook, and the keeper that runs each minute."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import iam_policies
from components.runners.ec2.runner_args import Ec2RunnersArgs
from components.runners.ec2.scaling_groups import LEAVE_HOOK

METRICS = "Slipway/Runners"
"""The namespace of the keeper's metrics."""

_RUNTIME = "python3.13"

_DELIVERIES = 20
"""Most deliveries at a time: some 200 a second, and a bound on what strangers can have the webhook cost."""


class ScalerFunctions:
    """Declares the functions, each with its role, and the alarm on what the keeper measures.

    ``arns`` are the resources that the functions' policies name, ``jobs`` is the table of queued jobs, and ``logs``
    has each function's log group. Every resource gets ``opts``.
    """

    def __init__(
        self,
        args: Ec2RunnersArgs,
        arns: pulumi.Output[iam_policies.Arns],
        jobs: aws.dynamodb.Table,
        logs: Mapping[str, aws.cloudwatch.LogGroup],
        opts: pulumi.ResourceOptions,
    ) -> None:
        self._args, self._arns, self._logs, self._opts = args, arns, logs, opts
        github = args.config.github
        scope = f"{github.owner}/{github.repository}" if github.repository else github.owner
        self._environment = {"JOBS": jobs.name, "GITHUB_SCOPE": scope, "LABELS": ",".join(args.labels)}

    def webhook(self) -> pulumi.Output[str]:
        """Declare the webhook; return its URL."""
        config = self._args.config
        environment = {
            "OWN_LABELS": ",".join(config.labels),
            "WEBHOOK_SECRET": config.github.webhook_secret,
            "RETRIES": str(config.retries),
        }
        function = self._function("webhook", iam_policies.webhook, environment, 10, _DELIVERIES)
        name = f"{self._args.name}-webhook"
        url = aws.lambda_.FunctionUrl(name, function_name=function.name, authorization_type="NONE", opts=self._opts)
        # GitHub signs its calls but has no AWS identity, so the URL is open and the function checks the signature.
        # Since October 2025 an open URL takes both permissions ("Control access to Lambda function URLs").
        anyone = {"function": function.name, "principal": "*", "opts": self._opts}
        aws.lambda_.Permission(
            f"{name}-address",
            statement_id="address",
            action="lambda:InvokeFunctionUrl",
            function_url_auth_type="NONE",
            **anyone,
        )
        aws.lambda_.Permission(
            f"{name}-invoke",
            statement_id="invoke",
            action="lambda:InvokeFunction",
            invoked_via_function_url=True,
            **anyone,
        )
        address: pulumi.Output[str] = url.function_url
        return address

    def keeper(self, groups: Mapping[str, aws.autoscaling.Group], runner: aws.iam.Role) -> None:
        """Declare the keeper of the groups, whose machines have the role ``runner``, and its schedule and alarm."""
        config = self._args.config
        rules = {
            "least": config.min_runners,
            "most": config.max_runners,
            "patience": config.spot_patience * 60,
            "idle": config.idle * 60,
            "boot": config.boot * 60,
            "lifetime": config.max_lifetime * 24 * 3600,
        }
        environment = {
            "NAME": self._args.name,
            "GROUPS": pulumi.Output.json_dumps({kind: group.name for kind, group in groups.items()}),
            "RULES": json.dumps(rules),
            "RUNNER_GROUP": str(config.github.group),
            "RUNNER_ROLE": runner.unique_id,
            "CONFIGS": self._args.runner_configs,
            "HOOK": LEAVE_HOOK,
            "METRICS": METRICS,
            "GITHUB_API": config.github.api,
            "GITHUB_SECRET": config.github.secret,
        }
        function = self._function("keeper", lambda arns: iam_policies.keeper(arns, METRICS), environment, 55, 1)
        name = f"{self._args.name}-keeper"
        rule = aws.cloudwatch.EventRule(
            name, name=name, schedule_expression="rate(1 minute)", tags=self._args.tags, opts=self._opts
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
        # A failed round is not repeated: the next one does everything that is due. Two rounds never overlap: only one
        # is admitted at a time (reserved concurrency), even where the schedule fires twice.
        never: dict[str, Any] = {"maximum_retry_attempts": 0, "maximum_event_age_in_seconds": 60}
        aws.lambda_.FunctionEventInvokeConfig(name, function_name=function.name, **never, opts=self._opts)
        aws.cloudwatch.EventTarget(
            name, rule=rule.name, target_id="keeper", arn=function.arn, retry_policy=never, opts=self._opts
        )
        self._alarm()

    def _function(
        self,
        name: str,
        policy: Callable[[iam_policies.Arns], iam_policies.Policy],
        environment: Mapping[str, pulumi.Input[str]],
        seconds: int,
        at_once: int,
    ) -> aws.lambda_.Function:
        """Declare a function, its role and the role's policy.

        ``seconds`` is its timeout, and ``at_once`` the most calls that run at a time.
        """
        full = f"{self._args.name}-{name}"
        role = aws.iam.Role(
            full,
            name=full,
            assume_role_policy=json.dumps(iam_policies.trust("lambda.amazonaws.com")),
            permissions_boundary=self._args.config.permissions_boundary,
            tags=self._args.tags,
            opts=self._opts,
        )
        document = self._arns.apply(lambda arns: json.dumps(policy(arns)))
        allowed = aws.iam.RolePolicy(full, name=name, role=role.name, policy=document, opts=self._opts)
        code: dict[str, pulumi.Asset | pulumi.Archive] = {
            f"scaler/{file}": pulumi.StringAsset(text) for file, text in self._args.code.items()
        }
        return aws.lambda_.Function(
            full,
            name=full,
            role=role.arn,
            runtime=_RUNTIME,
            architectures=["arm64"],
            handler=f"scaler.{name}.handle",
            code=pulumi.AssetArchive(code),
            timeout=seconds,
            memory_size=256,
            reserved_concurrent_executions=at_once,
            environment={"variables": {**self._environment, **environment}},
            logging_config={"log_format": "Text", "log_group": self._logs[name].name},
            tags=self._args.tags,
            opts=pulumi.ResourceOptions.merge(self._opts, pulumi.ResourceOptions(depends_on=[allowed])),
        )

    def _alarm(self) -> None:
        """Declare the alarm: a job has waited too long for a runner, or the keeper has stopped measuring."""
        alarm = self._args.config.alarm
        topics = [alarm.topic] if alarm.topic else []
        aws.cloudwatch.MetricAlarm(
            f"{self._args.name}-queued",
            name=f"{self._args.name}-queued",
            alarm_description=f"A job waits {alarm.minutes} minutes for a runner, or the keeper is silent.",
            namespace=METRICS,
            metric_name="LongestQueued",
            dimensions={"Runners": self._args.name},
            statistic="Maximum",
            period=60,
            evaluation_periods=3,
            comparison_operator="GreaterThanThreshold",
            threshold=alarm.minutes * 60,
            treat_missing_data="breaching",
            alarm_actions=topics,
            ok_actions=topics,
            tags=self._args.tags,
            opts=self._opts,
        )
