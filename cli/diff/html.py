"""A report as a self-contained HTML page: tables, the graph of the stack's images, and their layers by size."""

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
_MIN_WIDTH: Final = 1.5
"""Smallest width of a layer in SVG units."""


def page(report: Report) -> str:
    """Return a page without scripts and external resources."""
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
    for name, value in part.facts:
        SubElement(facts, "dt").text = name
        SubElement(facts, "dd").text = value
    yield facts
    if part.content:
        yield _layers(part.content)
    for table in part.tables:
        yield from _table(table)


def _table(table: Table) -> Iterator[Element]:
    heading = Element("h3")
    heading.text = table.title
    yield heading
    element = Element("table")
    titles = SubElement(SubElement(element, "thead"), "tr")
    for title in ("", *table.columns):
        SubElement(titles, "th").text = title
    rows = SubElement(element, "tbody")
    for row in table.rows:
        line = SubElement(rows, "tr", {"class": _ROWS.get(row[0][:1], "")})
        for cell in row:
            SubElement(line, "td").text = cell
    yield element
    if table.note:
        note = Element("p")
        note.text = table.note
        yield note


def _svg(width: float, height: float, label: str) -> Element:
    box = f"0 0 {width:g} {height:g}"
    return Element(
        "svg", {"viewBox": box, "width": f"{width:g}", "height": f"{height:g}", "role": "img", "aria-label": label}
    )


def _rectangle(parent: Element, x: float, y: float, width: float, height: float, kind: str, hint: str) -> None:
    rectangle = SubElement(parent, "rect", {"class": kind, "rx": "3"})
    for name, value in (("x", x), ("y", y), ("width", width), ("height", height)):
        rectangle.set(name, f"{value:.2f}")
    SubElement(rectangle, "title").text = hint


def _text(parent: Element, x: float, y: float, text: str, kind: str = "") -> None:
    SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = text


def _layers(comparison: Comparison) -> Element:
    """Draw both images as bars of layers, the lowest on the left; widths are proportional to sizes."""
    width, height = _BAR
    svg = _svg(width, 2 * (height + 24), "layers by compressed size, before and after")
    largest = max(comparison.before.size, comparison.after.size, 1)
    for number, (image, other, kind) in enumerate(
        ((comparison.before, comparison.after, "gone"), (comparison.after, comparison.before, "new"))
    ):
        top = number * (height + 24)
        _text(svg, 0, top + 12, f"{('before', 'after')[number]}  {size(image.size)}", "plain")
        left = 0.0
        for part, hint, shared in _shares(image, other):
            drawn_width = max(part / largest * width, _MIN_WIDTH)
            _rectangle(svg, left, top + 18, drawn_width, height, f"layer {'same' if shared else kind}", hint)
            left += part / largest * width
    return svg


def _shares(image: Image, other: Image) -> Iterator[tuple[int, str, bool]]:
    """Yield size, hint and whether the other image has it too, for each layer."""
    shared = {layer.digest for layer in other.layers}
    for layer in image.layers:
        yield layer.size, f"{size(layer.size)}  {one_line(layer.created_by, 200)}", layer.digest in shared


def _graph(diff: StackDiff) -> Element:
    """Draw the stack's images, each to the right of its parents."""
    columns = _columns(diff.images)
    places: dict[str, tuple[float, float]] = {}
    for column, names in enumerate(columns):
        for row, name in enumerate(names):
            places[name] = (column * (_BOX[0] + _GAP[0]), row * (_BOX[1] + _GAP[1]))
    deepest = max(map(len, columns), default=1)
    svg = _svg(
        len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0],
        deepest * (_BOX[1] + _GAP[1]) - _GAP[1],
        f"images of stack {diff.stack}",
    )
    for image in diff.images:
        for parent in image.parents:
            if parent in places:
                svg.append(_edge(places[parent], places[image.name]))
    for image in diff.images:
        x, y = places[image.name]
        kind = f"box {_STATES[image.state]}{' product' if image.product else ''}{' over' if image.over else ''}"
        _rectangle(svg, x, y, *_BOX, kind, image.planned)
        _text(svg, x + 10, y + 18, image.name)
        weight = f", {size(image.newest.size)}" if image.newest else ""
        _text(svg, x + 10, y + 35, f"{image.state}{weight}")
    return svg


def _columns(images: Sequence[ImageDiff]) -> list[list[str]]:
    """Return the images by the length of the longest path to them; ``images`` has parents before children."""
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
    end_x, end_y = child[0], child[1] + _BOX[1] / 2
    middle = (x + end_x) / 2
    return Element(
        "path", {"class": "edge", "d": f"M{x:g} {y:g} C{middle:g} {y:g} {middle:g} {end_y:g} {end_x:g} {end_y:g}"}
    )
