"""Commands for the host of a repository: ``github init``."""

from __future__ import annotations

import json

import click

from cli.command_line import command
from stacks.config.stack_file import ROOT, stack_names


@command(
    (
        "slipway github init --backend 's3://acme-pulumi?region=eu-west-1'",
        "print the commands that let the repository's jobs publish",
    ),
    ("slipway github init --backend https://api.pulumi.com --check", "say what is missing, and change nothing"),
    ("slipway github init --backend https://api.pulumi.com --check --json", "the same for a program"),
    json="{steps: [{title, commands: [], missing}]}",
)
@click.argument("what", metavar="init", type=click.Choice(["init"]))
@click.option("--backend", metavar="URL", required=True, help="Where Pulumi's state is: PULUMI_BACKEND_URL.")
@click.option("--secrets-provider", metavar="URL", default="", help="What encrypts it: PULUMI_SECRETS_PROVIDER.")
@click.option("--repository", metavar="OWNER/NAME", help="At github.com.  [default: that of the remote origin]")
@click.option("--stack", "stacks", metavar="STACK", multiple=True, help="A stack to publish.  [default: all]")
@click.option(
    "--check", is_flag=True, help="Ask GitHub and the cloud, change nothing, and exit with 1 if a step is missing."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone, for programs.")
@click.pass_context
def github(
    ctx: click.Context,
    what: str,  # noqa: ARG001 - the one word that there is
    backend: str,
    secrets_provider: str,
    repository: str | None,
    stacks: tuple[str, ...],
    *,
    check: bool,
    as_json: bool,
) -> None:
    """Print the commands that let a repository's jobs publish, or say which of them are missing.

    They make the environment `publish` for the branch main, what its jobs are in a cloud (a role in AWS, an app in
    Azure, a service account in Google) with the least rights on the stacks' registries and the state, and the
    variables of the workflows. In a fork of Slipway, they also make the environment `release` for the tags of its
    releases. Write them to a file, read it, and run it with `sh`: they are for `gh`, and for `aws`, `az` or
    `gcloud`, with the logins of an owner. Each is explained in docs/guides/github-actions.md. In JSON, each command
    stands alone and ends at its first failure; `missing` is null without --check, and empty for what is there.
    """
    from cli.github import publishing_setup
    from cli.github.setup_step import FIRST
    from stacks import plan
    from stacks.identity.git import git
    from stacks.places import CODE

    name = publishing_setup.repository_of(repository or git(ROOT, "remote", "get-url", "origin") or "")
    registries = [plan.resolve(stack)[0].registry for stack in stacks or stack_names()]
    steps = [*publishing_setup.steps(name, registries, backend, secrets_provider, releases=CODE == ROOT)]
    if as_json:
        listed = [
            {"title": step.title, "commands": [step.alone()], "missing": step.missing() if check else None}
            for step in steps
        ]
        print(json.dumps({"steps": listed}, indent=2))
        ctx.exit(int(any(each["missing"] for each in listed)))
    if not check:
        print(*FIRST, sep="\n")
        for step in steps:
            print(f"\n# {step.title}", *step.commands, sep="\n")
        return
    missing = 0
    for step in steps:
        fault = step.missing()
        missing += bool(fault)
        print(f"{'missing' if fault else 'ok':<9}{step.title}{f': {fault}' if fault else ''}", flush=True)
    ctx.exit(1 if missing else 0)
