"""The error for a value that a table rules out, with the nearest allowed value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from containers.errors import one_line
from containers.image.gpu.release_order import order

Row = TypeVar("Row")

#: An error line names every allowed value up to this many; beyond it, this many around the value and the range of all.
MOST_LISTED = 16
_AROUND = 6


class Incompatible(ValueError):
    """A value that a table rules out; ``str()`` is one line: field, value, reason, allowed values, source.

    Args:
        field: the value's key in the stack's file, such as ``torch.vision``.
        value: the value in the file.
        why: the fault, as the rest of a sentence that starts with the value.
        allowed: the values that would do, in the order to show them.
        source: where the rule is from.
        known: whether the value exists but does not fit here. For an unknown value, the error suggests the nearest.
    """

    def __init__(
        self, field: str, value: str, why: str, allowed: Collection[str], source: str, *, known: bool = True
    ) -> None:
        self.field, self.value, self.allowed, self.source = field, value, tuple(allowed), source
        near = None if known else nearest(value, self.allowed)
        hint = f" (did you mean '{near}'?)" if near else ""
        super().__init__(
            f"{field}: '{one_line(value)}' {why}{hint}; allowed: {_listed(value, self.allowed)}; rule: {source}"
        )


class Unverified(Incompatible):
    """An unconfirmed release that may exist: ``slipway:unverified: true`` turns the error into a warning.

    Args:
        field: as :class:`Incompatible`; likewise ``value``, ``why``, ``allowed`` and ``source``.
        instead: its consequence, as the rest of a sentence that starts with the value.
        known: whether the value exists but is not confirmed here. For an unknown value, the error suggests the nearest.
    """

    def __init__(
        self,
        field: str,
        value: str,
        why: str,
        allowed: Collection[str],
        source: str,
        *,
        instead: str,
        known: bool = False,
    ) -> None:
        super().__init__(field, value, why, allowed, source, known=known)
        self.instead = instead
        self.args = (f"{self}; `slipway:unverified: true` builds it at your own risk: it {instead}",)


def check_listed(rows: Collection[str], value: str, field: str, why: str, source: str, *, instead: str) -> None:
    """Refuse a release that no row of a table has. Raises Unverified: the rows are the allowed values."""
    if value not in rows:
        raise Unverified(field, value, why, tuple(rows), source, instead=instead)


def row(rows: Mapping[str, Row], value: str, field: str, why: str, source: str) -> Row:
    """Return the row of ``value`` in a table.

    Raises Incompatible: there is none; the table's rows are the allowed values.
    """
    if value not in rows:
        raise Incompatible(field, value, why, tuple(rows), source, known=False)
    return rows[value]


def _listed(value: str, allowed: tuple[str, ...]) -> str:
    if len(allowed) <= MOST_LISTED:
        return ", ".join(allowed) or "none"
    older = sum(order(other) <= order(value) for other in allowed)
    start = min(max(0, older - _AROUND // 2), len(allowed) - _AROUND) if order(value) else len(allowed) - _AROUND
    listed = ", ".join(allowed[start : start + _AROUND])
    return f"{listed} and {len(allowed) - _AROUND} more from {allowed[0]} to {allowed[-1]}"


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed value that ``value`` most likely means, or None.

    A leading ``v`` is ignored. For an unfinished version, it is the newest that begins so (``12.1`` -> ``12.1.1``). For
    a wrong last number, it is the newest of the same line. For any other version it is None, because versions that look
    alike are still different. Names are matched by likeness.
    """
    known, bare = list(allowed), value.strip().removeprefix("v")
    if bare in known:
        return bare
    for prefix in filter(None, (bare, bare.rpartition(".")[0])):
        versions = [version for version in known if version.startswith((f"{prefix}.", f"{prefix}-"))]
        if versions:
            return max(versions, key=order)
    if re.fullmatch(r"[\d.]+(-\d+)?", bare):
        return None
    return next(iter(difflib.get_close_matches(value, known, n=1, cutoff=0.6)), None)
