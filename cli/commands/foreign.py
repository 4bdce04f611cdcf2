"""A command for anybody's Dockerfile: ``key``."""

from __future__ import annotations

import json
import platform as machine
from pathlib import Path

import click

from cli.command_line import command
from containers.errors import SlipwayError


@command(
    ("slipway key Dockerfile", "the last stage, from the folder of the Dockerfile"),
    ("slipway key docker/Dockerfile --context . --target runtime --build-arg PYTHON=3.12", "as docker build takes it"),
    ("slipway key Dockerfile --json", "which files and arguments are in it, and what may move without it"),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", metavar="STAGE", help="The stage to build.  [default: the last]")
@click.option(
    "--context",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The build context.  [default: the folder of FILE]",
)
@click.option(
    "--build-arg", "arguments", metavar="NAME=VALUE", multiple=True, help="A build argument; may be repeated."
)
@click.option("--platform", metavar="PLATFORM", help="The platform to build for.  [default: this machine's]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def key(
    file: Path,
    target: str | None,
    context: Path | None,
    arguments: tuple[str, ...],
    platform: str | None,
    *,
    as_json: bool,
) -> None:
    """Print the key of a Dockerfile's build: equal keys build the same.

    It is made of what the build of the target reads: the instructions of the reached stages, the files in their COPYs
    and mounts, and their declared arguments. Comments, other stages and other files do not count. An image or address
    without a digest counts by its name: --json lists them as `outside`.
    """
    from containers.dockerfile.build_key import build_key

    context = context or file.absolute().parent
    for path, there in ((file, file.is_file()), (context, context.is_dir())):
        if not there:
            raise SlipwayError(f"{path}: there is no such {'Dockerfile' if path == file else 'folder for --context'}")
    given = {}
    for word in arguments:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SlipwayError(f"--build-arg {name}: expected NAME=VALUE")
        given[name] = value
    own = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(machine.machine(), "linux/amd64")
    result = build_key(file, context, target, given, platform or own)
    print(json.dumps(result.as_json(), indent=2) if as_json else result.key)
