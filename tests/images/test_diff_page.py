"""The page of ``diff --html`` in a real browser: Chromium, in a container."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cli.diff.comparison import Comparison, compare
from cli.diff.html import page
from cli.diff.report import of_images, of_stack
from cli.diff.stack_diff import Change, ImageDiff, StackDiff
from containers.image.registry_image import fetch
from tests.fakes.registry import serve
from tests.helpers.layers import Item, archive
from tests.images.engine import base_image, docker, unique

CHROMIUM = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends chromium-headless-shell fonts-dejavu-core
"""
OPEN = (
    "cat > /page.html && exec chromium-headless-shell --no-sandbox --disable-gpu --window-size=1280,900 "
    "--dump-dom file:///page.html 2>/dev/null"
)

MEASURE = """<pre id="measured"></pre><script>
const box = at => { const b = at.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] }
const all = what => [...document.querySelectorAll(what)]
document.getElementById("measured").textContent = JSON.stringify({
  requests: performance.getEntriesByType("resource").length,
  wide: document.documentElement.scrollWidth, window: innerWidth,
  pictures: all("svg").map(svg => ({
    label: svg.getAttribute("aria-label"), box: box(svg), edges: svg.querySelectorAll("path").length,
    shapes: [...svg.querySelectorAll("rect")].map(rect => [rect.getAttribute("class"), box(rect), getComputedStyle(rect).fill]),
    texts: [...svg.querySelectorAll("text")].map(text => [text.textContent, box(text)]),
  })),
  tables: all("table").map(table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))),
  scripts: document.scripts.length, title: document.title,
})
</script></body>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    tag = unique("chromium")
    docker("build", "--tag", tag, "-", text=CHROMIUM.format(base=base_image()))
    yield tag
    docker("rmi", "--force", tag)


@pytest.fixture(scope="module")
def content() -> Iterator[Comparison]:
    with serve() as registry:
        layers = [[Item(f"f{number}", "file", str(number) * 10**number)] for number in range(5)]
        script = [Item("<script>document.title = 'run'</script>", "file", "x")]
        before = registry.image("torch:1", [archive(layer) for layer in layers[:4]])
        after = registry.image("torch:2", [archive(layer) for layer in (*layers[:2], *layers[4:], script)])
        yield compare(fetch(before), fetch(after))


def opened(browser: str, text: str) -> dict[str, Any]:
    """Open a page; return what can be measured of it."""
    dom = docker("run", "--rm", "-i", browser, "sh", "-c", OPEN, text=text.replace("</body>", MEASURE)).stdout
    match = re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    assert match, dom[-2000:]
    measured: dict[str, Any] = json.loads(html.unescape(match[1]))
    return measured


def image(name: str, *parents: str, **more: Any) -> ImageDiff:
    defaults = {"product": False, "state": "unchanged", "changes": (), "base": None, "newest": None, "content": None}
    return ImageDiff(name=name, parents=parents, planned=f"r.example/{name}:1", budget=None, **{**defaults, **more})


def inside(inner: list[float], outer: list[float]) -> bool:
    return all(a >= b - 1 for a, b in zip(inner[:2], outer[:2], strict=True)) and all(
        a <= b + 1 for a, b in zip(inner[2:], outer[2:], strict=True)
    )


@pytest.mark.slow
def test_page_of_stack_draws_its_images_and_layers(browser: str, content: Comparison) -> None:
    changes = (Change("args TORCH_VERSION", "2.14.0", "2.14.1"),)
    diff = StackDiff(
        "nccl-cu121",
        (
            image("torch-source", product=True),
            image("torch-wheel", "torch-source", product=True, state="changed", changes=changes),
            image("nccl-tests"),
            image("torch", "nccl-tests", "torch-wheel", state="changed", content=content, newest=content.after),
            image("torch-extras", "torch", state="new"),
        ),
        ("old",),
    )
    rendered = opened(browser, page(of_stack(diff)))
    assert (rendered["requests"], rendered["scripts"], rendered["title"]) == (0, 1, "stack nccl-cu121")
    assert rendered["wide"] <= rendered["window"]
    graph, layers = rendered["pictures"]
    for picture in (graph, layers):
        boxes = [box for _, box, _ in picture["shapes"]]
        assert all(right - left > 1 and bottom - top > 10 for left, top, right, bottom in boxes)
        assert all(inside(box, picture["box"]) for box in [*boxes, *(box for _, box in picture["texts"])])
    assert graph["edges"] == 4
    assert [label for label, _ in graph["texts"]][::2] == [each.name for each in diff.images]
    for (_, shape, _), label in zip(graph["shapes"], graph["texts"][::2], strict=True):
        assert inside(label[1], shape)
    columns = {label: box[0] for label, box in graph["texts"][::2]}
    assert columns["torch-source"] < columns["torch-wheel"] < columns["torch"] < columns["torch-extras"]
    kinds = [kind for kind, _, _ in layers["shapes"]]
    assert [kinds.count(f"layer {kind}") for kind in ("same", "gone", "new")] == [4, 2, 2]
    assert len({fill for _, _, fill in layers["shapes"]}) == 3
    largest = max(layers["shapes"], key=lambda shape: shape[1][2] - shape[1][0])
    assert largest[0] in {"layer new", "layer gone", "layer same"}
    assert any(row[1:] == ["args TORCH_VERSION", "2.14.0", "2.14.1"] for table in rendered["tables"] for row in table)


@pytest.mark.slow
def test_page_of_two_images_escapes_names(browser: str, content: Comparison) -> None:
    rendered = opened(browser, page(of_images(content)))
    assert rendered["scripts"] == 1  # the one that measures
    assert rendered["title"] == f"{content.before.reference} -> {content.after.reference}"
    assert len(rendered["pictures"]) == 1
    names = {row[1] for table in rendered["tables"] for row in table}
    assert "/<script>document.title = 'run'</script>" in names
