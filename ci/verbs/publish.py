"""``python -m ci publish``: build and push one stack, or one image of it, and report the digests."""

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
    """Update the stack on the shared backend; return Pulumi's exit status.

    Jobs of one stack run one at a time in any order, so a job of an older commit than the last is refused.

    Raises:
        SlipwayError: there is no such stack or image, a later commit was published, or a variable of
            docs/guides/github-actions.md is missing.
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
                f"stack {options.stack}: the last update was from {last[:7]}, a later commit than {head[:7]}; "
                "start the workflow `publish` on the current main"
            )
        if status := stack.up(targets):
            return status
        published = public_state.public(stack.export(), head)
    images = public_state.images(published)
    actions.summary(f"### {options.stack}\n\n| image | published as |\n| --- | --- |\n")
    actions.summary(
        "".join(f"| {name} | `{images[name]['ref']}`<br>`{images[name]['tag']}` |\n" for name in targets or names)
    )
    if options.image:
        for key in ("digest", "tag"):
            actions.output(key, images[options.image][key])
    if options.to:
        write(options.to / f"{options.stack}.json", json.dumps(published, indent=1, sort_keys=True) + "\n")
    return 0
