"""Images in layouts and archives, and what `slipway inspect` makes of them, whole and broken."""

from __future__ import annotations

import os

import pytest

from containers import budget
from containers.errors import SlipwayError


def test_end_of_the_process_that_reads_is_told() -> None:
    """As where the system ends it for its memory; what it prints is no answer."""
    assert budget.apart("acme/image", max, 1, 2) == 2
    with pytest.raises(SlipwayError, match="^acme/image: the process that read it ended with 3$"):
        budget.apart("acme/image", os._exit, 3)
