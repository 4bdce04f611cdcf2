"""Rules over a resolved stack: what its models cannot see. All mistakes are reported at once.

A rule yields one message for each mistake, which begins with the key. It goes into a module by its subject, and into
one of the tuples here by what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from stacks.checks import budgets, clusters, ec2_site, trust
from stacks.errors import SlipwayError
from stacks.graph import Graph

Subject = TypeVar("Subject")

GRAPH_RULES: tuple[Callable[[Graph], Iterator[str]], ...] = (
    budgets.unknown_images,
    trust.unmatched_keys,
    clusters.missing_charts,
    clusters.validation_image,
)
"""What must hold of every stack."""

BUILD_RULES: tuple[Callable[[Graph], Iterator[str]], ...] = (
    trust.unlocked_parents,
    ec2_site.unfit_name,
    clusters.missing_gpu_checks,
)
"""What must hold of a stack besides, before it is built: the lock, which may be missing, is written from the graph."""


def run(rules: Iterable[Callable[[Subject], Iterator[str]]], subject: Subject, where: str) -> None:
    """Hold rules against their subject; ``where`` names the stack in errors.

    Raises:
        SlipwayError: one line for each mistake.
    """
    messages = [f"{where}: {message}" for rule in rules for message in rule(subject)]
    if messages:
        raise SlipwayError("\n".join(dict.fromkeys(messages)))
