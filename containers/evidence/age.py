"""How old evidence is."""

from __future__ import annotations

from datetime import datetime

_CLOCKS: float = 1.0
"""Days by which clocks may differ."""


def days(date: str, now: datetime) -> float | None:
    """Return how many days ago a time was, in RFC 3339; None if it is no time, or one without a time zone."""
    try:
        return (now - datetime.fromisoformat(date)).total_seconds() / 86400
    except (ValueError, TypeError):
        return None


def is_ahead(age: float) -> bool:
    """Return whether an age in days is that of something in the future."""
    return age < -_CLOCKS
