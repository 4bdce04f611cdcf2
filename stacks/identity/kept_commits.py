"""The commits that tags keep over an upgrade of Slipway: ``stacks/commits.txt`` of a repository of one's own.

No commit before an upgrade built with the new release, so the history says nothing of what it built. ``slipway
upgrade --write`` writes down the commit of each image that the new release builds as before, and its tag stays.
Each line has a stack, a published name, a fingerprint and a commit. A line counts while that fingerprint is built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FILE: Final = "stacks/commits.txt"
_LINE: Final = re.compile(r"([A-Za-z0-9_.-]+) ([a-z0-9._-]+) ([0-9a-f]{64}) ([0-9a-f]{7,40})")


def of_stack(stack: str, root: Path) -> dict[tuple[str, str], str]:
    """Return the kept commits of a stack by published name and fingerprint. Lines of another form are left out."""
    try:
        lines = (root / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines))
    return {(match[2], match[3]): match[4] for match in matches if match[1] == stack}
