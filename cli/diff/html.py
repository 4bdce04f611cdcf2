"""A report as a self-contained HTML page: tables, the graph of the stack's images, and their layers by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from cli import html_page
from cli.diff.comparison import Comparison
from cli.diff.report import DiffReport, ReportPart
from cli.diff.stack_diff import ImageDiff, StackDiff
from cli.html_page import draw_rectangle, draw_text, element, svg
from containers.errors import one_line
from containers.image.node_pull import size
from containers.image.registry_image import Image

_STYLE: Final = """
td:first-child { font-family: monospace; white-space: nowrap; }
tr.added td:first-child { color: #1a7f37; } tr.removed td:first-child { color: #b42318; }
tr.changed td:first-child { color: #9a6700; } tr.note td:first-child { color: #b42318; font-weight: bold; }
.same { fill: #d0d7de; } .gone { fill: #f4a79d; } .new { fill: #8fd19e; } .moved { fill: #f2cc60; }
.edge { fill: none; stroke: #8c959f; } .box, .layer { stroke: #fff; }
.product { stroke: #57606a; stroke-dasharray: 4 3; }
.box.over { stroke: #b42318; stroke-width: 3; }
"""
_ROWS: Final = {"+": "added", "-": "removed", "~": "changed", "!": "note"}
_STATES: Final[Mapping[str, str]] = {"unchanged": "same", "changed": "moved", "new": "new"}

_BOX: Final = (190, 44)
_GAP: Final = (60, 16)
_BAR: Final = (1000, 34)
_MIN_WIDTH: Final = 1.5
"""Smallest width of a layer in SVG units."""


def page(report: DiffReport) -> str:
    """Return a page without scripts and external resources."""
    return html_page.page(report.title, _STYLE, _body(report))


def _body(report: DiffReport) -> Iterator[Element]:
    if report.graph:
        yield _graph(report.graph)
    for part in report.parts:
        yield from _part(part, titled=len(report.parts) > 1 or report.graph is not None)


def _part(part: ReportPart, *, titled: bool) -> Iterator[Element]:
    if titled:
        yield element("h2", part.title)
    yield html_page.facts(part.facts)
    if part.content:
        yield _layers(part.content)
    for table in part.tables:
        yield element("h3", table.title)
        yield html_page.table(("", *table.columns), ((_ROWS.get(row[0][:1], ""), row) for row in table.rows))
        if table.note:
            yield element("p", table.note)


def _layers(comparison: Comparison) -> Element:
    """Draw both images as bars of layers, the lowest on the left; widths are proportional to sizes."""
    width, height = _BAR
    picture = svg(width, 2 * (height + 24), "layers by compressed size, before and after")
    largest = max(comparison.before.size, comparison.after.size, 1)
    for number, (image, other, kind) in enumerate(
        ((comparison.before, comparison.after, "gone"), (comparison.after, comparison.before, "new"))
    ):
        top = number * (height + 24)
        draw_text(picture, 0, top + 12, f"{('before', 'after')[number]}  {size(image.size)}", "plain")
        left = 0.0
        for part, hint, shared in _shares(image, other):
            drawn_width = max(part / largest * width, _MIN_WIDTH)
            draw_rectangle(picture, left, top + 18, drawn_width, height, f"layer {'same' if shared else kind}", hint)
            left += part / largest * width
    return picture


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
    picture = svg(
        len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0],
        deepest * (_BOX[1] + _GAP[1]) - _GAP[1],
        f"images of stack {diff.stack}",
    )
    for image in diff.images:
        for parent in image.parents:
            if parent in places:
                picture.append(_edge(places[parent], places[image.name]))
    for image in diff.images:
        x, y = places[image.name]
        kind = f"box {_STATES[image.state]}{' product' if image.product else ''}{' over' if image.over else ''}"
        draw_rectangle(picture, x, y, *_BOX, kind, image.planned)
        draw_text(picture, x + 10, y + 18, image.name)
        weight = f", {size(image.newest.size)}" if image.newest else ""
        draw_text(picture, x + 10, y + 35, f"{image.state}{weight}")
    return picture


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
