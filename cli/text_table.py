"""Tables as plain text and as Markdown, and texts in lines."""

from __future__ import annotations

import textwrap
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


def wrapped(text: str, title: str = "") -> list[str]:
    """Return an indented text in lines of 100 characters, behind its title if any; a name with a hyphen stays whole."""
    first = f"  {title:<12}" if title else "  "
    indent = " " * len(first)
    return textwrap.wrap(text, 100, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def code(text: str) -> str:
    """Return a text from outside as a code span of Markdown, also in a table; it can end neither."""
    plain = shown(text).replace("\n", "\\n").replace("`", "'").replace("\\|", "/|")
    return f"`{plain}`" if plain else ""


def markdown(head: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table in GitHub's Markdown, each row with a line break."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
