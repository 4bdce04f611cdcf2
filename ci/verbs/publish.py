"""``python -m ci publish``: one stack, or one image of it, built, pushed, and told of."""

from __future__ import annotations

import argparse
import json

from ci import actions, public_state, pulumi_stack, repository
from ci.machine import make_room
from ci.repository import ROOT
from stacks import plan
from stacks.errors import SlipwayError, suggest
from toolchain.checkout import Checkout
from toolchain.machine.files import write


def run(options: argparse.Namespace) -> int:
    """Bring the stack up on the shared backend; return Pulumi's exit status.

    Jobs for one stack wait for each other, but in no order: a job of an older commit may come last, and is refused.

    Raises:
        SlipwayError: there is no such stack or image, a later commit was brought up, or the job lacks what
            docs/guides/github-actions.md asks for.
    """
    planned = plan.make(options.stack)
    names = [image.spec.name for image in planned.images]
    if options.image and options.image not in names:
        raise SlipwayError(
            f"stack {options.stack} has no image '{options.image}'{suggest(options.image, names)}; "
            f"it has: {', '.join(names)}"
        )
    targets = pulumi_stack.with_parents(planned, options.image) if options.image else []
    head = repository.run(ROOT, "rev-parse", "HEAD")
    make_room()
    with pulumi_stack.shared(Checkout.here(), options.stack) as stack:
        last = stack.commit()
        if last and not repository.follows(ROOT, head, last):
            raise SlipwayError(
                f"stack {options.stack}: it was brought up from {last[:7]}, a later commit than this one, {head[:7]}, "
                "which would take that back; start the workflow `publish` on main as it is now"
            )
        if status := stack.up(targets):
            return status
        told = public_state.public(stack.export(), head)
    built = public_state.images(told)
    actions.summary(f"### {options.stack}\n\n| image | published as |\n| --- | --- |\n")
    actions.summary(
        "".join(f"| {name} | `{built[name]['ref']}`<br>`{built[name]['tag']}` |\n" for name in targets or names)
    )
    if options.image:
        for key in ("digest", "tag"):
            actions.output(key, built[options.image][key])
    if options.to:
        write(options.to / f"{options.stack}.json", json.dumps(told, indent=1, sort_keys=True) + "\n")
    return 0
