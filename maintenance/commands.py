"""What maintainers run: ``python -m maintenance``, with the help and the errors of ``slipway``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from cli.command_line import Sections, command
from cli.main import slipway
from stacks.config.stack_file import ROOT


@command(
    ("python -m maintenance refresh", "all tables that a public source can be asked for"),
    ("python -m maintenance refresh nccl cudnn --dry-run", "two of them; nothing is written"),
)
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Show what is new, and write nothing.")
@click.pass_context
def refresh(ctx: click.Context, tables: tuple[str, ...], *, dry_run: bool) -> None:
    """Add the releases that public sources have to the tables of stacks/versions.

    What is new is shown as a diff below its source. A line with a question mark is a release that the source says
    too little of: its row is for you to write. No row is changed or removed. Exits with 1 where a source could not be
    asked; its table stays as it is.
    """
    from maintenance.refresh.refresh import news, write

    every = []
    for entry in news(tables):
        every.append(entry)
        print("\n".join(entry.lines), flush=True)
    if not dry_run:
        for line in write(every):
            print(line)
    ctx.exit(1 if any(entry.error for entry in every) else 0)


@command(
    ("python -m maintenance upstream", "all of them, at every version that a stack uses"),
    ("python -m maintenance upstream nccl --at v2.31.1-1", "before a pinned version moves"),
    ("python -m maintenance upstream hpcx --from hpcx-v2.26-cuda13-x86_64.tbz", "an archive"),
)
@click.argument("components", metavar="[COMPONENT]...", nargs=-1)
@click.option("--at", "tag", metavar="TAG", help="A tag or commit instead of those that the stacks use.")
@click.option(
    "--from",
    "folder",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A git repository, a folder with the files, or an archive, instead of GitHub.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def upstream(
    ctx: click.Context, components: tuple[str, ...], tag: str | None, folder: Path | None, *, as_json: bool
) -> None:
    """Check that upstream sources still have our recipes' prerequisites.

    Exits with 1 if one does not. A git repository is read at its tags, not as it is checked out. Other files are
    those of --at, else of the newest version that a stack uses.
    """
    from maintenance.upstream.upstream import results

    if (tag or folder) and not components:
        raise click.UsageError("--at and --from take the names of components", ctx)
    every = []
    for contract, result in results(components, tag, folder):
        every.append((contract, result))
        if not as_json:
            for line in result.lines(contract):
                print(line, flush=True)
    if as_json:
        print(json.dumps([result.as_json(contract) for contract, result in every], indent=2))
    ctx.exit(1 if any(result.broken or (result.error and not result.skipped) for _, result in every) else 0)


@command(("python -m maintenance schema", "after a change of the models"))
def schema() -> None:
    """Update Pulumi.yaml's config block and the JSON schema of stack files."""
    from maintenance.generated import generated_files

    files = generated_files.schemas()
    changed = generated_files.write(files)
    for path in files:
        print(f"{path.relative_to(ROOT)}: {'updated' if path in changed else 'already up to date'}")


@command(("python -m maintenance docs", "after a change of a key, an argument or a command"))
def docs() -> None:
    """Update the tables in the images' READMEs, and the pages of docs/reference."""
    from maintenance.generated import generated_files

    for path in generated_files.write(generated_files.pages(slipway)):
        print(f"{path.relative_to(ROOT)}: updated")


maintenance: Final = Sections(
    "maintenance",
    sections={"Tables and recipes": [refresh, upstream], "Generated files": [schema, docs]},
    help="Renew Slipway's tables, check its recipes against their sources, and write its generated files.",
)
