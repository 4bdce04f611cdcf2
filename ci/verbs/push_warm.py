"""``python -m ci push-warm``: push a stack's published image with the caches that its script leaves.

The script runs in that image on this job's GPUs. Or it has run in another job, with that image as its container: such
a job runs the output ``program`` of ``python -m ci warm-program``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from ci import actions, identity, published_branch, pulumi_stack
from ci.repository import ROOT
from ci.verbs import publish
from cli.startup.measurement import has_gpu
from cli.text_table import code
from cli.warm import warm_build
from cli.warm.warm_pod import PodCaches
from cli.warm.warm_run import EngineCaches
from containers.errors import SlipwayError
from stacks import plan
from toolchain.checkout import Checkout
from toolchain.pulumi_run import stack_command, withheld


def run(options: argparse.Namespace) -> int:
    """Push the image with its warm layer; return 0. The branch ``published`` says what the image is.

    Raises SlipwayError: the machine has no GPU, the stack is not published, or see :func:`cli.warm.warm_build.warm`.
    """
    caches = PodCaches(options.caches) if options.caches else EngineCaches(gpu=True)
    if isinstance(caches, EngineCaches) and not has_gpu():
        raise SlipwayError(
            f"stack {options.stack}: this machine has no driver of NVIDIA's GPUs, and a warm layer is for those "
            "that it is made on: start `warm` with the labels of a runner that has some"
        )
    before = published_branch.outputs(ROOT, options.stack)
    checkout, lines = Checkout.here(), []
    tracked = stack_command.check_name(checkout, options.stack)
    statements = publish.left_statements(plan.make(options.stack).config.signing)
    with (
        withheld.withheld(withheld.names(tracked.read_text(encoding="utf-8")), pulumi_stack.defined),
        tempfile.TemporaryDirectory() as folder,
        identity.tokens(Path(folder)) as tokens,
    ):
        os.environ.update(pulumi_stack.prepared(checkout, options.stack, emulating=False) | tokens)
        image, onto = options.image or None, options.onto or None
        for line in warm_build.warm(options.stack, image, ROOT, None, onto, caches, before):
            print(line, flush=True)
            lines.append(line)
    actions.summary("".join(f"- {code(line)}\n" for line in lines))  # another job names its GPUs
    publish.hand_over(statements, options.to)
    return 0
