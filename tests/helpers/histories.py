"""How many random histories a test plays."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

_NIGHT: Final = 100
"""Examples of the profile `night`, with which a test plays all of its histories: by day it plays as many less."""

_ASKED: Final = os.environ.get("SLIPWAY_HISTORIES")
"""A unit test has no variable of Slipway's; this module is imported before."""


def histories(count: int) -> int:
    """Return how many to play of those of a night, at least one; ``SLIPWAY_HISTORIES`` is another number."""
    return int(_ASKED or max(1, count * settings().max_examples // _NIGHT))
