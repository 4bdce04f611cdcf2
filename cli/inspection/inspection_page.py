"""The inspection of an image as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from cli import html_page
from cli.html_page import draw_rectangle, draw_text, element, svg
from cli.inspection.inspection_text import facts, summary
from cli.inspection.nccl_report import described
from containers.errors import abridged, one_line
from containers.image.binaries.inspection import Inspection
from containers.image.binaries.plugins import Plugin
from containers.image.gpu.gpu_code import GpuCode
from containers.image.gpu.gpu_coverage import gpu_label
from containers.image.layers.space import Space
from containers.image.node_pull import size

_STYLE: Final = """
.verdict { font-size: 1.2rem; font-weight: 600; padding: .5rem .8rem; border-radius: 4px; color: #1c2127; }
.verdict.good { background: #b7e4c0; } .verdict.bad { background: #f4a79d; }
th { white-space: nowrap; } summary { cursor: pointer; font-weight: 600; margin: 1.2rem 0 .3rem; }
td.bad, tr.bad td:first-child { color: #b42318; font-weight: bold; }
.used { fill: #8fd19e; } .unneeded { fill: #f2cc60; }
"""
_ROWS: Final = 300
"""Rows of one table; `--json` has all."""
_CELL: Final = 400
"""Characters of one cell."""
_LISTED: Final = 8
"""Files in one cell."""
_BAR: Final = (1000, 34)

_Row = tuple[str, Sequence[str]]


def page(inspection: Inspection) -> str:
    """Return a page without scripts and external resources."""
    return html_page.page(one_line(inspection.image.reference), _STYLE, _body(inspection))


def _body(inspection: Inspection) -> Iterator[Element]:
    image, faults = inspection.image, inspection.faults
    yield element("p", f"{image.digest} {one_line(image.platform)}")
    yield element("p", summary(len(faults)), f"verdict {'bad' if faults else 'good'}")
    rows = [
        ("bad", (fault.file, fault.missing, fault.reason, abridged(fault.users, _LISTED), fault.provider))
        for fault in faults
    ]
    columns = ("file", "fault", "reason", "needed by", "has it")
    yield from _table("Faults", columns, rows, is_open=True)
    yield html_page.facts((name, one_line(value, _CELL * 5)) for name, value in facts(inspection))
    yield _space(inspection.space)
    yield from _gpu_code(inspection)
    yield from _table("Plugins", ("opener", "opens", "state"), [*map(_plugin, inspection.loading.plugins)])
    yield from _table("Libraries from elsewhere", ("library", "whence", "needed by"), [*_libraries(inspection)])
    sonames = [("", (name, ", ".join(paths))) for name, paths in inspection.loading.sonames.items()]
    yield from _table("Different libraries of one name", ("name", "files"), sonames)
    copies = [
        ("bad" if one.case else "", (one.family, one.process, " and ".join(map(str, one.copies)), one.mixing))
        for one in inspection.copies
    ]
    yield from _table("Copies of one library", ("library", "process", "copies", "what the loader does"), copies)
    owners = [
        (
            "bad" if one.is_fault else "",
            (one.path, ", ".join(map(str, one.owners)), str(one.winner) if one.winner else "of neither"),
        )
        for one in inspection.contested
    ]
    yield from _table("Files with two owners", ("file", "owners", "content"), owners)
    yield from _table("Files that no container needs", ("file", "why", "size"), [*_unneeded(inspection.space)])


def _table(title: str, columns: Sequence[str], rows: Sequence[_Row], *, is_open: bool = False) -> Iterator[Element]:
    """Yield a table that unfolds; nothing without rows."""
    if not rows:
        return
    folded = Element("details", {"open": ""} if is_open else {})
    folded.append(element("summary", f"{title} ({len(rows)})"))
    first = [(kind, [one_line(cell, _CELL) for cell in cells]) for kind, cells in rows[:_ROWS]]
    folded.append(html_page.table(columns, first))
    if len(rows) > _ROWS:
        folded.append(element("p", f"and {len(rows) - _ROWS} more: --json has all"))
    yield folded


def _plugin(plugin: Plugin) -> _Row:
    if plugin.file:
        state = described(plugin)
    elif plugin.elsewhere:
        state = f"{plugin.elsewhere} is in no folder that is searched"
    else:
        state = "not in the image" + (", and the opener needs it" if plugin.needed else "")
    bad = (plugin.needed and not plugin.file) or (bool(plugin.file) and not plugin.loads)
    return "bad" if bad else "", (plugin.opener, plugin.name, state)


def _libraries(inspection: Inspection) -> Iterator[_Row]:
    loading = inspection.loading
    kinds: Mapping[str, Mapping[str, Sequence[str]]] = {
        "the host": loading.host,
        "opened before by a Python package": loading.preloaded,
        "may be missing": loading.optional,
    }
    for kind, libraries in kinds.items():
        for name, files in sorted(libraries.items()):
            yield "", (name, kind, abridged(files, _LISTED))


def _gpu_code(inspection: Inspection) -> Iterator[Element]:
    """Yield a table of each library's code by architecture, and by GPU asked for."""
    coverage = inspection.coverage
    gpus = [gpu_label(name, capability) for name, capability in inspection.question.gpus.items()]
    rows = []
    for path, has in coverage.libraries.items():
        answers = [
            "none"
            if path in coverage.without.get(gpu, ())
            else "PTX"
            if path in coverage.compiled.get(gpu, ())
            else "yes"
            for gpu in gpus
        ]
        row = (path, *answers, _archs(has, "sm"), _archs(has, "ptx"))
        rows.append(("bad" if "none" in answers else "", row))
    yield from _table("GPU code", ("library", *gpus, "machine code", "PTX"), rows, is_open=bool(gpus))


def _archs(codes: Sequence[GpuCode], kind: str) -> str:
    return " ".join(f"{code.arch}{code.variant}" for code in codes if code.kind == kind)


def _space(space: Space) -> Element:
    """Draw what the files take as a bar: first what a container needs."""
    width, height = _BAR
    kinds = {kind: sum(files.values()) for kind, files in space.unneeded.items()}
    parts = [("used", "what a container may need", space.total - sum(kinds.values()))]
    parts += [("unneeded", kind, number) for kind, number in sorted(kinds.items(), key=lambda each: -each[1])]
    picture = svg(width, height + 24, "bytes unpacked: what a container may need, and the rest")
    draw_text(picture, 0, 12, f"{size(space.total)} unpacked", "plain")
    left = 0.0
    for kind, name, number in parts:
        share = number / max(space.total, 1) * width
        if share:
            draw_rectangle(picture, left, 18, share, height, kind, f"{size(number)} {name}")
        left += share
    return picture


def _unneeded(space: Space) -> Iterator[_Row]:
    files = [(number, path, kind) for kind, files in space.unneeded.items() for path, number in files.items()]
    for number, path, kind in sorted(files, reverse=True):
        yield "", (f"/{path}", kind, size(number))
