"""The report on a comparison as facts and tables of text, for the modules that print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cli.diff.comparison import Comparison, Package, Setting
from cli.diff.stack_diff import ImageDiff, IndexDiff, StackDiff
from containers.errors import one_line
from containers.image.layers.file_tree import Difference
from containers.image.layers.layer import Entry
from containers.image.node_pull import RATE_NAME, size
from containers.image.registry_image import Image, Layer

_LISTED_FILES = 20
"""Files in the table; `--json` has all."""
_CELL_WIDTH = 100
"""Characters of one cell."""

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True)
class Table:
    """A table: title, column titles, and rows, which begin with ``+``, ``-``, ``~`` or an empty cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ReportPart:
    """The report on one image: named facts and tables. ``content`` is the comparison that a picture shows."""

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    content: Comparison | None


@dataclass(frozen=True)
class DiffReport:
    """The whole report. ``graph`` is the diff of a stack, if one was compared."""

    title: str
    parts: Sequence[ReportPart]
    graph: StackDiff | None = None


def of_images(comparison: Comparison) -> DiffReport:
    """Report on two images."""
    title = f"{_cell(comparison.before.reference)} -> {_cell(comparison.after.reference)}"
    return DiffReport(title, [ReportPart(title, _facts(comparison), _tables(comparison), comparison)])


def of_stack(diff: StackDiff) -> DiffReport:
    """Report on a stack's images."""
    parts = [_part(image) for image in diff.images if not image.product or image.state != "unchanged"]
    parts += [
        ReportPart(f"{name}: removed", [("published", "the stack no longer builds it")], [], None)
        for name in diff.removed
    ]
    parts += [_index(index) for index in diff.indexes if index.state != "unchanged" or index.moved]
    if not parts:
        images = "only build products, which are unchanged" if diff.images else "none: the stack builds no image"
        parts = [ReportPart(diff.stack, [("images", images)], [], None)]
    return DiffReport(f"stack {diff.stack}", parts, diff)


def over(diff: StackDiff) -> list[str]:
    """Return a line for each image that is larger than its budget."""
    return [
        f"stack {diff.stack}: {image.name}: {size(image.newest.size)} compressed is over its budget of "
        f"{size(image.budget)} (slipway:budgets): {image.newest.reference}"
        for image in diff.images
        if image.over and image.newest and image.budget
    ]


def _cell(text: str) -> str:
    return one_line(text, _CELL_WIDTH)


def _part(image: ImageDiff) -> ReportPart:
    facts = [("image", _cell(image.planned))]
    if image.base:
        facts.append(("base", _cell(image.base)))
    if image.newest and not image.content:
        facts.append(
            ("size", f"{size(image.newest.size)} compressed{', as published' if image.state == 'changed' else ''}")
        )
    if image.budget is not None and image.newest:
        facts.append(
            ("budget", f"{size(image.newest.size)} of {size(image.budget)}{', over it' if image.over else ''}")
        )
    if image.state != "unchanged" and not image.content and not image.product:
        facts.append(("content", "not in the registry yet: packages and files are compared after the push"))
    rows = [
        (_mark(change.before, change.after), change.what, _cell(change.before or ""), _cell(change.after or ""))
        for change in image.changes
    ]
    tables = [Table("built from", ("input", "published", "now"), rows)] if rows else []
    lines = [
        (line[0].strip("."), _cell(change.what.partition(" ")[2]), line[2:] if line[0] in "+-" else line)
        for change in image.changes
        for line in change.lines
    ]
    tables += [Table("changed lines", ("file", "line"), lines)] if lines else []
    content = image.content
    if content:
        facts += _facts(content)
        tables += _tables(content)
    return ReportPart(f"{image.name}: {image.state}", facts, tables, content)


def _index(index: IndexDiff) -> ReportPart:
    facts = [("index", _cell(index.planned))]
    if index.moved:
        named = f"names {index.tagged}" if index.tagged else "is not in the registry"
        facts.append(("tag", f"{named}, not {index.published}: `pulumi refresh` and the next update mend it"))
    return ReportPart(f"index {index.name}: {index.state}{', moved by hand' if index.moved else ''}", facts, [], None)


def _mark(before: object, after: object, *, certain: bool = True) -> str:
    mark = "+" if before is None else "-" if after is None else "~"
    return mark if certain else f"{mark}?"


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    before, after = comparison.before, comparison.after
    reused = f"{len(comparison.reused)} of {len(after.layers)} reused ({_sum(comparison.reused)})"
    pushed = f"{len(comparison.pushed)} to push ({_sum(comparison.pushed)})"
    pull = f"{comparison.pull} where the image before is, {comparison.whole_pull}"
    growth = after.size - before.size
    facts = [
        ("before", _image(before)),
        ("after", _image(after)),
        ("size", f"{size(before.size)} -> {size(after.size)} ({'+' if growth >= 0 else ''}{size(growth)}) compressed"),
        ("layers", f"{reused}, {pushed}"),
        ("pull", f"{pull} on an empty node; at {RATE_NAME}, without unpacking"),
    ]
    was, now = comparison.bases
    if was != now:
        facts.append(("base", f"{_cell(was or 'unnamed')} -> {_cell(now or 'unnamed')}"))
    elif comparison.base_moved:
        facts.append(
            ("base", f"{_cell(now)} has moved: the lowest layers differ" if now else "the lowest layers differ")
        )
    if comparison.files:
        counts: Counter[str] = Counter(file.change for file in comparison.files)
        facts.append(("files", ", ".join(f"{counts[change]} {change}" for change in _MARKS if counts[change])))
    if not (comparison.packages or comparison.settings or comparison.files):
        facts.append(("content", "no difference in packages, settings and files"))
    if comparison.loading == ():
        facts.append(("loading", "no difference in what loads, GPU code and driver"))
    return facts


def _image(image: Image) -> str:
    return f"{_cell(image.reference)} ({image.digest[:19]}, {_cell(image.platform)})"


def _sum(layers: Iterable[Layer]) -> str:
    return size(sum(layer.size for layer in layers))


def _tables(comparison: Comparison) -> list[Table]:
    tables = [
        _packages(comparison.packages),
        _settings("settings", "setting", comparison.settings),
        _settings("loading", "library", comparison.loading or ()),
        _risks(comparison),
        _layers(comparison),
        _files(comparison),
    ]
    return [table for table in tables if table.rows]


def _packages(packages: Sequence[Package]) -> Table:
    rows = [
        (
            _mark(package.before, package.after, certain=package.certain),
            _cell(package.name),
            package.manager + (f" {_cell(package.where)}" if package.where else ""),
            _cell(package.before or ""),
            _cell(package.after or ""),
        )
        for package in packages
    ]
    return Table("packages", ("package", "of", "before", "after"), rows)


def _settings(title: str, column: str, settings: Sequence[Setting]) -> Table:
    rows = [
        (_mark(each.before, each.after), _cell(each.name), _cell(each.before or ""), _cell(each.after or ""))
        for each in settings
    ]
    return Table(title, (column, "before", "after"), rows)


def _risks(comparison: Comparison) -> Table:
    rows = [("!", _cell(f"/{risk.path}"), risk.kind) for risk in comparison.risks]
    return Table("new permissions", ("file", "now"), rows)


def _layers(comparison: Comparison) -> Table:
    rows = [("+", size(layer.size), _cell(layer.created_by)) for layer in comparison.pushed]
    return Table("layers to push", ("size", "created by"), rows)


def _files(comparison: Comparison) -> Table:
    largest = sorted(comparison.files, key=lambda file: (-_weight(file), file.path))
    rows = [
        (
            _MARKS[file.change] + ("" if file.certain else "?"),
            _cell(f"/{file.path}"),
            _describe(file.before, file.after),
            _describe(file.after, file.before),
        )
        for file in largest[:_LISTED_FILES]
    ]
    more = len(comparison.files) - len(rows)
    notes = [f"and {more} more: --json has all"] if more > 0 else []
    if not all(file.certain for file in comparison.files):
        notes.append(
            f"?: unread shared layers ({len(comparison.unread)}, {_sum(comparison.unread)}) may have it too; "
            "--thorough reads them"
        )
    return Table("files", ("file", "before", "after"), rows, "; ".join(notes))


def _weight(file: Difference) -> int:
    """Return the size of the larger file of a difference."""
    return max(entry.size if entry else 0 for entry in (file.before, file.after))


def _describe(entry: Entry | None, other: Entry | None) -> str:
    """Describe a file, with mode and owner if they differ from the other image's."""
    if entry is None:
        return ""
    words = [size(entry.size) if entry.kind == "file" else entry.kind]
    if entry.target:
        words.append(f"to {_cell(entry.target)}")
    if other and (entry.mode, entry.owner) != (other.mode, other.owner):
        words.append(f"{entry.mode:04o} {entry.owner[0]}:{entry.owner[1]}")
    return " ".join(words)
