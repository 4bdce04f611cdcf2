"""Disk space on GitHub's own runners."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from containers.child_environment import LOCAL_SECONDS, child_environment

UNUSED = tuple(
    Path(folder)
    for folder in (
        "/opt/ghc",
        "/opt/hostedtoolcache/CodeQL",
        "/usr/local/.ghcup",
        "/usr/local/lib/android",
        "/usr/local/share/powershell",
        "/usr/share/dotnet",
        "/usr/share/swift",
    )
)
"""The largest preinstalled tools that no build uses (actions/runner-images, "Installed software")."""


def make_room() -> None:
    """Remove some 30 GB of unused tools from GitHub's own runners; other machines stay as they are.

    A CUDA image with compilers does not fit into the free space of such a runner.
    """
    unused = [str(folder) for folder in UNUSED if folder.is_dir()]
    if os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted" and unused:
        print(f"making room: {', '.join(unused)}")
        subprocess.run(
            ["sudo", "rm", "-rf", "--", *unused], check=False, env=child_environment("sudo"), timeout=LOCAL_SECONDS
        )  # a build reports a full disk itself
