"""The rows of the table: medians, ratios, targets, and their format."""

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
    """The target of a ratio: ``sign``, which is ``<=`` or ``<``, and ``limit``."""

    sign: str
    limit: float

    def reached(self, ratio: float) -> bool:
        """Return whether an unrounded ratio is within the limit."""
        return _HOLDS[self.sign](ratio, self.limit)

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:.2f}"


@dataclass(frozen=True)
class Measurement:
    """One line of the table: a measurement of Slipway, and the same measurement of ``peer``.

    ``ours`` and ``theirs`` have one value for each round, in ``unit``: ``s`` (seconds), ``B`` (bytes) or ``x`` (a
    ratio). A row without a target is for information.
    """

    section: str
    title: str
    ours: Sequence[float]
    peer: str
    theirs: Sequence[float]
    unit: str = "s"
    target: Target | None = None

    @property
    def ratio(self) -> float:
        """The median of ``ours`` divided by the median of ``theirs``; lower is better."""
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        return None if self.target is None else self.target.reached(self.ratio)

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON, with medians and all values."""
        return {
            "section": self.section,
            "what": self.title,
            "unit": self.unit,
            "peer": self.peer,
            "slipway": {"median": statistics.median(self.ours), "values": list(self.ours)},
            "beside": {"median": statistics.median(self.theirs), "values": list(self.theirs)},
            "ratio": self.ratio,
            "target": None if self.target is None else str(self.target),
            "reached": self.reached,
        }


def show(value: float, unit: str) -> str:
    """Format a value: ``1.23 s``, ``2.95 GB`` (decimal units, as registries bill them), ``1.07 x``."""
    if unit == "B":
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.2f} {name}"
    return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"


_TITLES: Final = ("", "measured", "Slipway", "peer", "", "ratio", "target", "reached", "rounds")
_VERDICT: Final[Mapping[bool | None, str]] = {True: "yes", False: "NO", None: ""}


def table(rows: Sequence[Measurement]) -> str:
    """Format rows as a plain table below a line of titles."""
    lines = [_TITLES] + [
        (
            row.section,
            row.title,
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


def verdict(rows: Sequence[Measurement]) -> str:
    """Return one line with the number of reached targets and the missed ones."""
    targeted = [row for row in rows if row.target is not None]
    missed = [f"{row.section} {row.title} ({row.ratio:.2f}, {row.target})" for row in targeted if not row.reached]
    return f"{len(targeted) - len(missed)} of {len(targeted)} targets reached" + (
        f"; missed: {'; '.join(missed)}" if missed else ""
    )
