"""What is said of a comparison, as tables of text: how they are drawn is for the modules that print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cli.diff.comparison import Comparison, Package
from cli.diff.stack_diff import ImageDiff, StackDiff
from oci.layers.file_tree import Difference
from oci.layers.layer import Entry
from oci.registry_image import Image, Layer
from stacks.errors import one_line

_MOST_FILES = 20
"""Files that are named; `--json` has all."""
_LONGEST = 100
"""Characters of one cell."""

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True)
class Table:
    """A table: its title, the titles of its columns, and its rows, each led by ``+``, ``-``, ``~`` or nothing."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Part:
    """What is said of one image: facts, each under a name, and tables. ``content`` is what a picture is drawn of."""

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    content: Comparison | None


@dataclass(frozen=True)
class Report:
    """All that is said. ``graph`` is the stack, where it is one that was compared."""

    title: str
    parts: Sequence[Part]
    graph: StackDiff | None = None


def of_images(found: Comparison) -> Report:
    """Report on two images."""
    title = f"{_cell(found.before.reference)} -> {_cell(found.after.reference)}"
    return Report(title, [Part(title, _facts(found), _tables(found), found)])


def of_stack(found: StackDiff) -> Report:
    """Report on a stack's images."""
    parts = [_part(image) for image in found.images if not image.product or image.state != "unchanged"]
    parts += [
        Part(f"{name}: removed", [("published", "the stack builds it no more")], [], None) for name in found.removed
    ]
    if not parts:
        what = "none but build products, which are unchanged" if found.images else "none: the stack builds no image"
        parts = [Part(found.stack, [("images", what)], [], None)]
    return Report(f"stack {found.stack}", parts, found)


def size(value: float) -> str:
    """Write a number of bytes in decimal units, as registries count: ``1.23 GB``, ``45.6 MB``."""
    for name, unit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}" if abs(value) < 100 * unit else f"{value / unit:.0f} {name}"
    return f"{value:.0f} B"


def over(found: StackDiff) -> list[str]:
    """Return a line for each image that is larger than its budget."""
    return [
        f"stack {found.stack}: {image.name}: {size(image.newest.size)} compressed is over its budget of "
        f"{size(image.budget)} (slipway:budgets): {image.newest.reference}"
        for image in found.images
        if image.over and image.newest and image.budget
    ]


def _cell(text: str) -> str:
    return one_line(text, _LONGEST)


def _part(image: ImageDiff) -> Part:
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
        facts.append(("content", "not in the registry yet: packages and files can be compared once it is pushed"))
    rows = [
        (_mark(change.before, change.after), change.what, _cell(change.before or ""), _cell(change.after or ""))
        for change in image.changes
    ]
    tables = [Table("made of", ("what", "published", "now"), rows)] if rows else []
    content = image.content
    if content:
        facts += _facts(content)
        tables += _tables(content)
    return Part(f"{image.name}: {image.state}", facts, tables, content)


def _mark(before: object, after: object, *, certain: bool = True) -> str:
    mark = "+" if before is None else "-" if after is None else "~"
    return mark if certain else f"{mark}?"


def _facts(found: Comparison) -> list[tuple[str, str]]:
    before, after = found.before, found.after
    reused = f"{len(found.reused)} of {len(after.layers)}"
    grown = after.size - before.size
    facts = [
        ("before", _image(before)),
        ("after", _image(after)),
        ("size", f"{size(before.size)} -> {size(after.size)} ({'+' if grown >= 0 else ''}{size(grown)}) compressed"),
        ("layers", f"{reused} reused ({_sum(found.reused)}), {len(found.pushed)} to push ({_sum(found.pushed)})"),
    ]
    was, now = found.bases
    if was != now:
        facts.append(("base", f"{_cell(was or 'unnamed')} -> {_cell(now or 'unnamed')}"))
    elif found.base_moved:
        facts.append(
            ("base", f"{_cell(now)} has moved: the lowest layers differ" if now else "the lowest layers differ")
        )
    if found.files:
        counts: Counter[str] = Counter(file.change for file in found.files)
        facts.append(("files", ", ".join(f"{counts[change]} {change}" for change in _MARKS if counts[change])))
    if not (found.packages or found.settings or found.files):
        facts.append(("content", "no difference in packages, settings and files"))
    return facts


def _image(image: Image) -> str:
    return f"{_cell(image.reference)} ({image.digest[:19]}, {image.platform})"


def _sum(layers: Iterable[Layer]) -> str:
    return size(sum(layer.size for layer in layers))


def _tables(found: Comparison) -> list[Table]:
    tables = [_packages(found.packages), _settings(found), _risks(found), _layers(found), _files(found)]
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


def _settings(found: Comparison) -> Table:
    rows = [
        (_mark(each.before, each.after), _cell(each.name), _cell(each.before or ""), _cell(each.after or ""))
        for each in found.settings
    ]
    return Table("settings", ("setting", "before", "after"), rows)


def _risks(found: Comparison) -> Table:
    return Table("take note", ("file", "now"), [("!", _cell(f"/{risk.path}"), risk.kind) for risk in found.risks])


def _layers(found: Comparison) -> Table:
    rows = [("+", size(layer.size), _cell(layer.created_by)) for layer in found.pushed]
    return Table("layers to push", ("size", "made by"), rows)


def _files(found: Comparison) -> Table:
    largest = sorted(found.files, key=lambda file: (-_weight(file), file.path))
    rows = [
        (
            _MARKS[file.change] + ("" if file.certain else "?"),
            _cell(f"/{file.path}"),
            _what(file.before, file.after),
            _what(file.after, file.before),
        )
        for file in largest[:_MOST_FILES]
    ]
    more = len(found.files) - len(rows)
    notes = [f"and {more} more: --json has all"] if more > 0 else []
    if not all(file.certain for file in found.files):
        notes.append(
            f"?: {len(found.unread)} layers that both have ({_sum(found.unread)}) were not read, and may have it too; "
            "--thorough reads them"
        )
    return Table("files", ("file", "before", "after"), rows, "; ".join(notes))


def _weight(file: Difference) -> int:
    """Return the bytes that a difference is about."""
    return max(entry.size if entry else 0 for entry in (file.before, file.after))


def _what(entry: Entry | None, other: Entry | None) -> str:
    """Say what stands at a path, and who may do what with it where that differs from the other side."""
    if entry is None:
        return ""
    words = [size(entry.size) if entry.kind == "file" else entry.kind]
    if entry.target:
        words.append(f"to {_cell(entry.target)}")
    if other and (entry.mode, entry.owner) != (other.mode, other.owner):
        words.append(f"{entry.mode:04o} {entry.owner[0]}:{entry.owner[1]}")
    return " ".join(words)
