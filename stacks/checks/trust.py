"""``slipway:trust``: the signatures that parents must have."""

from __future__ import annotations

from collections.abc import Iterator

from containers.errors import one_line, suggest
from containers.registry.reference import Reference, covering
from stacks.config.signing import trusted
from stacks.graph import Graph
from stacks.spec import Elsewhere


def unmatched_keys(graph: Graph) -> Iterator[str]:
    """Yield a message for each key that covers no parent: with a typing error, the parent would stay unverified."""
    others = (parent for spec in graph.specs for parent in spec.parents.values() if isinstance(parent, Elsewhere))
    references = {
        *(parent.reference for parent in graph.outside_parents),
        *(f"{parent.repository}:tag" for parent in others),
    }
    repositories = sorted({Reference.of(reference).in_full.repository for reference in references})
    for key in graph.config.trust:
        if not any(covering([key], reference) for reference in references):
            yield (
                f"slipway:trust: '{one_line(key)}': no parent image comes from there{suggest(key, repositories)}; "
                f"the parents are: {', '.join(repositories) or 'none'}"
            )


def unlocked_parents(graph: Graph) -> Iterator[str]:
    """Yield a message for each trusted parent without a digest: its tag may move after it is verified."""
    for parent in graph.outside_parents:
        fixed = parent.digest or Reference.of(parent.reference).digest
        if not fixed and trusted(graph.config.trust, parent.reference):
            yield (
                f"slipway:trust: {one_line(parent.reference)}: its tag may move after it is verified; "
                "run `slipway lock`, so that images are built on its digest"
            )
