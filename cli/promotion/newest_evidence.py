"""The time of the newest evidence of an image, as the stack's state notes it.

A registry keeps what whoever may push puts there: a failed report can be deleted, and an earlier one put back, whose
signature is as good as ever. So the time of the newest one is a tag of the stack in Pulumi's backend, beside the state.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Final

from cli.pulumi_command import run_pulumi
from containers.errors import SlipwayError, one_line

_PREFIX: Final = "slipway:gpu:"
_LONGEST: Final = 40
"""Characters of a tag's name in Pulumi Cloud (pulumi, sdk/go/common/apitype/stacks.go)."""


def noted(stack: str, image: str, digest: str, root: Path) -> datetime | None:
    """Return when the newest attested GPU checks of an image ended; None if none are noted of this digest.

    Raises SlipwayError: Pulumi fails.
    """
    tags = json.loads(_pulumi(["ls", "--json"], stack, root))
    of_digest, _, time = tags.get(_name(image), "").partition(" ")
    try:
        return datetime.fromisoformat(time) if of_digest == digest else None
    except ValueError:
        raise SlipwayError(
            f"stack {stack}: its tag {_name(image)} is '{one_line(tags[_name(image)])}': `pulumi stack tag rm` it"
        ) from None


def note(stack: str, image: str, digest: str, time: datetime, root: Path) -> None:
    """Note when the newest attested GPU checks of an image ended. Raises SlipwayError: Pulumi fails."""
    _pulumi(["set", _name(image), f"{digest} {time.isoformat()}"], stack, root)


def _name(image: str) -> str:
    return f"{_PREFIX}{image}"[:_LONGEST]


def _pulumi(words: list[str], stack: str, root: Path) -> str:
    completed = run_pulumi(["tag", *words], stack, root, "the time of the newest evidence")
    if completed.returncode:
        raise SlipwayError(f"stack {stack}: pulumi stack tag: {one_line(completed.stderr.strip(), 240)}")
    return completed.stdout
