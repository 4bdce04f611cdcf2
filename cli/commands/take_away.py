"""Commands that take an image elsewhere: ``export``, ``compose``, ``job``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from cli import completion
from cli.command_line import command, is_reference
from containers.errors import SlipwayError


@command(
    ("slipway export local --format tar --output torch.tar", "for `docker load`"),
    ("slipway export nccl-cu132 torch --format sqsh --output torch.sqsh", "for enroot"),
    ("slipway export local-multi --platform linux/arm64 --format oci --output torch", "for a Grace machine"),
    ("slipway export nccl-cu132 --wheels wheels", "the wheels that the stack built from source"),
    ("slipway export bake local", "then: (cd local-bake && docker buildx bake)"),
    ("slipway export dockerfile local torch", "one Dockerfile with its files; then: docker build local-torch"),
)
@click.argument(
    "targets",
    metavar="STACK [IMAGE] | REF | bake STACK | dockerfile STACK IMAGE",
    nargs=-1,
    required=True,
    shell_complete=completion.stack_then_image,
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["tar", "oci", "sqsh"]),
    help="An archive for `docker load`, an OCI layout, or a squashfs for enroot.",
)
@click.option("--output", metavar="FILE", type=Path, help="The file to write, or the folder for oci.")
@click.option("--wheels", metavar="DIR", type=Path, help="Write the wheels that the image is made of to this folder.")
@click.option("--platform", metavar="PLATFORM", help="The image or the wheels for this one, such as linux/arm64.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
def export(
    targets: tuple[str, ...],
    form: str | None,
    output: Path | None,
    wheels: Path | None,
    platform: str | None,
    *,
    force: bool,
) -> None:
    """Write an image, a stack's wheels, or what builds them without Slipway, to a file or a folder.

    Without IMAGE the stack's last image is written. `bake STACK` writes a bake file with its contexts, and `dockerfile
    STACK IMAGE` one Dockerfile with the files that it copies: to the folder --output, else STACK-bake or STACK-IMAGE.
    """
    if targets[0] in {"bake", "dockerfile"}:
        if form or wheels or platform:
            raise SlipwayError(f"export {targets[0]}: --format, --wheels and --platform are for an image")
        _export_build(targets, output, force=force)
        return
    from cli.export import formats, selection
    from containers.image.registry_image import fetch
    from stacks import plan

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # or it would leave its unfinished output
    source, *names = targets
    reference = is_reference(source)
    if len(names) > (not reference):
        raise SlipwayError("export takes one image: STACK [IMAGE], or its reference, REF")
    if bool(form) != bool(output) or bool(form) == bool(wheels):
        raise SlipwayError("export takes --format with --output, or --wheels alone")
    name = names[0] if names else None
    if form and output:
        format_ = formats.FORMATS[form]
        format_.check()
        image = fetch(source, platform=platform) if reference else selection.image(plan.make(source), name, platform)
        formats.export(image, format_, output, force=force)
        print(output)
    elif wheels:
        images = (
            [fetch(source, platform=platform)] if reference else selection.wheels(plan.make(source), name, platform)
        )
        for wheel in formats.export_wheels(images, wheels, force=force):
            print(wheels / wheel)


def _export_build(words: tuple[str, ...], output: Path | None, *, force: bool) -> None:
    """Write the files of a stack's build without Slipway, and print its commands."""
    from cli.export import bake, self_contained
    from stacks import plan
    from stacks.config.stack_file import ROOT

    match words:
        case ("bake", stack):
            commands = bake.write(plan.make(stack), output or Path(f"{stack}-bake"), ROOT, force=force)
        case ("dockerfile", stack, image):
            folder = output or Path(f"{stack}-{bake.target(image)}")
            commands = self_contained.write(plan.make(stack), image, folder, ROOT, force=force)
        case _:
            raise SlipwayError("export: give `bake STACK`, or `dockerfile STACK IMAGE`")
    for line in commands:
        print(line)


@command(
    ("slipway compose local --project ~/project", "then: docker compose up -d train"),
    ("slipway compose universal-cu132 --cpu --force", "again, for a machine without a GPU"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", required=False, shell_complete=completion.images)
@click.option(
    "--project",
    metavar="DIR",
    type=Path,
    default=Path(),
    help="The project's folder, where containers work.  [default: this one]",
)
@click.option("--platform", metavar="PLATFORM", help="Of a stack for several platforms.  [default: this machine's]")
@click.option("--cpu", is_flag=True, help="Use no GPU.")
@click.option("--host-network", is_flag=True, help="Share the machine's network.")
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
def compose(
    stack: str, image: str | None, project: Path, platform: str | None, *, cpu: bool, host_network: bool, force: bool
) -> None:
    """Write docker-compose.yaml and .env to work in a stack's image.

    Without IMAGE it is the image made for your user id, else the stack's last.
    """
    from cli import compose as compose_files
    from stacks import plan

    planned = plan.make(stack)
    user = os.getuid()
    platform = platform or compose_files.own_platform(planned)
    files = compose_files.files(
        planned,
        planned.image(image, platform) if image else compose_files.of_user(planned, user, platform),
        owner=(user, os.getgid()),
        gpus=not cpu,
        host=host_network,
    )
    for path in compose_files.write(project, files, force=force):
        print(path)


@command(
    ("slipway job base-cu132 --nodes 4 | kubectl apply -f -", "torchrun on four nodes, without an operator"),
    ("slipway job aks-megatron | kubectl apply -f -", "a training on two nodes"),
    ("slipway job base-cu132 trainer | kubectl apply -f -", "an image of your own in the stack"),
    ("slipway job nccl-cu132 --slurm --nodes 4 > train.sbatch", "a batch script for four nodes"),
    ("slipway job nccl-cu132-multi --slurm --platform linux/arm64 > train.sbatch", "for Grace machines"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", required=False, shell_complete=completion.images)
@click.option("--nodes", metavar="N", type=int, default=2, show_default=True, help="How many nodes.")
@click.option("--slurm", is_flag=True, help="A batch script for Slurm with enroot, for any stack with CUDA.")
@click.option(
    "--platform", metavar="PLATFORM", help="Of Slurm's nodes, for a stack of several.  [default: the stack's first]"
)
def job(stack: str, image: str | None, nodes: int, platform: str | None, *, slurm: bool) -> None:
    """Print an example of a job that runs a stack's image on a cluster.

    Without IMAGE it is the stack's last.
    """
    from cli import job as jobs

    if platform and not slurm:
        raise SlipwayError("--platform is for --slurm: nodes of Kubernetes take the image of their own platform")
    sys.stdout.write(jobs.batch_script(stack, nodes, platform, image) if slurm else jobs.render(stack, nodes, image))
