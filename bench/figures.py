"""The arithmetic of the table: medians, ratios, targets, and how they are written."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cli.text_table import aligned

_HOLDS: Final[Mapping[str, Callable[[float, float], bool]]] = {"<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Target:
    """What a ratio is to reach: ``sign``, which is ``<=`` or ``<``, and ``limit``."""

    sign: str
    limit: float

    def reached(self, ratio: float) -> bool:
        """Tell whether a ratio, unrounded, is on the right side of the limit."""
        return _HOLDS[self.sign](ratio, self.limit)

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:.2f}"


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of Slipway's, and the same figure of what stands beside it.

    ``ours`` and ``theirs`` hold one value for each round, in ``unit``: ``s`` (seconds), ``B`` (bytes) or ``x`` (a
    ratio). ``peer`` says what the second one is. Without a target the row only informs.
    """

    section: str
    what: str
    ours: Sequence[float]
    peer: str
    theirs: Sequence[float]
    unit: str = "s"
    target: Target | None = None

    @property
    def ratio(self) -> float:
        """The median of ours over the median of theirs; the lower the better."""
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        return None if self.target is None else self.target.reached(self.ratio)

    def as_json(self) -> dict[str, Any]:
        """Return the row with its medians and every single value."""
        return {
            "section": self.section,
            "what": self.what,
            "unit": self.unit,
            "peer": self.peer,
            "slipway": {"median": statistics.median(self.ours), "values": list(self.ours)},
            "beside": {"median": statistics.median(self.theirs), "values": list(self.theirs)},
            "ratio": self.ratio,
            "target": None if self.target is None else str(self.target),
            "reached": self.reached,
        }


def show(value: float, unit: str) -> str:
    """Write a value: ``1.23 s``, ``2.95 GB`` (decimal units, as registries bill them), ``1.07 x``."""
    if unit == "B":
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.2f} {name}"
    return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"


_TITLES: Final = ("", "measured", "Slipway", "beside it", "", "ratio", "target", "reached", "rounds")
_VERDICT: Final[Mapping[bool | None, str]] = {True: "yes", False: "NO", None: ""}


def table(rows: Sequence[Row]) -> str:
    """Write rows as a plain table, one line each below a line of titles."""
    lines = [_TITLES] + [
        (
            row.section,
            row.what,
            show(statistics.median(row.ours), row.unit),
            show(statistics.median(row.theirs), row.unit),
            row.peer,
            f"{row.ratio:.2f}",
            "" if row.target is None else str(row.target),
            _VERDICT[row.reached],
            str(len(row.ours)),
        )
        for row in rows
    ]
    return "\n".join(aligned(lines, {2, 3, 5, 8}))


def verdict(rows: Sequence[Row]) -> str:
    """Say in one line how many targets are reached, and which are not."""
    aimed = [row for row in rows if row.target is not None]
    missed = [f"{row.section} {row.what} ({row.ratio:.2f}, {row.target})" for row in aimed if not row.reached]
    return f"{len(aimed) - len(missed)} of {len(aimed)} targets reached" + (
        f"; missed: {'; '.join(missed)}" if missed else ""
    )
