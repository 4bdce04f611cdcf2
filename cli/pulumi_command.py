"""Pulumi's command, asked for what its backend keeps of a stack."""

from __future__ import annotations

import subprocess
from pathlib import Path

from containers.child_environment import NETWORK_SECONDS, child_environment
from containers.errors import SlipwayError


def run_pulumi(words: list[str], stack: str, root: Path, needed: str) -> subprocess.CompletedProcess[str]:
    """Run ``pulumi stack`` with words about a stack; ``needed`` is what it has, for the error if there is no Pulumi.

    Raises:
        SlipwayError: Pulumi cannot be run.
    """
    try:
        return subprocess.run(
            ["pulumi", "stack", *words, "--stack", stack, "--non-interactive"],
            cwd=root,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            env=child_environment("pulumi"),
            timeout=NETWORK_SECONDS,
        )
    except OSError as error:
        raise SlipwayError(
            f"pulumi cannot be run: {error.strerror}; it has {needed}; run `. .slipway/env` first"
        ) from None
