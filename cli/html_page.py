"""A self-contained HTML page, without scripts and external resources, and what pages are made of.

All text becomes text of elements, so that names from an image stay names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

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
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #1c2127; }
@media (prefers-color-scheme: dark) {
  body { background: #14181c; color: #e4e8ec; } svg text { fill: #14181c; } svg text.plain { fill: #e4e8ec; }
  h2, th, td { border-color: #333b43; }
}
"""


def page(title: str, style: str, body: Iterable[Element]) -> str:
    """Return a page with a title and a heading; ``style`` follows the style that all pages have."""
    root = Element("html", lang="en")
    head = SubElement(root, "head")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", name="viewport", content="width=device-width")
    SubElement(head, "title").text = title
    SubElement(head, "style").text = _STYLE + style
    content = SubElement(root, "body")
    content.append(element("h1", title))
    content.extend(body)
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def element(tag: str, text: str, kind: str = "") -> Element:
    """Return an element with text; ``kind`` is its class."""
    result = Element(tag, {"class": kind} if kind else {})
    result.text = text
    return result


def facts(pairs: Iterable[tuple[str, str]]) -> Element:
    """Return a list of named facts."""
    result = Element("dl")
    for name, value in pairs:
        result.extend((element("dt", name), element("dd", value)))
    return result


def table(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> Element:
    """Return a table; each row is its class and its cells."""
    result = Element("table")
    titles = SubElement(SubElement(result, "thead"), "tr")
    titles.extend(element("th", column) for column in columns)
    body = SubElement(result, "tbody")
    for kind, cells in rows:
        line = SubElement(body, "tr", {"class": kind} if kind else {})
        line.extend(element("td", cell) for cell in cells)
    return result


def svg(width: float, height: float, label: str) -> Element:
    """Return an empty picture; ``label`` says what it shows."""
    box = f"0 0 {width:g} {height:g}"
    return Element(
        "svg", {"viewBox": box, "width": f"{width:g}", "height": f"{height:g}", "role": "img", "aria-label": label}
    )


def draw_rectangle(picture: Element, x: float, y: float, width: float, height: float, kind: str, hint: str) -> None:
    """Draw a rectangle; ``kind`` is its class, ``hint`` what a pointer on it shows."""
    rectangle = SubElement(picture, "rect", {"class": kind, "rx": "3"})
    for name, value in (("x", x), ("y", y), ("width", width), ("height", height)):
        rectangle.set(name, f"{value:.2f}")
    SubElement(rectangle, "title").text = hint


def draw_text(picture: Element, x: float, y: float, text: str, kind: str = "") -> None:
    """Draw a line of text from a point on."""
    SubElement(picture, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = text
