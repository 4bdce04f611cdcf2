"""Commands for the runners of a stack: ``runners status``, ``runners reservations``, ``runners dashboard``."""

from __future__ import annotations

import json

import click

from cli import completion
from cli.command_line import command
from stacks.config.stack_file import ROOT


@command(
    ("slipway runners status runners-eks", "each job of the runners, how far it has come, and why it waits"),
    ("slipway runners status runners-eks --repository acme/images", "with the jobs that GitHub has queued"),
    ("slipway runners status runners-eks --metrics", "the same as OpenMetrics, for Prometheus"),
    ("slipway runners reservations", "when reserved machines of all stacks end; fails on the days to act"),
    ("slipway runners dashboard", "a dashboard for Grafana of these metrics"),
)
@click.argument(
    "what", metavar="status | reservations | dashboard", type=click.Choice(["status", "reservations", "dashboard"])
)
@click.argument("stack", required=False, shell_complete=completion.stacks)
@click.option("--repository", metavar="OWNER/NAME", help="Ask GitHub for its queue, with the token in GH_TOKEN.")
@click.option("--json", "form", flag_value="json", help="Print JSON, for programs.")
@click.option("--metrics", "form", flag_value="metrics", help="Print OpenMetrics, for Prometheus.")
@click.pass_context
def runners(ctx: click.Context, what: str, stack: str | None, repository: str | None, form: str | None) -> None:
    """Say why each job of a stack's runners waits, when their reserved machines end, or print a dashboard.

    For each job: when it was queued, assigned to these runners, a machine or pod requested for it, that booted, its
    runner registered, and the job started; and the cause where it stands. Runners in a cluster are read with kubectl,
    those on EC2 from what their keeper writes each minute.

    `reservations` asks EC2 alone, for one stack or all. It exits with 1 if one ends in 14, 3 or 1 days, or in a
    day less, or is of no use: run it each day.
    """
    from cli.runners import metrics, reserved_machines, runner_status

    if what == "dashboard":
        if stack or repository or form:
            raise click.UsageError("a dashboard is for all stacks: leave out what follows")
        print(json.dumps(metrics.dashboard(), indent=2))
        return
    if what == "reservations":
        if repository or form:
            raise click.UsageError("reservations are asked of EC2: leave out what follows the STACK")
        ends = reserved_machines.of_stacks([stack] if stack else None, ROOT)
        print(*(line for each in ends for line in each.lines), sep="\n", end="\n" * bool(ends))
        ctx.exit(1 if any(each.is_due for each in ends) else 0)
    if stack is None:
        raise click.UsageError("name the STACK")
    report = runner_status.report(stack, ROOT, repository)
    if form == "json":
        print(json.dumps(report.as_json(), indent=2))
    elif form == "metrics":
        print(metrics.openmetrics(report), end="")
    else:
        print(*runner_status.lines(report), sep="\n")
