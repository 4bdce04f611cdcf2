"""How many machines wait for jobs at a time of day and week. Pure functions: no clock, and no database of time zones.

AWS may have none beside the function. So the update that deploys it writes down when each zone's clocks change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

DAY_MINUTES = 24 * 60

_THURSDAY = 3
"""The weekday of 1 January 1970, counted from Monday."""


def least(now: float, usual: int, schedule: Mapping[str, Any]) -> int:
    """Return the minimum at a time: the greatest of the entries that hold then, else the usual one.

    Args:
        now: seconds since 1970.
        usual: the minimum at all other times.
        schedule: ``zones`` by name, each as pairs of a time and the seconds that its clocks are ahead of UTC from then
            on, and ``entries`` with ``zone``, ``days`` (0 is Monday), ``start`` and ``end`` in minutes after midnight,
            and ``least``.
    """
    holding = [
        int(entry["least"])
        for entry in schedule.get("entries", ())
        if _holds(now + _ahead(now, schedule["zones"][entry["zone"]]), entry)
    ]
    return max(holding, default=usual)


def _ahead(now: float, changes: Sequence[Sequence[float]]) -> float:
    """Return how many seconds a zone's clocks are ahead of UTC."""
    return changes[max(bisect_right([at for at, _ in changes], now) - 1, 0)][1]


def _holds(clock: float, entry: Mapping[str, Any]) -> bool:
    """Return whether an entry holds at what the clocks of its zone show, as seconds since 1970 there.

    An entry that ends before it starts, by the clock, ends on the next day.
    """
    day, minute = divmod(int(clock // 60), DAY_MINUTES)
    today, before = ((day - back + _THURSDAY) % 7 in entry["days"] for back in (0, 1))
    if entry["start"] < entry["end"]:
        return today and bool(entry["start"] <= minute < entry["end"])
    return bool((today and minute >= entry["start"]) or (before and minute < entry["end"]))
