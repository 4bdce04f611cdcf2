"""Commands for those who change Slipway itself: ``docs`` and ``schema`` write what is generated."""

from __future__ import annotations

from typing import cast

import click

from cli.command_line import Command, Sections
from stacks.config.stack_file import ROOT


@click.command(cls=Command, examples=[("slipway schema", "after a change of the models")])
def schema() -> None:
    """Update Pulumi.yaml's config block and the JSON schema of stack files."""
    from maintenance.generated import generated_files

    files = generated_files.schemas()
    changed = generated_files.write(files)
    for path in files:
        print(f"{path.relative_to(ROOT)}: {'updated' if path in changed else 'already up to date'}")


@click.command(cls=Command, examples=[("slipway docs", "after a change of a key, an argument or a command")])
@click.pass_context
def docs(ctx: click.Context) -> None:
    """Update the tables in the images' READMEs, and the pages of docs/reference."""
    from maintenance.generated import generated_files

    for path in generated_files.write(generated_files.pages(cast("Sections", ctx.find_root().command))):
        print(f"{path.relative_to(ROOT)}: updated")
