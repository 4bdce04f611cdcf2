"""Lines of cells, written below each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def aligned(lines: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> Iterator[str]:
    """Yield each line with its cells in columns; those of ``numbers``, counted from 0, end at the same place."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
