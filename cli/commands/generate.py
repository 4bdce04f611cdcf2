"""Commands for those who change Slipway itself: ``docs`` and ``schema`` write what is generated."""

from __future__ import annotations

import click

from cli.command_line import Command
from stacks.config.stack_file import ROOT


@click.command(cls=Command, examples=[("slipway schema", "after a change of the models")])
def schema() -> None:
    """Bring Pulumi.yaml's config block up to date."""
    from cli.generated import pulumi_project

    print("Pulumi.yaml: updated" if pulumi_project.write(ROOT / "Pulumi.yaml") else "Pulumi.yaml: already up to date")


@click.command(cls=Command, examples=[("slipway docs", "after a change of a key, an argument or a command")])
def docs() -> None:
    """Bring the tables in the images' READMEs up to date."""
    from cli.generated import readme_tables

    for path in readme_tables.write():
        print(f"{path.relative_to(ROOT)}: updated")
