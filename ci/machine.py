"""The machine that a job runs on, where it is GitHub's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SPARE = tuple(
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
"""What takes most room of what GitHub installs (actions/runner-images, "Installed software") and no build here uses."""


def make_room() -> None:
    """Remove what GitHub's own runners bring and no image needs, some 30 GB; other machines are left as they are.

    A CUDA image with its compilers does not fit into what is left free there.
    """
    there = [str(folder) for folder in SPARE if folder.is_dir()]
    if os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted" and there:
        print(f"making room: {', '.join(there)}")
        subprocess.run(["sudo", "rm", "-rf", "--", *there], check=False)  # room that is lacking is said by who needs it
