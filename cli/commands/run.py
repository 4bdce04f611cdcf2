"""Commands that run a stack on this machine: they are the verbs of `make`, and need no other word for them."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

from cli import completion
from cli.command_line import command
from containers.errors import SlipwayError
from stacks.config.stack_file import ROOT, read_stack
from stacks.places import CODE

_STACK = click.argument("stack", default="local", shell_complete=completion.stacks)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON alone, for programs.")
_YES = click.option("--yes", is_flag=True, help="Do it without asking.")


def _toolchain(*words: str) -> NoReturn:
    """Go on as the toolchain, which also makes this machine ready: by the Python that made the environment."""
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    os.chdir(CODE)  # where `-m` finds it
    os.execv(python, [str(python), "-m", "toolchain", *words])  # noqa: S606 - this process goes on as the toolchain


def _words(*, as_json: bool, **flags: bool) -> list[str]:
    """Return flags as the toolchain takes them."""
    return [f"--{name}" for name, given in {"json": as_json, **flags}.items() if given]


def _agreed(question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere --yes says it. Raises SlipwayError: there is no terminal, and no --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise SlipwayError(f"{question} There is no terminal to ask on: --yes does it without asking")
    click.confirm(question, abort=True)


@command(("slipway up", "the stack `local`"), ("slipway up nccl-cu132", "another stack"))
@_STACK
def up(stack: str) -> None:
    """Build and publish the images of a stack. It gets what is missing on this machine first."""
    read_stack(stack)
    _toolchain("up", "--", stack)


@command(
    ("slipway preview nccl-cu132", "what `slipway up nccl-cu132` would change"),
    ("slipway preview nccl-cu132 --json", "the same for a program"),
    json="{stack, changes: [{kind, name, operation, tag, values: [{path: [], old, new}]}], unchanged: [], outputs: "
    "[{path: [], old, new}], warnings: [], counts: {create, update, replace, delete, same}}",
)
@_STACK
@_JSON
def preview(stack: str, *, as_json: bool) -> None:
    """Say what `slipway up` would change, and build nothing.

    In JSON, a change's kind is `image`, `checks` or a resource's type. A secret is `[secret]`.
    """
    read_stack(stack)
    _toolchain("preview", *_words(as_json=as_json), "--", stack)


@command(
    ("slipway destroy local", "asks first"),
    ("slipway destroy local --yes", "without asking; `slipway prune` then frees the disk"),
)
@click.argument("stack", shell_complete=completion.stacks)
@_YES
def destroy(stack: str, *, yes: bool) -> None:
    """Delete what a stack has made in clouds and clusters. Its file, its history and its images stay.

    Published images stay in their registry, for who uses them by digest. `slipway prune` frees this machine's.
    """
    from cli.runners import hasty_destroy

    if line := hasty_destroy.check(stack, read_stack(stack)):
        print(line, file=sys.stderr)
    _agreed(f"Destroy what stack {stack} has made? Its file and its published images stay.", yes=yes)
    _toolchain("destroy", "--", stack)


@command(
    ("slipway history local", "each update, the newest first"),
    ("slipway history local --json", "the same for a program"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def history(stack: str, *, as_json: bool) -> None:
    """List a stack's updates, each with its time, commit and result."""
    from cli.stack_updates import updates
    from cli.text_table import aligned

    read_stack(stack)
    listed = updates(stack, ROOT)
    if as_json:
        print(json.dumps([each.as_json() for each in listed], indent=2))
        return
    rows = [
        (
            str(each.number),
            datetime.fromisoformat(each.started).astimezone().strftime("%Y-%m-%d %H:%M"),
            each.kind,
            each.result,
            each.source,
            ", ".join(f"{count} {op}" for op, count in each.changes.items()) or "nothing changed",
        )
        for each in listed
    ]
    for line in aligned([("UPDATE", "WHEN", "KIND", "RESULT", "COMMIT", "CHANGES"), *rows]):
        print(line)


@command(
    ("slipway rollback local", "the last update with other files; then commit, and `slipway up local`"),
    ("slipway rollback local 3", "update 3 of `slipway history local`"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("update", type=click.IntRange(min=1), required=False)
def rollback(stack: str, update: int | None) -> None:
    """Bring the files of a stack back to those of an earlier update, and build nothing.

    These are its YAML, the lock, and what its images' builds read. Other stacks may read some: `slipway affected
    --since HEAD` says so. An update of uncommitted files cannot be brought back.
    """
    from cli.stack_updates import roll_back

    read_stack(stack)
    target, changed = roll_back(stack, ROOT, update)
    if not changed:
        print(f"stack {stack} has the files of update {target.number} (commit {target.source}) already")
        return
    print(f"stack {stack} has the files of update {target.number} (commit {target.source}) again:")
    for path in changed:
        print(f"  {path}")
    print(f"Commit them, then `slipway up {stack}`. `slipway affected --since HEAD` lists what they rebuild.")


@command(
    ("slipway prune", "list what no stack names, with sizes"),
    ("slipway prune --json", "the same for a program"),
    ("slipway prune --yes", "and delete it"),
    json="{contexts: {count, bytes}, registry: {address, tags: [], of, bytes, unfinishedBytes}, "
    "engine: {images: [{name, size}], cache}, statesWithoutFile: [], bytes, bytesAfter}",
)
@click.option("--yes", is_flag=True, help="Delete what is listed.")
@_JSON
def prune(*, yes: bool, as_json: bool) -> None:
    """List what takes room on this machine and no stack names; with --yes, delete it.

    That is: images and build cache of the engine that Slipway started, tags of its registry in no stack's state,
    `unchecked--` tags among them, contexts and logs of builds. An engine or registry of your own is left alone: it is
    null in JSON, and so is bytesAfter without --yes.
    """
    _toolchain("prune", *_words(yes=yes, as_json=as_json))


@command(("slipway down", "the next `slipway up` starts them again"))
def down() -> None:
    """End the Docker engine and the registry that Slipway started here. What they have stays."""
    _toolchain("down")


@command(("slipway init team", "then, in the folder team: `slipway check`, `slipway preview`, `slipway up`"))
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a repository of your own in a new folder. It pins this release, and has none of Slipway's code.

    A released wheel of Slipway makes it, in the environment of that wheel.
    """
    _toolchain("init", "--", str(folder.absolute()))


@command(
    ("slipway upgrade ./slipway-0.2.0-py3-none-any.whl", "say which images it would build anew, and why"),
    ("slipway upgrade 0.2.0 --json", "the one beside the pinned address; for a program"),
    ("slipway upgrade 0.2.0 --write", "say so, and then pin it in requirements.txt"),
    json="{from, to, stacks: {STACK: {anew: {IMAGE: []}, gone: [], kept: []}}, lock, written}",
)
@click.argument("release", metavar="WHEEL|VERSION", required=False)
@click.option("--write", is_flag=True, help="Pin the release, if it refuses no stack.")
@_JSON
def upgrade(release: str | None, *, write: bool, as_json: bool) -> None:
    """Say which images a newer release of Slipway would build anew, and why; with --write, pin it.

    This is for a repository of your own. A release is the file or the address of a wheel, or the version of the
    one beside the address that requirements.txt pins. No index is asked: PyPI has another project named slipway.
    The release's own code lists its images. Unchanged images keep their tags. In JSON, `lock` is the command that
    pins what the release fetches and stacks/lock.toml lacks, empty if it lacks nothing.
    """
    named = release or ""
    if named.endswith(".whl") and "://" not in named:
        named = os.path.abspath(named)  # noqa: PTH100 - a link stays as it is named
    _toolchain("upgrade", *_words(write=write, as_json=as_json), "--", *([named] if named else []))


@command(
    ("slipway doctor", "what is used, and why"),
    ("slipway doctor --json", "the same for a program"),
    json="{parts: [{name, used, version, why, missing}], platforms: {PLATFORM: }, platformsUnknown, bytes: {FOLDER: }}",
)
@_JSON
def doctor(*, as_json: bool) -> None:
    """Say which tools are used, and why, and how much room they take.

    It exits with 1 if a part is missing: in JSON, `missing` says why then, and is empty else.
    """
    _toolchain("doctor", *_words(as_json=as_json))
