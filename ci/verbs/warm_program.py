"""``python -m ci warm-program``: output a stack's published image, and what a job in a container of it runs."""

from __future__ import annotations

import argparse

from ci import actions, published_branch
from ci.repository import ROOT
from cli.warm import warm_build


def run(options: argparse.Namespace) -> int:
    """Output ``image`` and ``program``; return 0.

    Raises SlipwayError: the stack is not published, or see :func:`cli.warm.warm_build.in_pod`.
    """
    outputs = published_branch.outputs(ROOT, options.stack)
    image, program = warm_build.in_pod(options.stack, options.image or None, ROOT, outputs)
    actions.output("image", image)
    actions.output("program", program)
    return 0
