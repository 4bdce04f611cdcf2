"""Rules over a resolved stack, which its models cannot check. All mistakes are reported at once.

A rule yields one message for each mistake. The message begins with the key. A rule's module is named for its subject.
Its place in a tuple below says when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from containers.errors import SlipwayError
from stacks.checks import budgets, clusters, drivers, ec2_site, pushes, trust
from stacks.graph import Graph

Subject = TypeVar("Subject")

GRAPH_RULES: tuple[Callable[[Graph], Iterator[str]], ...] = (
    budgets.unknown_images,
    trust.unmatched_keys,
    clusters.missing_charts,
    clusters.validation_image,
    clusters.unnamed_pools,
    clusters.untainted_pools,
    clusters.unused_build_service,
    clusters.shared_pool,
    ec2_site.unused_builders,
    drivers.too_old,
    clusters.old_engine,
    pushes.products,
)
"""Rules for every stack."""

BUILD_RULES: tuple[Callable[[Graph], Iterator[str]], ...] = (
    trust.unlocked_parents,
    ec2_site.unfilled,
    ec2_site.unfit_name,
    clusters.missing_gpu_checks,
    pushes.missing_warm_script,
)
"""Further rules for a stack that is built. They do not run for ``slipway lock``, which writes what they check."""


def run(rules: Iterable[Callable[[Subject], Iterator[str]]], subject: Subject, where: str) -> None:
    """Apply rules to their subject; ``where`` names the stack in errors.

    Raises SlipwayError: one line for each mistake.
    """
    messages = [f"{where}: {message}" for rule in rules for message in rule(subject)]
    if messages:
        raise SlipwayError("\n".join(dict.fromkeys(messages)))
