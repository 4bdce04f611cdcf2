"""Commands that compare: with another commit, with what is published, and with the upstreams."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from cli import completion
from cli.command_line import command, is_reference
from containers import color
from containers.errors import SlipwayError
from stacks.config.stack_file import ROOT


@command(
    ("slipway affected --since origin/main", "what this branch rebuilds, and why"),
    ("slipway affected --since HEAD~1 --json", "the same as a matrix of GitHub Actions"),
)
@click.option("--since", metavar="REF", required=True, help="Compare with this branch, tag or commit.")
@click.option("--json", "as_json", is_flag=True, help="Print a matrix of GitHub Actions, on one line.")
def affected(since: str, *, as_json: bool) -> None:
    """Say which stacks and images a change touches, and why."""
    from stacks import impact

    result = impact.since(since, ROOT)
    for line in impact.unresolved(result):
        print(line, file=sys.stderr)
    if as_json:
        print(json.dumps(result.as_matrix()))
        for line in impact.removed(result):  # a matrix has no place for what is not to be built
            print(line, file=sys.stderr)
        return
    for line in impact.lines(result):
        print(line)


@command(
    ("slipway diff local", "what the stack last published, with what would be built now"),
    ("slipway diff nccl-cu132 torch --markdown", "one of its images, for a pull request"),
    ("slipway diff local-multi torch --platform linux/arm64", "what is for one platform"),
    ("slipway diff local-multi --platform linux/arm64 --against linux/amd64", "two platforms of what is published"),
    ("slipway diff ghcr.io/acme/app:1.0 ghcr.io/acme/app:2.0", "any two images in registries"),
)
@click.argument(
    "targets", metavar="STACK [IMAGE] | REF [REF]", nargs=-1, required=True, shell_complete=completion.stack_then_image
)
@click.option("--platform", metavar="PLATFORM", help="Only what is for this platform, such as linux/arm64.")
@click.option("--against", metavar="PLATFORM", help="Compare it with what is for this platform, of one image.")
@click.option("--thorough", is_flag=True, help="Also read the layers that both images have.")
@click.option("--inspect", is_flag=True, help="Compare what loads, and on which GPUs and drivers.")
@click.option("--json", "form", flag_value="json", help="Print everything as JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, for a pull request.")
@click.option("--html", "form", flag_value="html", help="Print one self-contained page.")
@click.pass_context
def diff(
    ctx: click.Context,
    targets: tuple[str, ...],
    platform: str | None,
    against: str | None,
    form: str | None,
    *,
    thorough: bool,
    inspect: bool,
) -> None:
    """Compare a stack's last published images with those of a build now, or two images.

    Exits with 1 if an image is larger than its budget.
    """
    from cli.diff import html, report, stack_diff, text
    from cli.diff.comparison import compare
    from containers.image.registry_image import fetch

    over: list[str] = []
    result: Any
    as_report: Any
    references = [*map(is_reference, targets)]
    if against and not platform:
        raise SlipwayError("--against takes --platform too: the platform that is compared with it")
    if against and platform and len(targets) <= 2 and references in ([True], [False], [False, False]):
        source, *names = targets
        before, after = (
            [fetch(source, platform=each) for each in (against, platform)]
            if references[0]
            else stack_diff.published_images(source, ROOT, names[0] if names else None, (against, platform))
        )
        result = compare(before, after, thorough=thorough, inspect=inspect, across=True)
        as_report = report.of_images
    elif not against and references == [True, True]:
        before, after = (fetch(each, platform=platform) for each in targets)
        result = compare(before, after, thorough=thorough, inspect=inspect)
        as_report = report.of_images
    elif not against and len(targets) <= 2 and not any(references):
        name = targets[1] if len(targets) > 1 else None
        result = stack_diff.diff(targets[0], ROOT, name, platform, thorough=thorough, inspect=inspect)
        over = report.over(result)
        as_report = report.of_stack
    else:
        raise SlipwayError(
            "diff compares a stack with what it published, STACK [IMAGE], two images by their references, REF REF, or "
            "two platforms of one image, STACK [IMAGE] or REF with --platform and --against"
        )
    if form == "json":
        # Written part by part: the whole text, or dictionaries, would need many times the memory.
        json.dump(result, sys.stdout, indent=2, default=lambda part: part.as_json())
        print()
    else:
        page = {"markdown": text.markdown, "html": html.page, None: text.terminal}[form](as_report(result))
        color.write(page, sys.stdout, plain=form is not None)
    for line in over:
        print(line, file=sys.stderr)
    ctx.exit(1 if over else 0)


@command(
    ("slipway verify nccl-cu132", "all images, and the parents they were built on"),
    ("slipway verify nccl-cu132 torch", "one image"),
    ("slipway verify nccl-cu132 torch --digest sha256:5d41...", "an earlier image, or one with warm layers"),
    ("slipway verify nccl-cu132 --json", "the results as JSON, for a program"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", required=False, shell_complete=completion.images)
@click.option("--digest", metavar="DIGEST", help="Another image of IMAGE's repository: sha256:....")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def verify(ctx: click.Context, stack: str, image: str | None, digest: str | None, *, as_json: bool) -> None:
    """Verify the signatures of what a stack has published. Exits with 1 where one is missing or a policy refuses."""
    from cli import verify as verification
    from cli.promotion import verified_digest

    if digest and not image:
        raise click.UsageError("--digest: give IMAGE as well, whose repository has the digest")
    if image and digest:
        verified = verified_digest.verify_digest(stack, image, digest, ROOT)
    else:
        verified = verification.verify(stack, ROOT, image)
    if as_json:
        result = verification.as_json(verified)
        print(json.dumps(result, indent=2))
        ctx.exit(1 if result["mistakes"] else 0)
    for each in verified:
        for line in each.lines():
            print(line, flush=True)
