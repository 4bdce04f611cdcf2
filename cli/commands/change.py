"""Commands for stack files: ``check``, ``lock``."""

from __future__ import annotations

import sys

import click

from cli import completion
from cli.command_line import Command


@click.command(cls=Command, examples=[("slipway check", "after any change of a stack file")])
@click.pass_context
def check(ctx: click.Context) -> None:
    """Validate every stack, and what stacks share."""
    from cli import stack_checks

    if mistakes := stack_checks.check():
        print(*mistakes, sep="\n", file=sys.stderr)
        ctx.exit(1)


@click.command(
    cls=Command,
    examples=[
        ("slipway lock", "the parents of all stacks"),
        ("slipway lock local", "the parents of one stack; others keep their digests"),
        ("slipway lock --refresh", "likewise all, and upgrade the distribution's packages in the images"),
    ],
)
@click.argument("stacks", metavar="[STACK]...", nargs=-1, shell_complete=completion.stacks)
@click.option("--refresh", is_flag=True, help="Write today's date too, so that images upgrade their packages anew.")
def lock(stacks: tuple[str, ...], *, refresh: bool) -> None:
    """Write the digests of outside parents, and the commits of branches, to stacks/lock.toml."""
    from cli import lock_file

    for line in lock_file.update(stacks, refresh=refresh):
        print(line)
