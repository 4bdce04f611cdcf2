"""Commands for stack files: ``new``, ``check``, ``lock``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import completion
from cli.command_line import command
from stacks.config.stack_file import ROOT

if TYPE_CHECKING:
    from stacks.plan import Plan


@command(
    ("slipway new mine --flavor nccl cuda=12.9.1 torch.version=2.15.0", "what is left out has its default"),
    ("slipway new mine --flavor local 'registry={kind: ghcr, repository: ghcr.io/acme/images}'", "a block at once"),
    ("slipway new mine", "on a terminal: asks, with the choices that go together"),
    ("slipway new mine --from values.yaml", "the runners that ARC's chart has with these values"),
    ("slipway new mine --from main.tf", "the runners on EC2 that terraform-aws-github-runner has"),
)
@click.argument("stack")
@click.argument("values", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=completion.keys)
@click.option("--flavor", metavar="FLAVOR", shell_complete=completion.flavors, help="Which family of images it builds.")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Values of ARC's chart gha-runner-scale-set, or a .tf, .tfvars or their .json of terraform-aws-github-runner.",
)
def new(stack: str, values: tuple[str, ...], flavor: str | None, source: Path | None) -> None:
    """Check values, and write a stack file with them.

    Where another stack would have equal tags for other images, it adds a tagSuffix. On a terminal it asks for what is
    missing. Lists and blocks are written as in YAML: [a, b], {key: value}. The keys
    are those of `slipway explain`. With --from, it names each key of the chart or variable of the module that it cannot
    take, and each key that is still to be filled in.
    """
    from cli.keys import new_stack, questions
    from containers.errors import SlipwayError

    new_stack.check_name(stack)
    lines: list[str] = []
    chosen = new_stack.assigned(values)
    if source is not None:
        from cli.keys import arc_values, terraform_values

        if terraform_values.is_terraform(source):
            translated, lines = terraform_values.terraform_values(source, chosen)
        else:
            profile = chosen.get("runners", {}).get("profile", "")
            translated, left = arc_values.arc_values(source, profile)
            lines = [f"not taken: {line}" for line in left]
        chosen = new_stack.merged(translated, chosen)
    if flavor is not None and chosen.setdefault("flavor", flavor) != flavor:
        raise SlipwayError(f"--flavor {flavor}: flavor={chosen['flavor']} is given too; give one of the two")
    if source is None and sys.stdin.isatty() and sys.stderr.isatty():
        chosen = questions.complete(chosen)
    path = new_stack.write(stack, chosen)
    print(*lines, sep="\n", end="\n" * bool(lines))
    unfilled = any(line.startswith("fill in: ") for line in lines)
    print(
        f"{path.relative_to(ROOT)}: written; next: {'fill in those keys, then slipway check and ' if unfilled else ''}"
        f"slipway preview {stack}"
    )


@command(
    ("slipway check", "after any change of a stack file"),
    ("slipway check mine", "likewise, and only the line of `mine` is printed"),
    ("slipway check --locked local", "likewise, and parents, sources and Python packages of `local` are pinned"),
    ("slipway check --json", "the stacks and the mistakes, for a program"),
)
@click.argument("stacks", metavar="[STACK]...", nargs=-1, shell_complete=completion.stacks)
@click.option("--locked", is_flag=True, help="Refuse what stacks/lock.toml does not pin, in all stacks or those named.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def check(ctx: click.Context, stacks: tuple[str, ...], *, locked: bool, as_json: bool) -> None:
    """Validate every stack, and what stacks share. The lines are of the STACKs alone; mistakes are of all.

    Stacks that are valid each may have one tag for different images.
    """
    from cli import stack_checks
    from stacks.config.stack_file import read_stack, stack_names

    for stack in stacks:
        read_stack(stack)
    pinned = (stacks or stack_names()) if locked else ()
    valid: list[dict[str, Any]] = []

    def each(planned: Plan) -> None:
        if stacks and planned.stack not in stacks:
            return
        if as_json:
            valid.append(stack_checks.as_json(planned))
        else:
            stack_checks.report(planned)

    mistakes = stack_checks.check(pinned, each)
    if as_json:
        print(json.dumps({"stacks": valid, "mistakes": mistakes}, indent=2))
    elif mistakes:
        print(*mistakes, sep="\n", file=sys.stderr)
    ctx.exit(1 if mistakes else 0)


@command(
    ("slipway lock", "what all stacks fetch and the lock lacks; all else keeps its tag"),
    ("slipway lock --packages local", "the packages alone that one stack adds; its parents stay unlocked"),
    ("slipway lock --upgrade local", "what one stack fetches, as it is newest now; others keep what they have"),
    ("slipway lock --refresh", "likewise of all, and upgraded packages of the distribution in the images"),
)
@click.argument("stacks", metavar="[STACK]...", nargs=-1, shell_complete=completion.stacks)
@click.option("--upgrade", is_flag=True, help="Take what is newest now in place of what is locked.")
@click.option("--refresh", is_flag=True, help="Likewise, and write today's date: images upgrade their packages.")
@click.option("--packages", is_flag=True, help="Write the Python packages that stacks add alone; keep all else.")
@click.option(
    "--reachable", is_flag=True, help="Write what can be had; list what a host does not say, and exit with 1."
)
def lock(stacks: tuple[str, ...], *, upgrade: bool, refresh: bool, packages: bool, reachable: bool) -> None:
    """Write the digests of outside parents, the commits of git tags and branches, and the hashes of Python packages.

    What is locked stays, unless `--upgrade` or `--refresh` asks for what is newest.
    """
    from cli.locking import lock_file

    if refresh and packages:
        raise click.UsageError("--refresh rebuilds the images that --packages keeps: give one of them")
    for line in lock_file.update(stacks, upgrade=upgrade, refresh=refresh, reachable=reachable, added=packages):
        print(line)
