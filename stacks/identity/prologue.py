"""Lines that a build's copy of a script begins with, from the lock."""

from __future__ import annotations

from typing import NamedTuple


class Prologue(NamedTuple):
    """``lines`` come before the script's own; ``identity`` stands for them in what the image is made of.

    The two differ where lines say from where something comes, and its hash says what it is.
    """

    lines: str
    identity: str
