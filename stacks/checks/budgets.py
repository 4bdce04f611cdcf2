"""``slipway:budgets``."""

from __future__ import annotations

from collections.abc import Iterator

from containers.errors import builds_no
from stacks.graph import Graph


def unknown_images(graph: Graph) -> Iterator[str]:
    """Yield a message for each budget of an image that the stack does not build."""
    for name in graph.config.budgets:
        if name not in graph.images:
            yield f"slipway:budgets: the stack {builds_no(name, graph.images)}"
