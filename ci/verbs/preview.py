"""``python -m ci preview``: report what publishing a stack would change, and build it without pushing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ci import actions, public_state, published_branch, pulumi_stack
from ci.machine import make_room
from ci.repository import ROOT
from cli.diff import report, text
from cli.diff.stack_diff import diff
from containers.errors import SlipwayError
from containers.image.registry_image import fetch
from containers.platform_name import architecture
from containers.registry.logins import stack_login
from stacks import plan
from stacks.identity.history import BRANCH_VARIABLE
from stacks.plan import Plan, PlannedImage
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.pulumi_run.published_layers import PublishedLayers, forecasts

_MAIN = "main"
"""The branch that publishes. A preview uses its tags, or all tags would differ."""


def run(options: argparse.Namespace) -> int:
    """Preview the stack against its published images, build the changed ones, and return Pulumi's exit status.

    An image is built if its published tag differs: equal tags mean equal content. The changed checks of another image
    run on the published image. Unchanged parents are pulled. An unpublished stack is built whole. The report lists
    images that the stack no longer has. With ``--platform``, what is for other platforms is left out.

    Raises SlipwayError: there is no such stack, or its configuration is wrong.
    """
    os.environ[BRANCH_VARIABLE] = _MAIN
    planned = plan.make(options.stack)
    names = pulumi_stack.selected(planned, platform=options.platform)
    images = {image.spec.name: image for image in planned.images if image.spec.name in names}
    every = [image.spec.name for image in planned.images]
    published = published_branch.stack(ROOT, options.stack)
    earlier = public_state.images(published) if published else {}
    changed = [name for name, image in images.items() if name not in earlier or earlier[name]["tag"] != image.tag]
    differing = [*changed, *(name for name in earlier if name not in every)]
    checks = _changed_checks(images, published, changed)
    several = bool(options.platform and planned.indexes)
    restricted = published or several
    built = [*changed, *checks]
    make_room()
    with pulumi_stack.temporary(Checkout.here(), options.stack) as stack:
        if published:
            stack.load(public_state.state(published, unbuilt=built))
        status, output = 0, "Nothing would change.\n"
        if different := [*differing, *checks]:
            status, output = stack.preview(different if restricted else [])
        name = f"{options.stack}-{architecture(options.platform)}" if several else options.stack
        compared = comparison(options.stack, published, differing)
        pulled = pulls(planned, published["outputs"], changed, options.platform) if published else ""
        write(options.to / f"{name}.txt", f"{compared}{pulled}{changes(output)}")
        if status or not built:
            return status
        return stack.up(built if restricted else [])


def _changed_checks(
    images: Mapping[str, PlannedImage], published: Mapping[str, Any] | None, changed: Collection[str]
) -> list[str]:
    """Return the checks of changed images, and those that differ from the published ones."""
    checked = public_state.checks(published) if published else {}
    return [
        f"{name}-checks"
        for name, image in images.items()
        if image.content.checks and (name in changed or checked.get(f"{name}-checks") != image.checks_contents)
    ]


def comparison(stack: str, published: Mapping[str, Any] | None, differing: Collection[str]) -> str:
    """Return the diff of the images with the published ones as text; the job's summary gets it as Markdown.

    The text goes into a comment, where a fork's content must stay plain text. An unreadable registry does not fail the
    preview. An exceeded budget does not either: it is that of a published image, as a new one has no size before it is
    pushed.
    """
    if not published or not differing:
        return ""
    try:
        differences = diff(stack, ROOT, before=published["outputs"])
    except SlipwayError as error:
        return f"slipway diff: {error}\n\n"
    images = tuple(image for image in differences.images if image.name in differing)
    summary = report.of_stack(replace(differences, images=images))
    actions.summary(f"{text.markdown(summary)}\n")
    return "".join(f"{line}\n" for line in report.over(differences)) + f"{text.terminal(summary)}\n\n"


def pulls(planned: Plan, published: Mapping[str, Any], changed: Iterable[str], platform: str) -> str:
    """Return a line for each changed image: what a node with the published one must pull.

    ``published`` are the published stack's outputs. An unreadable registry does not fail the preview.
    """

    def lookup(reference: str) -> PublishedLayers:
        image = fetch(reference, stack_login.configured(planned.config.registry), platform)
        return PublishedLayers({layer.digest: layer.size for layer in image.layers}, image.config_size)

    platform = platform or planned.config.every_platform[0]
    after = {"plan": {image.spec.name: image.contents for image in planned.images if image.spec.name in changed}}
    lines = [f"{each}\n" for each in forecasts(published, after, lookup)]
    return "".join([*lines, "\n"]) if lines else ""


def changes(output: str) -> str:
    """Return a preview without unchanged outputs: Pulumi shows the whole of an output with a change in it."""
    before, heading, rest = output.partition("\nOutputs:\n")
    outputs, end, after = rest.partition("\n\nResources:\n")
    marked = (line for line in outputs.splitlines() if line.lstrip().startswith(("+", "-", "~")))
    return f"{before}{heading}{chr(10).join(marked)}{end}{after}"
