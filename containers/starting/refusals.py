"""Why a program of an image does not start."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why a program does not start, and the path or name that it is about."""

    reason: str
    about: str
