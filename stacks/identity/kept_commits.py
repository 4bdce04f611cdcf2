"""The commits that tags keep over an upgrade of Slipway: ``stacks/commits.txt`` of a repository of one's own.

No commit before an upgrade built with the new release, so the history says nothing of what it built. ``slipway
upgrade --write`` writes down the commit of each image that the new release builds as before, and its tag stays.
Each line has a stack, a published name, a fingerprint, a commit, the tag's suffix, and the image's repository. A line
counts while the fingerprint is built for the suffix: by the stack in that repository, or by another one or elsewhere,
as after a rename, if no line has the tag for another image, in whatever registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE: Final = "stacks/commits.txt"
_LINE: Final = re.compile(r"([A-Za-z0-9_.-]+) ([a-z0-9._-]+) ([0-9a-f]{64}) ([0-9a-f]{7,40}) (\S+) (\S+)")


def of_stack(stack: str, suffixes: Mapping[str, str], root: Path, repository: str) -> dict[tuple[str, str], str]:
    """Return the kept commits of a stack by published name and fingerprint. Lines of another form are left out.

    ``suffixes`` are those of the stack's tags, by published name, and ``repository`` is the prefix of their names.
    """
    try:
        lines = (root / FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    matches = [match.groups() for match in map(_LINE.fullmatch, lines) if match]
    tagged: dict[tuple[str, ...], set[str]] = {}
    for _, name, fingerprint, commit, suffix, _ in matches:
        tagged.setdefault((name, commit, suffix), set()).add(fingerprint)
    return {
        (name, fingerprint): commit
        for owner, name, fingerprint, commit, suffix, place in matches
        if suffix == suffixes.get(name)
        and ((owner == stack and place == f"{repository}/{name}") or len(tagged[name, commit, suffix]) == 1)
    }
