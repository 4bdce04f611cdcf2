"""Tables as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from containers.errors import shown


def aligned(lines: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> Iterator[str]:
    """Yield each line with its cells in columns; those of ``numbers``, counted from 0, end at the same place."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()


def code(text: str) -> str:
    """Return a text from outside as a code span of Markdown, also in a table; it can end neither."""
    plain = shown(text).replace("\n", "\\n").replace("`", "'").replace("\\|", "/|")
    return f"`{plain}`" if plain else ""


def markdown(head: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table in GitHub's Markdown, each row with a line break."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
