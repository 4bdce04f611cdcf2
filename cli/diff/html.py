"""A report as one self-contained page: tables, the stack's images as a graph, and their layers by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from cli.diff.comparison import Comparison
from cli.diff.report import Part, Report, Table, size
from cli.diff.stack_diff import ImageDiff, StackDiff
from oci.registry_image import Image
from stacks.errors import one_line

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2127; }
h1, h2 { font-weight: 600; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-top: 1px solid #ccd3da; padding-top: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; } dt { color: #5b6570; }
dd { margin: 0; overflow-wrap: anywhere; } h3 { margin: 1.2rem 0 .3rem; font-size: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: #5b6570; font-weight: 500; }
th, td { padding: .15rem .6rem .15rem 0; vertical-align: top; overflow-wrap: anywhere; }
th, td { border-bottom: 1px solid #eceff2; }
td:first-child { font-family: monospace; white-space: nowrap; }
tr.added td:first-child { color: #1a7f37; } tr.removed td:first-child { color: #b42318; }
tr.changed td:first-child { color: #9a6700; } tr.note td:first-child { color: #b42318; font-weight: bold; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #1c2127; }
.same { fill: #d0d7de; } .gone { fill: #f4a79d; } .new { fill: #8fd19e; } .moved { fill: #f2cc60; }
.edge { fill: none; stroke: #8c959f; } .box, .layer { stroke: #fff; }
.product { stroke: #57606a; stroke-dasharray: 4 3; }
.box.over { stroke: #b42318; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
  body { background: #14181c; color: #e4e8ec; } svg text { fill: #14181c; } svg text.plain { fill: #e4e8ec; }
  h2, th, td { border-color: #333b43; }
}
"""
_ROWS: Final = {"+": "added", "-": "removed", "~": "changed", "!": "note"}
_STATES: Final[Mapping[str, str]] = {"unchanged": "same", "changed": "moved", "new": "new"}

_BOX: Final = (190, 44)
_GAP: Final = (60, 16)
_BAR: Final = (1000, 34)
_LEAST: Final = 1.5
"""Width of the smallest layer that is drawn, in the units of its picture."""


def page(report: Report) -> str:
    """Return a page that needs nothing but itself, and runs nothing."""
    root = Element("html", lang="en")
    head = SubElement(root, "head")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", name="viewport", content="width=device-width")
    SubElement(head, "title").text = report.title
    SubElement(head, "style").text = _STYLE
    body = SubElement(root, "body")
    SubElement(body, "h1").text = report.title
    if report.graph:
        body.append(_graph(report.graph))
    for part in report.parts:
        body.extend(_part(part, titled=len(report.parts) > 1 or report.graph is not None))
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def _part(part: Part, *, titled: bool) -> Iterator[Element]:
    if titled:
        heading = Element("h2")
        heading.text = part.title
        yield heading
    facts = Element("dl")
    for name, said in part.facts:
        SubElement(facts, "dt").text = name
        SubElement(facts, "dd").text = said
    yield facts
    if part.content:
        yield _layers(part.content)
    for table in part.tables:
        yield from _table(table)


def _table(table: Table) -> Iterator[Element]:
    heading = Element("h3")
    heading.text = table.title
    yield heading
    drawn = Element("table")
    titles = SubElement(SubElement(drawn, "thead"), "tr")
    for title in ("", *table.columns):
        SubElement(titles, "th").text = title
    rows = SubElement(drawn, "tbody")
    for row in table.rows:
        line = SubElement(rows, "tr", {"class": _ROWS.get(row[0][:1], "")})
        for cell in row:
            SubElement(line, "td").text = cell
    yield drawn
    if table.note:
        note = Element("p")
        note.text = table.note
        yield note


def _svg(width: float, height: float, label: str) -> Element:
    box = f"0 0 {width:g} {height:g}"
    return Element(
        "svg", {"viewBox": box, "width": f"{width:g}", "height": f"{height:g}", "role": "img", "aria-label": label}
    )


def _rectangle(at: Element, x: float, y: float, wide: float, high: float, kind: str, hint: str) -> None:
    drawn = SubElement(at, "rect", {"class": kind, "rx": "3"})
    for name, value in (("x", x), ("y", y), ("width", wide), ("height", high)):
        drawn.set(name, f"{value:.2f}")
    SubElement(drawn, "title").text = hint


def _text(at: Element, x: float, y: float, said: str, kind: str = "") -> None:
    SubElement(at, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = said


def _layers(found: Comparison) -> Element:
    """Draw both images as bars of their layers, as wide as they are large; the lowest is on the left."""
    wide, high = _BAR
    drawn = _svg(wide, 2 * (high + 24), "layers by compressed size, before and after")
    most = max(found.before.size, found.after.size, 1)
    for number, (image, other, kind) in enumerate(
        ((found.before, found.after, "gone"), (found.after, found.before, "new"))
    ):
        top = number * (high + 24)
        _text(drawn, 0, top + 12, f"{('before', 'after')[number]}  {size(image.size)}", "plain")
        left = 0.0
        for part, hint, shared in _shares(image, other):
            across = max(part / most * wide, _LEAST)
            _rectangle(drawn, left, top + 18, across, high, f"layer {'same' if shared else kind}", hint)
            left += part / most * wide
    return drawn


def _shares(image: Image, other: Image) -> Iterator[tuple[int, str, bool]]:
    there = {layer.digest for layer in other.layers}
    for layer in image.layers:
        yield layer.size, f"{size(layer.size)}  {one_line(layer.created_by, 200)}", layer.digest in there


def _graph(found: StackDiff) -> Element:
    """Draw the stack's images, each to the right of those that it is made of."""
    columns = _columns(found.images)
    places: dict[str, tuple[float, float]] = {}
    for across, names in enumerate(columns):
        for down, name in enumerate(names):
            places[name] = (across * (_BOX[0] + _GAP[0]), down * (_BOX[1] + _GAP[1]))
    deepest = max(map(len, columns), default=1)
    drawn = _svg(
        len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0],
        deepest * (_BOX[1] + _GAP[1]) - _GAP[1],
        f"images of stack {found.stack}",
    )
    for image in found.images:
        for parent in image.parents:
            if parent in places:
                drawn.append(_edge(places[parent], places[image.name]))
    for image in found.images:
        x, y = places[image.name]
        kind = f"box {_STATES[image.state]}{' product' if image.product else ''}{' over' if image.over else ''}"
        _rectangle(drawn, x, y, *_BOX, kind, image.planned)
        _text(drawn, x + 10, y + 18, image.name)
        weight = f", {size(image.newest.size)}" if image.newest else ""
        _text(drawn, x + 10, y + 35, f"{image.state}{weight}")
    return drawn


def _columns(images: Sequence[ImageDiff]) -> list[list[str]]:
    """Return the images by the longest way to them; they have parents before children."""
    depth: dict[str, int] = {}
    columns: list[list[str]] = []
    for image in images:
        depth[image.name] = max((depth[parent] + 1 for parent in image.parents if parent in depth), default=0)
        if depth[image.name] == len(columns):
            columns.append([])
        columns[depth[image.name]].append(image.name)
    return columns


def _edge(parent: tuple[float, float], child: tuple[float, float]) -> Element:
    x, y = parent[0] + _BOX[0], parent[1] + _BOX[1] / 2
    to, at = child[0], child[1] + _BOX[1] / 2
    middle = (x + to) / 2
    return Element("path", {"class": "edge", "d": f"M{x:g} {y:g} C{middle:g} {y:g} {middle:g} {at:g} {to:g} {at:g}"})
