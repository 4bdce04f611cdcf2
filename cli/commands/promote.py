"""Commands for what comes after publishing: ``warm``, ``evidence``, ``promote``."""

from __future__ import annotations

import click

from cli import completion
from cli.command_line import command
from stacks.config.stack_file import ROOT

_DIGEST = click.option(
    "--digest", metavar="DIGEST", help="Another image in the repository than the last published one: sha256:...."
)


@command(
    ("slipway warm nccl-cu132 torch", "run slipway:warm.script in the image that the stack last published"),
    ("slipway warm nccl-cu132 torch --onto ghcr.io/acme/torch@sha256:5d41...", "add the layer of other GPUs"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", required=False, shell_complete=completion.images)
@click.option("--platform", metavar="PLATFORM", help="The image for this platform, such as linux/arm64.")
@click.option(
    "--onto", metavar="REF", help="An image that `slipway warm` has pushed, by its digest, to keep its layers."
)
@click.option("--gpu/--no-gpu", default=None, help="Use this machine's GPUs. Default: if it has NVIDIA's driver.")
def warm(stack: str, image: str | None, platform: str | None, onto: str | None, *, gpu: bool | None) -> None:
    """Push an image with the caches that a script leaves in it, as one layer more.

    slipway:warm.script runs in a container of the published image, on this machine and its GPUs, without network.
    What it compiles is a layer for such machines; on others the image is as before. The stack's key signs it.
    """
    from cli.startup.measurement import has_gpu
    from cli.warm import warm_build
    from cli.warm.warm_run import EngineCaches

    caches = EngineCaches(has_gpu() if gpu is None else gpu)
    for line in warm_build.warm(stack, image, ROOT, platform, onto, caches):
        print(line, flush=True)


@command(
    ("slipway evidence nccl-cu132 torch report.json", "what the checks on a node wrote"),
    ("slipway evidence nccl-cu132 torch - < job.log", "the log of the job that ran them"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", shell_complete=completion.images)
@click.argument("report", metavar="FILE | -")
@_DIGEST
def evidence(stack: str, image: str, report: str, digest: str | None) -> None:
    """Attest the report of an image's GPU checks, whether these passed or failed.

    FILE is what dockerfiles/common/gpu/report.py wrote; - is standard input. The stack's key signs.
    """
    from cli.promotion import gpu_evidence

    print(gpu_evidence.attach(stack, image, report, ROOT, digest))


@command(
    ("slipway promote nccl-cu132 torch stable", "the image that the stack last published"),
    ("slipway promote nccl-cu132 torch stable --digest sha256:5d41...", "back to an earlier one"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", shell_complete=completion.images)
@click.argument("tag", shell_complete=completion.promoted_tags)
@_DIGEST
def promote(stack: str, image: str, tag: str, digest: str | None) -> None:
    """Move a tag to an image if the evidence that slipway:promotion requires verifies.

    Otherwise each missing or failing thing is a line, the tag stays, and the command exits with 1.
    """
    from cli.promotion import promotion

    for line in promotion.promote(stack, image, tag, ROOT, digest):
        print(line)
