"""Pulumi's command, asked for what its backend keeps of a stack."""

from __future__ import annotations

import subprocess
from pathlib import Path

from containers.child_environment import NETWORK_SECONDS
from containers.child_program import run_program
from containers.errors import SlipwayError


def run_pulumi(words: list[str], stack: str, root: Path, needed: str) -> subprocess.CompletedProcess[str]:
    """Run ``pulumi stack`` with words about a stack; ``needed`` is what it has, for the error if there is no Pulumi.

    Raises SlipwayError: Pulumi cannot be run.
    """
    try:
        return run_program(
            ["pulumi", "stack", *words, "--stack", stack, "--non-interactive"], NETWORK_SECONDS, cwd=root
        )
    except OSError as error:
        raise SlipwayError(
            f"pulumi cannot be run: {error.strerror}; it has {needed}; run `. .slipway/env` first"
        ) from None
