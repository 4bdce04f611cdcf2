"""``python -m ci preview``: what a stack's publication would change, said and built, and nothing pushed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ci import actions, public_state, published_branch, pulumi_stack
from ci.machine import make_room
from ci.repository import ROOT
from cli.diff import report, text
from cli.diff.stack_diff import diff
from stacks import plan
from stacks.errors import SlipwayError
from stacks.identity.history import BRANCH_VARIABLE
from toolchain.checkout import Checkout
from toolchain.machine.files import write

_MAIN = "main"
"""The branch that publishes: what is previewed is resolved as it would be there, or every tag would differ."""


def run(options: argparse.Namespace) -> int:
    """Preview the stack against what is published of it, then build what that lacks; return Pulumi's exit status.

    An image is built if what is published has another tag, for equal tags mean equal content; the others are pulled
    where they are a parent. Nothing is known of a stack that was never published, so that all of it is built. What the
    stack has no more is shown to go.

    Raises:
        SlipwayError: there is no such stack, or its configuration is wrong.
    """
    os.environ[BRANCH_VARIABLE] = _MAIN
    tags = {image.spec.name: image.tag for image in plan.make(options.stack).images}
    told = published_branch.stack(ROOT, options.stack)
    known = public_state.images(told) if told else {}
    changed = [name for name, tag in tags.items() if name not in known or known[name]["tag"] != tag]
    differing = [*changed, *(name for name in known if name not in tags)]
    make_room()
    with pulumi_stack.throwaway(Checkout.here(), options.stack) as stack:
        if told:
            stack.load(public_state.state(told, unbuilt=changed))
        status, said = stack.preview(differing if told else []) if differing else (0, "Nothing would change.\n")
        write(options.to / f"{options.stack}.txt", compared(options.stack, told, differing) + changes(said))
        return status or (stack.up(changed if told else []) if changed else 0)


def compared(stack: str, told: Mapping[str, Any] | None, differing: Collection[str]) -> str:
    """Return which images are over their budgets, and how they differ from the published ones, as `stacks diff` says.

    As Markdown it is in the job's summary. What is told here goes into a comment, in which nothing that a fork's code
    says may be more than text. That a registry does not let anybody read is no failure of the preview, nor is what
    weighs too much: that is published already, and what would be instead is not weighed before it is pushed.
    """
    if not told or not differing:
        return ""
    try:
        found = diff(stack, ROOT, before=told["outputs"])
    except SlipwayError as error:
        return f"slipway diff: {error}\n\n"
    images = tuple(image for image in found.images if image.name in differing)
    made = report.of_stack(replace(found, images=images))
    actions.summary(f"{text.markdown(made)}\n")
    return "".join(f"{line}\n" for line in report.over(found)) + f"{text.terminal(made)}\n\n"


def changes(said: str) -> str:
    """Return what a preview says without those outputs that stay: Pulumi shows all of one that changes somewhere."""
    before, heading, rest = said.partition("\nOutputs:\n")
    outputs, end, after = rest.partition("\n\nResources:\n")
    marked = (line for line in outputs.splitlines() if line.lstrip().startswith(("+", "-", "~")))
    return f"{before}{heading}{chr(10).join(marked)}{end}{after}"
