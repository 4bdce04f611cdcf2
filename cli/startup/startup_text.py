"""How an image starts, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cli.startup.measurement import PHASES, Start
from cli.text_table import aligned

_NAMES = {
    "import_cpu": "import (CPU)",
    "context": "first CUDA context",
    "kernel": "first kernel",
    "compiled": "first compiled step",
}


def lines(images: Sequence[Start]) -> Iterator[str]:
    """Yield a table with a row for each phase: of each image the first container, and the median of the later ones."""
    for number, image in enumerate(images, 1):
        mark = f"[{number}] " if len(images) > 1 else ""
        facts = [
            f"{image.layers} layers, {image.size / 1e6:,.1f} MB" if image.layers else "not measured",
            image.python and f"Python {image.python}",
            image.version,
            image.device,
        ]
        yield f"{mark}{image.reference}: {'; '.join(filter(None, facts))}"
    yield ""
    several = len(images) > 1
    head = [
        label + (f" [{number}]" if several else "")
        for number, _ in enumerate(images, 1)
        for label in ("first", "again")
    ]
    rows = [["", *head]]
    rows += [
        [part, *(cell for image in images for cell in (_pull(image, part), ""))] for part in ("download", "unpack")
    ]
    for phase in PHASES:
        cells = [_seconds(value) for image in images for value in (image.first(phase), image.again(phase))]
        if any(cells):
            rows.append([_NAMES.get(phase, phase), *cells])
    yield from aligned(rows, numbers=range(1, 1 + len(head)))
    for image in images:
        if image.skipped:
            yield f"{image.reference}: skipped: {image.skipped}"


def _pull(image: Start, part: str) -> str:
    return _seconds(getattr(image.pull, part)) if image.pull else "here" if image.runs else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"
