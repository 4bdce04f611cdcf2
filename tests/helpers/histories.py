"""How many random histories a test plays."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

_NIGHT: Final = 100
"""Examples of the profile `night`, with which a test plays all of its histories: by day it plays as many less."""


def histories(count: int) -> int:
    """Return how many to play of those of a night, at least one; ``SLIPWAY_HISTORIES`` is another number."""
    return int(os.environ.get("SLIPWAY_HISTORIES") or max(1, count * settings().max_examples // _NIGHT))
