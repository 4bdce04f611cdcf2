"""``python -m ci publish``: build and push one stack, or one image of it, and report the digests."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

from ci import actions, public_state, pulumi_stack, repository
from ci.machine import make_room
from ci.repository import ROOT
from ci.verbs.affected import natives
from containers.errors import SlipwayError
from containers.evidence import cosign, slsa
from stacks import plan
from stacks.config.signing import SigningConfig
from toolchain.checkout import Checkout
from toolchain.machine.files import write


def run(options: argparse.Namespace) -> int:
    """Update the stack on the shared backend; return Pulumi's exit status.

    With ``--platform``, the images of that platform alone are built, and no index is pushed.

    Jobs of one stack run one at a time in any order, so a job of an older commit than the last is refused.

    Raises SlipwayError: there is no such stack or image, a later commit was published, or a variable of
    docs/guides/github-actions.md is missing.
    """
    planned = plan.make(options.stack)
    names = pulumi_stack.selected(planned, options.image, options.platform)
    targets = names if options.image or options.platform else []
    head = repository.run(ROOT, "rev-parse", "HEAD")
    statements = left_statements(planned.config.signing)
    make_room()
    emulating = not natives(planned.config)
    with pulumi_stack.shared(Checkout.here(), options.stack, emulating=emulating) as stack:
        last = stack.commit()
        if last and not repository.follows(ROOT, head, last):
            raise SlipwayError(
                f"stack {options.stack}: the last update was from {last[:7]}, a later commit than {head[:7]}; "
                "start the workflow `publish` on the current main"
            )
        if status := stack.up(targets, attesting=statements is None or not options.platform):
            return status
        state = stack.export()
        published = public_state.public(state, head)
    images = {**public_state.images(published), **public_state.indexes(state)}
    actions.summary(f"### {options.stack}\n\n| image | published as |\n| --- | --- |\n")
    actions.summary("".join(f"| {name} | `{images[name]['ref']}`<br>`{images[name]['tag']}` |\n" for name in names))
    if options.image in images:
        for key in ("digest", "tag"):
            actions.output(key, images[options.image][key])
    if options.to:
        write(options.to / f"{options.stack}.json", json.dumps(published, indent=1, sort_keys=True) + "\n")
        hand_over(statements, options.to)
    return 0


def hand_over(statements: Path | None, folder: Path) -> None:
    """Write the statements for the workflow ``attest`` to a folder, if there are any; output their digest."""
    if statements and (text := statements.read_text()):
        write(folder / "statements", text)
        actions.output("statements", hashlib.sha256(text.encode()).hexdigest())


def left_statements(signing: SigningConfig | None) -> Path | None:
    """Return the file for this job's statements, which the workflow `attest` signs; None if this job signs itself."""
    workflow = f"{os.environ.get('GITHUB_SERVER_URL')}/{os.environ.get('SLIPWAY_WORKFLOW')}"
    if signing is None or signing.identity != workflow.replace(slsa.BUILDING, slsa.ATTESTING):
        return None
    file = Checkout.here().state / "statements"
    write(file, "", mode=0o600)
    os.environ[cosign.STATEMENTS] = str(file)
    return file
