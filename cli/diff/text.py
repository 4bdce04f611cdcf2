"""A report as plain text for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from cli import text_table
from cli.diff.report import DiffReport, ReportPart, Table


def terminal(report: DiffReport) -> str:
    """Return a report as plain text with aligned tables."""
    return "\n\n".join("\n".join(_part(part)) for part in report.parts)


def _part(part: ReportPart) -> Iterator[str]:
    yield part.title
    yield from (f"  {line}" for line in text_table.aligned(part.facts))
    for table in part.tables:
        yield f"  {table.title}"
        yield from (f"    {line}" for line in _lines(table))


def _lines(table: Table) -> Iterator[str]:
    yield from text_table.aligned([("", *table.columns), *table.rows])
    if table.note:
        yield table.note


def markdown(report: DiffReport) -> str:
    """Return a report in GitHub's Markdown; content of images is in code spans, so that it stays plain text."""
    return "\n".join(line for part in report.parts for line in _markdown(part))


def _markdown(part: ReportPart) -> Iterator[str]:
    yield f"### {text_table.code(part.title)}\n"
    yield from (f"- {name}: {text_table.code(value)}" for name, value in part.facts)
    yield ""
    for table in part.tables:
        # Long tables are folded.
        yield f"<details><summary>{table.title} ({len(table.rows)})</summary>\n"
        rows = ([text_table.code(cell) for cell in row] for row in table.rows)
        yield text_table.markdown(["", *table.columns], *rows)
        yield f"{text_table.code(table.note)}\n\n</details>\n" if table.note else "</details>\n"
