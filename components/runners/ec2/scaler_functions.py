"""The Lambda functions that scale the runners: GitHub's webhook, and the keeper that runs each minute, or listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pulumi
import pulumi_aws as aws

from components.runners.ec2 import iam_policies
from components.runners.ec2.runner_args import Ec2RunnersArgs
from components.runners.ec2.scaling_groups import LEAVE_HOOK, group_name
from components.runners.ec2.user_data import configs_table, machine_arns
from stacks.checks.reservations import ALARM_DAYS
from stacks.config.ec2 import Ec2RunnersConfig

METRICS = "Slipway/Runners"
"""The namespace of the keeper's metrics."""

_RUNTIME = "python3.13"

_LISTENS = 900
"""Seconds until Lambda ends a listener, at most: it ends by itself a minute before, for its last round."""

_DELIVERIES = 20
"""Most deliveries at a time: some 200 a second, and a bound on what strangers can have the webhook cost."""


_YEARS = range(2026, 2041)
"""Years whose changes of clocks the keeper is told; after them, the last offset counts until the next update."""


def clock_changes(zone: str) -> list[tuple[int, int]]:
    """Return when a zone's clocks change, in seconds since 1970, with the seconds by which they are then ahead."""
    clocks = ZoneInfo(zone)

    def ahead(at: int) -> int:
        offset = datetime.fromtimestamp(at, clocks).utcoffset()
        return int(offset.total_seconds()) if offset else 0

    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (_YEARS.start, _YEARS.stop))
    changes = [(0, ahead(first))]
    for day in range(first, last, 86400):
        if ahead(day + 86400) != ahead(day):
            # Clocks change at a full quarter of an hour.
            at = next(at for at in range(day, day + 86401, 900) if ahead(at) != changes[-1][1])
            changes.append((at, ahead(at)))
    return changes


class ScalerFunctions:
    """Declares the functions, each with its role, and the alarm on what the keeper measures.

    ``args`` are of what all ``sets`` share. ``arns`` are the resources that the functions' policies name, and ``logs``
    has each function's log group. Every resource gets ``opts``.
    """

    def __init__(
        self,
        args: Ec2RunnersArgs,
        sets: Sequence[Ec2RunnersArgs],
        arns: pulumi.Output[iam_policies.Arns],
        logs: Mapping[str, aws.cloudwatch.LogGroup],
        opts: pulumi.ResourceOptions,
    ) -> None:
        self._args, self._sets, self._arns, self._logs, self._opts = args, sets, arns, logs, opts
        github = args.config.github
        scope = f"{github.owner}/{github.repository}" if github.repository else github.owner
        self._environment = {"GITHUB_SCOPE": scope}

    def webhook(self) -> pulumi.Output[str]:
        """Declare the webhook; return its URL."""
        config = self._args.config
        environment = {
            **self._table(self._args),
            "OWN_LABELS": ",".join(config.labels),
            "WEBHOOK_SECRET": str(config.github.webhook_secret),
            "RETRIES": str(config.retries),
        }
        function = self._function("webhook", "webhook", iam_policies.webhook, environment, 10, _DELIVERIES)
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

    def keeper(self) -> None:
        """Declare the keeper of all sets, and its schedule and alarms."""
        config = self._args.config
        # Lambda takes 4 KB of variables, which many sets do not fit into: these are a file beside the code.
        of_sets = {own.config.scale_set: self._variables(own) for own in self._sets}
        own = {} if config.sets else of_sets[""]
        files = {"sets.json": json.dumps(of_sets, indent=1)} if config.sets else {}
        environment = {
            **own,
            **self._listener(),
            "CONFIGS": configs_table(self._args.stack),
            "MACHINES": machine_arns(config),
            "HOOK": LEAVE_HOOK,
            "METRICS": METRICS,
            "GITHUB_API": config.github.api,
            "GITHUB_SECRET": config.github.secret,
        }
        code, seconds = ("listening.listener", _LISTENS) if config.listens else ("keeper", 55)
        policy = partial(iam_policies.keeper, namespace=METRICS)
        function = self._function("keeper", code, policy, environment, seconds, 1, files)
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
        for each in self._sets:
            self._alarms(each)

    def _table(self, own: Ec2RunnersArgs) -> dict[str, str]:
        """Return the variables of the jobs of a set, and of the labels of its runners."""
        return {"JOBS": own.jobs, "LABELS": ",".join(own.labels)}

    def _variables(self, own: Ec2RunnersArgs) -> dict[str, str]:
        """Return the keeper's variables for one set: what differs between sets."""
        config = own.config
        rules = {
            "least": config.min_runners,
            "most": config.max_runners,
            "patience": config.spot_patience * 60,
            "idle": config.idle * 60,
            "boot": config.boot * 60,
            "lifetime": config.max_lifetime * 24 * 3600,
        }
        kinds = [*(each.id for each in own.site.reservations), *config.kinds]
        labels = [*([config.scale_set] if config.scale_set else []), *config.labels]
        return {
            **self._table(own),
            "NAME": own.name,
            "GROUPS": json.dumps({kind: group_name(own, kind) for kind in kinds}),
            "RULES": json.dumps(rules),
            **_reservations(own),
            **schedule(config),
            **({"OWN_LABELS": ",".join(labels)} if config.listens else {}),
            **({"SCALE_SET": config.scale_set} if config.scale_set else {}),
            "RUNNER_GROUP": str(config.group),
        }

    def _listener(self) -> dict[str, str]:
        """Return the variables of the listener, where the keeper is one."""
        config = self._args.config
        if not config.listens:
            return {}
        own = {"GITHUB_URL": config.github.url, "RETRIES": str(config.retries)}
        return own | ({"WEBHOOK": "too"} if config.github.webhook_secret else {})

    def _function(
        self,
        name: str,
        module: str,
        policy: Callable[[iam_policies.Arns], iam_policies.Policy],
        environment: Mapping[str, pulumi.Input[str]],
        seconds: int,
        at_once: int,
        files: Mapping[str, str] | None = None,
    ) -> aws.lambda_.Function:
        """Declare a function, its role and the role's policy.

        ``module`` has its code, ``seconds`` is its timeout, and ``at_once`` the most calls that run at a time.
        ``files`` are beside the code.
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
            f"scaler/{file}": pulumi.StringAsset(text) for file, text in {**self._args.code, **(files or {})}.items()
        }
        return aws.lambda_.Function(
            full,
            name=full,
            role=role.arn,
            runtime=_RUNTIME,
            architectures=["arm64"],
            handler=f"scaler.{module}.handle",
            code=pulumi.AssetArchive(code),
            timeout=seconds,
            memory_size=512 if files else 256,  # a thread or two for each set
            reserved_concurrent_executions=at_once,
            environment={"variables": {**self._environment, **environment}},
            logging_config={"log_format": "Text", "log_group": self._logs[name].name},
            tags=self._args.tags,
            opts=pulumi.ResourceOptions.merge(self._opts, pulumi.ResourceOptions(depends_on=[allowed])),
        )

    def _alarms(self, own: Ec2RunnersArgs) -> None:
        """Declare the alarms: a job has waited too long, the keeper is silent, or a reservation ends soon."""
        longest = self._args.config.alarm.minutes
        self._alarm(
            own,
            "queued",
            f"A job waits {longest} minutes for a runner, or the keeper is silent.",
            metric_name="LongestQueued",
            dimensions={},
            statistic="Maximum",
            period=60,
            evaluation_periods=3,
            comparison_operator="GreaterThanThreshold",
            threshold=longest * 60,
            treat_missing_data="breaching",
        )
        for each in own.site.reservations:
            for days in ALARM_DAYS:
                # The last one is raised, too, where a reservation without an end is cancelled.
                if days != ALARM_DAYS[-1] and (each.ends is None or each.lasts <= timedelta(days=days)):
                    continue
                self._alarm(
                    own,
                    f"{each.id}-{days}",
                    f"The reservation {each.id} of {each.instance_type} ends within {days} days, or is over.",
                    metric_name="ReservationHoursLeft",
                    dimensions={"Reservation": each.id},
                    statistic="Minimum",
                    period=300,
                    evaluation_periods=1,
                    comparison_operator="LessThanThreshold",
                    threshold=days * 24,
                    treat_missing_data="ignore",  # the keeper is silent: the first alarm says so
                )

    def _alarm(
        self, own: Ec2RunnersArgs, name: str, description: str, *, dimensions: Mapping[str, str], **rule: Any
    ) -> None:
        topics = [self._args.config.alarm.topic] if self._args.config.alarm.topic else []
        aws.cloudwatch.MetricAlarm(
            f"{own.name}-{name}",
            name=f"{own.name}-{name}",
            alarm_description=description,
            namespace=METRICS,
            dimensions={"Runners": own.name, **dimensions},
            **rule,
            alarm_actions=topics,
            ok_actions=topics,
            tags=self._args.tags,
            opts=self._opts,
        )


def _reservations(own: Ec2RunnersArgs) -> dict[str, str]:
    """Return the variable with the reservations of a set as they are today, where there are some."""
    requested = own.config.reservation
    if requested is None:
        return {}
    known = {
        each.id: {
            "count": each.count,
            "ends": each.ends.timestamp() if each.ends else None,
            "lead": each.lead(requested.drain).total_seconds(),
        }
        for each in own.site.reservations
    }
    return {"RESERVATIONS": json.dumps(known)}


def schedule(config: Ec2RunnersConfig) -> dict[str, str]:
    """Return the variable with the schedule of a set's minimum, where there is one."""
    entries = [row.entry() for row in config.schedule]
    zones = {row.time_zone: clock_changes(row.time_zone) for row in config.schedule}
    return {"SCHEDULE": json.dumps({"zones": zones, "entries": entries})} if entries else {}
