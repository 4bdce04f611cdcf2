"""Lines that a build's copy of a script begins with, from the lock."""

from __future__ import annotations

from typing import NamedTuple


class Prologue(NamedTuple):
    """``lines`` come before the script's own; ``identity`` stands for them in what the image is made of.

    The two differ if lines have an address and a hash: the hash alone says what is there.
    """

    lines: str
    identity: str
